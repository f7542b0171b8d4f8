"""Replay of a trace through the core, which is driven as a node drives it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sparkcache.cache import PlannedCache
from sparkcache.simulate.tally import Tally
from sparkcache.trace import Begin, Close, Open, Over, Put, Read, Take

if TYPE_CHECKING:
    from sparkcache.cache import Settings
    from sparkcache.demand import PartitionRead
    from sparkcache.model import RunKey
    from sparkcache.simulate.outcome import Outcome
    from sparkcache.trace import Event, Trace


def simulate(trace: Trace, settings: Settings) -> Outcome:
    """Return what a trace costs with these settings."""
    replay = _Replay(trace, settings)
    for at_s, event in trace.events:
        replay.handle(at_s, event)
    return replay.tally.outcome()


class _Replay:
    def __init__(self, trace: Trace, settings: Settings) -> None:
        self.tally = Tally(trace)
        self._trace = trace
        self._cache: PlannedCache[None] = PlannedCache(settings)
        self._partition_reads: dict[int, PartitionRead] = {}
        self._finished: Counter[int] = Counter()

    def handle(self, now_s: float, event: Event) -> None:
        cache = self._cache
        deadline_s = cache.runs.next_deadline_s()
        if deadline_s is not None and deadline_s <= now_s:
            cache.runs.expire(now_s)
        match event:
            case Begin(plan):
                cache.begin((plan,), now_s)
            case Over(plan_ids):
                cache.end(plan_ids, now_s)
            case Open():
                self.tally.open(event)
                self._partition_reads[event.task] = cache.open(
                    event.reader,
                    event.plan_ids,
                    event.extents,
                    event.first,
                    event.stop,
                )
            case Take(task, key):
                cached = cache.take(self._partition_reads[task], key, now_s)
                self.tally.take(event, is_held=cached is not None)
                if cached is None:
                    self._load(key, now_s)
            case Read(task, key):
                cache.finish(
                    self._partition_reads[task], self._finished[task], key, now_s
                )
                self._finished[task] += 1
            case Close(task):
                cache.close(self._partition_reads.pop(task))
                del self._finished[task]
            case Put(key):
                self._load(key, now_s)

    def _load(self, key: RunKey, now_s: float) -> None:
        size_bytes = self._trace.size_bytes(key)
        slot, _ = self._cache.reserve(key, size_bytes, now_s)
        if slot is not None:
            self._cache.insert(key, None, slot=slot, now_s=now_s)
