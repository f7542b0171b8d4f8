"""Reading of a partition in a task, for a batch scan or a stream."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext

from sparkcache import connector as connectors
from sparkcache.config import CacheConfig
from sparkcache.demand import ReaderIdentity
from sparkcache.fetch import RunSlice, Scan
from sparkcache.source import settings
from sparkcache.source.batch.joined_batches import joined
from sparkcache.source.batch.partitions import PositionFilter, run_slice
from sparkcache.source.batch.row_filter import RowFilter
from sparkcache.source.batch.surrounding_runs import SurroundingRuns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sparkcache.demand import Plan
    from sparkcache.reported_loss import LossReport
    from sparkcache.source.batch.partitions import Piece
    from sparkcache.source.batch.scan_partition import ScanPartition
    from sparkcache.source.batch.surrounding_runs import TopicIndex
    from sparkcache.source.driver.broadcast import BroadcastRef
    from sparkcache.source.options import ScanOptions


@dataclass(frozen=True)
class TaskReader:
    """Reader of the partitions of a scan, in tasks.

    Attributes:
        scan: The options of the scan.
        columns: The columns to return, in order.
        installed: The configuration that `sparkcache.install` shipped, if any.

    """

    scan: ScanOptions
    columns: list[str]
    installed: BroadcastRef[CacheConfig] | None

    def read(
        self, partition: ScanPartition, index: TopicIndex, stream: Plan | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a partition; `stream` is the plan of a stream.

        A stream never returns to undecided entries, such as those of a transaction
        whose end is not stored yet. So for a stream they are losses: the batch fails
        until they are decided, unless failOnDataLoss=false leaves them out.
        """
        from sparkcache.node.client import read_scan, reporting

        _freeze_once()
        context = TaskContext.get()
        assert context is not None
        base = None if self.installed is None else self.installed.value
        task = settings.read_task_settings(context, partition.part, base)
        config = task.config.with_options(self.scan.raw)  # checked when it was planned
        connector = connectors.find(self.scan.connector)
        consumer = partition.consumer
        positions = PositionFilter(connector.entry_columns(), partition.filters)

        def slice_of(piece: Piece) -> RunSlice | None:
            runs = connector.runs(piece.extent, config.run_bytes)
            return run_slice(piece, runs, consumer, positions)

        slices = tuple(filter(None, map(slice_of, partition.pieces)))
        following = (
            (part, slice_of(piece))
            for part, piece in partition.following
            if task.place.reads_ahead
        )
        scan = Scan(self.scan.root, config.storage, config.scan, slices)
        runs = read_scan(
            scan,
            reader=ReaderIdentity(task.token, partition.scan, consumer, partition.end),
            epoch=task.epoch,
            settings=task.config.node,
            plans=task.plans_of(stream),
            following=tuple((part, first) for part, first in following if first),
            group=connector.group(consumer.topic),
            authority=task.authority,
            place=task.place,
        )
        resolver = connector.resolver(
            self.scan.decoding,
            self.scan.raw,
            SurroundingRuns(index, scan, consumer, task),
        )
        row_filter = RowFilter(self.scan, consumer, self.columns)
        fail = self.scan.fail_on_data_loss

        def rows(report: LossReport) -> Iterator[pa.RecordBatch]:
            for key, run in zip(scan.keys(), runs, strict=True):
                resolved = resolver.resolve(key, run)
                report.add(settings.report(resolved.losses, consumer, fail=fail))
                if stream is not None:
                    report.add(settings.report(resolved.undecided, consumer, fail=fail))
                if resolved is not run:
                    run.batches.clear()
                while resolved.batches:
                    yield from row_filter.apply(resolved.batches.pop(0))

        with reporting(partition.report) as report:
            yield from joined(rows(report))


_is_frozen = False


def _freeze_once() -> None:
    """Exempt this worker's imports from the garbage collection after each task."""
    global _is_frozen
    if not _is_frozen:
        gc.freeze()
        _is_frozen = True
