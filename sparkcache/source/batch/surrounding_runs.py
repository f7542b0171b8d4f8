"""The runs before and after those that a task reads, read through the node as well.

Each read of them counts as a separate, unplanned scan, so it does not use up a planned
consumer's expected read of the same run.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from sparkcache import connector as connectors
from sparkcache.demand import ReaderIdentity
from sparkcache.fetch import RunSlice
from sparkcache.model import Position
from sparkcache.node.client import read_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.connector import DecodedRun
    from sparkcache.demand import Consumer
    from sparkcache.fetch import Scan
    from sparkcache.model import Extent, Ledger, Loss, Run, RunKey
    from sparkcache.source.settings import TaskSettings


class TopicIndex(Protocol):
    """The extents of a topic and its losses."""

    def extents(self) -> list[tuple[Ledger, Extent, int]]:
        """Return all extents in order, with the stored bytes before each."""

    def losses(self) -> Sequence[Loss]:
        """Return the losses of the topic's snapshot."""


@dataclass(frozen=True)
class SurroundingRuns:
    """The runs around a task's runs; see `sparkcache.connector.SurroundingRuns`.

    Attributes:
        index: The topic's extents.
        scan: The runs that the task reads.
        consumer: The consumer for which it reads.
        task: The task's settings, plans and identity.

    """

    index: TopicIndex
    scan: Scan
    consumer: Consumer
    task: TaskSettings

    @cached_property
    def _extents(self) -> list[tuple[Ledger, Extent, int]]:
        return self.index.extents()

    def before(self) -> Iterator[Iterator[DecodedRun]]:
        """Yield groups of runs of one extent, each twice as large as the last."""
        run_slice = self.scan.slices[0]
        begin = Position(run_slice.ledger.id, run_slice.runs[run_slice.start].first)
        for ledger, extent, topic_offset in reversed(self._extents):
            if (ledger.id, extent.first) >= (begin.ledger, begin.entry):
                continue
            runs = self._runs(ledger, extent)
            stop = len(runs)
            while stop and Position(ledger.id, runs[stop - 1].first) >= begin:
                stop -= 1
            size = 1
            while stop:
                start = max(0, stop - size)
                group = RunSlice(ledger, extent, tuple(runs), start, stop, topic_offset)
                yield map(itemgetter(1), self._read(group))
                stop, size = start, 2 * size

    def after(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs after one, extent by extent."""
        begin = Position(key.ledger.id, key.run.last + 1)
        for ledger, extent, topic_offset in self._extents:
            if Position(ledger.id, extent.last) < begin:
                continue
            runs = self._runs(ledger, extent)
            start = 0
            while Position(ledger.id, runs[start].last) < begin:
                start += 1
            run_slice = RunSlice(
                ledger, extent, tuple(runs), start, len(runs), topic_offset
            )
            yield from self._read(run_slice)

    def losses(self) -> Sequence[Loss]:
        """Return the losses of the topic's snapshot."""
        return self.index.losses()

    def _runs(self, ledger: Ledger, extent: Extent) -> Sequence[Run]:
        connector = connectors.find(ledger.connector)
        return connector.runs(extent, self.scan.config.run_bytes)

    def _read(self, run_slice: RunSlice) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs of a slice; hold no references to them, unlike zip()."""
        end = run_slice.topic_offset + run_slice.extent.size_bytes
        runs = read_scan(
            replace(self.scan, slices=(run_slice,)),
            reader=ReaderIdentity(
                self.task.token, uuid.uuid4().hex, self.consumer, end
            ),
            epoch=self.task.epoch,
            authority=self.task.authority,
            settings=self.task.config.node,
            plans=(),
        )
        for index in range(run_slice.start, run_slice.stop):
            yield run_slice.key(index), next(runs)
