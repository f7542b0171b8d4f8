"""The runs around those that a task reads, read through the node as well.

They are read as by a scan of its own that nobody planned, so nothing is counted as read
that a planned consumer still waits for.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.demand import ReaderIdentity
from sparkcache.fetch import RunSlice, Scan
from sparkcache.model import Position
from sparkcache.node.client import read_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.config import CacheConfig
    from sparkcache.connector import DecodedRun
    from sparkcache.demand import Consumer
    from sparkcache.model import Extent, Ledger, Run, RunKey
    from sparkcache.source.batch.extent_index import ExtentIndex
    from sparkcache.source.settings import TaskSettings


@dataclass(frozen=True)
class SurroundingRuns:
    """See `sparkcache.connector.Neighbours`.

    Attributes:
        topic: The topic.
        scan: What the task reads.
        consumer: As whom.
        task: What holds for it.
        settings: The node's settings.

    """

    topic: ExtentIndex
    scan: Scan
    consumer: Consumer
    task: TaskSettings
    settings: CacheConfig

    @cached_property
    def _extents(self) -> list[tuple[Ledger, Extent, int]]:
        return self.topic.extents()

    def before(self) -> Iterator[Iterator[DecodedRun]]:
        """Yield groups of runs, each twice as many as the last, of one extent."""
        run_slice = self.scan.slices[0]
        begin = Position(run_slice.ledger.id, run_slice.runs[run_slice.start].first)
        for ledger, extent, at in reversed(self._extents):
            if (ledger.id, extent.first) >= (begin.ledger, begin.entry):
                continue
            runs = self._runs(ledger, extent)
            stop = len(runs)
            while stop and Position(ledger.id, runs[stop - 1].first) >= begin:
                stop -= 1
            size = 1
            while stop:
                start = max(0, stop - size)
                group = RunSlice(ledger, extent, tuple(runs), start, stop, at)
                yield map(itemgetter(1), self._read(group))
                stop, size = start, 2 * size

    def after(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs behind one, extent after extent."""
        begin = Position(key.ledger.id, key.run.last + 1)
        for ledger, extent, at in self._extents:
            if Position(ledger.id, extent.last) < begin:
                continue
            runs = self._runs(ledger, extent)
            start = 0
            while Position(ledger.id, runs[start].last) < begin:
                start += 1
            run_slice = RunSlice(ledger, extent, tuple(runs), start, len(runs), at)
            yield from self._read(run_slice)

    def _runs(self, ledger: Ledger, extent: Extent) -> Sequence[Run]:
        connector = connectors.find(ledger.connector)
        return connector.runs(extent, self.scan.config.run_bytes)

    def _read(self, run_slice: RunSlice) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs of a stretch, and refer to none of them: zip() would."""
        end = run_slice.at + run_slice.extent.size_bytes
        runs = read_scan(
            Scan(self.scan.root, self.scan.config, (run_slice,)),
            reader=ReaderIdentity(
                self.task.token, uuid.uuid4().hex, self.consumer, end
            ),
            epoch=self.task.epoch,
            settings=self.settings,
            plans=(),
        )
        for index in range(run_slice.start, run_slice.stop):
            yield run_slice.key(index), next(runs)
