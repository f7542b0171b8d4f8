"""The Spark partitions of a scan of one topic or more."""

from __future__ import annotations

import pickle
import uuid
import zlib
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from sparkcache import connector as connectors
from sparkcache.reported_loss import LossReport
from sparkcache.source import settings
from sparkcache.source.batch.partitions import PositionFilter, partition, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.config import ScanConfig
    from sparkcache.connector import Snapshot, Storage
    from sparkcache.demand import Consumer
    from sparkcache.filters import Filter
    from sparkcache.source.batch.partitions import Located, Piece
    from sparkcache.source.options import ScanOptions

_FOLLOWING = 4  # partitions: an executor starts about as many at once as it has cores


class ScanPartition(InputPartition):
    """The part of one topic that one Spark task reads.

    It travels compressed: its ledgers differ in little but their names and numbers.

    Attributes:
        pieces: The pieces to read, in order.
        following: The first pieces of the topic's next partitions.
        consumer: The consumer of the topic.
        scan: Id of the scan of this topic.
        part: Index of the partition in the whole scan.
        end: End of the scan in the topic, in stored bytes from the topic's beginning.
        report: The losses found by planning, which the task reports to its node.
        filters: The filters of the query.

    """

    def __init__(
        self,
        pieces: list[Piece],
        following: list[Piece],
        consumer: Consumer,
        scan: str,
        part: int,
        end: int,
        report: LossReport,
        filters: tuple[Filter, ...],
    ) -> None:
        super().__init__(pieces)
        self.pieces = pieces
        self.following = following
        self.consumer = consumer
        self.scan = scan
        self.part = part
        self.end = end
        self.report = report
        self.filters = filters

    def __getstate__(self) -> bytes:
        return zlib.compress(pickle.dumps(self.__dict__, pickle.HIGHEST_PROTOCOL), 3)

    def __setstate__(self, state: bytes) -> None:
        self.__dict__.update(pickle.loads(zlib.decompress(state)))  # noqa: S301 - ours


def cut(
    scan: ScanOptions,
    config: ScanConfig,
    storage: Storage,
    snapshots: Sequence[tuple[Consumer, Snapshot]],
    filters: tuple[Filter, ...] = (),
) -> Iterator[ScanPartition]:
    """Yield the partitions of a scan; the versions of objects are pinned.

    The snapshots may lack what does not match the filters of the query already.
    Raises SourceError for a loss, if the scan fails on losses.
    """
    connector = connectors.find(scan.connector)
    positions = PositionFilter(connector.entry_columns(), filters)
    reports = [
        _report(snapshot, consumer, fail=scan.fail_on_data_loss)
        for consumer, snapshot in snapshots
    ]
    pieces_by_topic = partition(
        [
            _extents(scan, storage, consumer, snapshot, positions)
            for consumer, snapshot in snapshots
        ],
        scan.min_partitions,
        config.partition_bytes,
        lambda extent: len(connector.runs(extent, config.run_bytes)),
    )
    scan_id = uuid.uuid4().hex
    part = 0
    for index, ((consumer, _), partitions) in enumerate(
        zip(snapshots, pieces_by_topic, strict=True)
    ):
        last = partitions[-1][-1] if partitions else None
        end = last.topic_offset + last.extent.size_bytes if last else 0
        first_pieces = [pieces[0] for pieces in partitions]
        for next_index, pieces in enumerate(partitions or [[]], start=1):
            following = first_pieces[next_index : next_index + _FOLLOWING]
            topic_scan = f"{scan_id}.{index}"
            report = reports[index] if next_index == 1 else LossReport()
            yield ScanPartition(
                pieces, following, consumer, topic_scan, part, end, report, filters
            )
            part += 1


def _report(snapshot: Snapshot, consumer: Consumer, *, fail: bool) -> LossReport:
    report = LossReport()
    report.add(settings.report(snapshot.losses, consumer, fail=fail))
    return report


def _extents(
    scan: ScanOptions,
    storage: Storage,
    consumer: Consumer,
    snapshot: Snapshot,
    positions: PositionFilter,
) -> list[Located]:
    """Return the extents of a topic with entries that a scan may read."""
    extents = wanted(snapshot.ledgers, consumer, positions)
    times_us = scan.start_us, scan.end_us
    if times_us == (None, None):
        return extents
    candidates = [(ledger, extent) for ledger, extent, _ in extents]
    connector = connectors.find(scan.connector)
    chosen = connector.prune(storage, candidates, times_us, scan.raw)
    return extents[chosen.start : chosen.stop]
