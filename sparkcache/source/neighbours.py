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
from sparkcache.consumers import Reader
from sparkcache.fetch import Scan, Stretch
from sparkcache.model import Position
from sparkcache.node.client import read_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.config import CacheConfig
    from sparkcache.connector import DecodedRun
    from sparkcache.consumers import Consumer
    from sparkcache.model import Extent, Ledger, Run, RunKey
    from sparkcache.source.settings import TaskSettings
    from sparkcache.source.topic_map import TopicMap


@dataclass(frozen=True)
class Neighbours:
    """See `sparkcache.connector.Neighbours`.

    Attributes:
        topic: The topic.
        scan: What the task reads.
        consumer: As whom.
        task: What holds for it.
        settings: The node's settings.

    """

    topic: TopicMap
    scan: Scan
    consumer: Consumer
    task: TaskSettings
    settings: CacheConfig

    @cached_property
    def _extents(self) -> list[tuple[Ledger, Extent, int]]:
        return self.topic.extents()

    def before(self) -> Iterator[Iterator[DecodedRun]]:
        """Yield groups of runs, each twice as many as the last, of one extent."""
        stretch = self.scan.stretches[0]
        begin = Position(stretch.ledger.id, stretch.runs[stretch.start].first)
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
                group = Stretch(ledger, extent, tuple(runs), start, stop, at)
                yield map(itemgetter(1), self._read(group))
                stop, size = start, 2 * size

    def behind(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs behind one, extent after extent."""
        begin = Position(key.ledger.id, key.run.last + 1)
        for ledger, extent, at in self._extents:
            if Position(ledger.id, extent.last) < begin:
                continue
            runs = self._runs(ledger, extent)
            start = 0
            while Position(ledger.id, runs[start].last) < begin:
                start += 1
            stretch = Stretch(ledger, extent, tuple(runs), start, len(runs), at)
            yield from self._read(stretch)

    def _runs(self, ledger: Ledger, extent: Extent) -> Sequence[Run]:
        connector = connectors.find(ledger.connector)
        return connector.runs(extent, self.scan.config.run_bytes)

    def _read(self, stretch: Stretch) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs of a stretch, and refer to none of them: zip() would."""
        end = stretch.at + stretch.extent.size_bytes
        runs = read_scan(
            Scan(self.scan.root, self.scan.config, (stretch,)),
            reader=Reader(self.task.token, uuid.uuid4().hex, self.consumer, end),
            epoch=self.task.epoch,
            settings=self.settings,
            plans=(),
        )
        for index in range(stretch.start, stretch.stop):
            yield stretch.key(index), next(runs)
