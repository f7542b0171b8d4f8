"""The eviction order of runs whose next read is not forecast.

One queue over all topics, in the order of insertion. Prefetched runs whose reader is
still expected follow all others and join them when they are read: somebody will use
them soon, and they have cost as much. A pass examines the head of the queue repeatedly
and reaches one verdict each time:

    STOP       enough is freed
    PASS_OVER  readers map the run, so removing it would free nothing: it keeps its
               position
    REQUEUE    back to the tail: reads of the run are expected, or, if that is switched
               on, it was accessed since a pass last spared it
    REMOVE     any other run

A run with reads to come is spared `max_requeues` times in all, and an access spares it
once, so a pass examines each run at most `max_requeues + 2` times.

Source: Apache Pulsar PIP-430, RangeCacheRemovalQueue, as merged. Different here:
PASS_OVER; prefetched runs, which Pulsar does not have; and no verdict MISSING, because
a run that is removed in any other way leaves the queue at once, from any position.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkcache.cache.settings import Policy

if TYPE_CHECKING:
    from sparkcache.cache.cached_run import CachedRun
    from sparkcache.cache.counters import Counters
    from sparkcache.cache.settings import Settings

V = TypeVar("V")


class Verdict(Enum):
    """Decision of a pass about the run at the head of the queue."""

    STOP = auto()
    PASS_OVER = auto()
    REQUEUE = auto()
    REMOVE = auto()


class RemovalQueue(Generic[V]):
    """The runs of a cache in the order in which passes consider them."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self._counters = counters
        # Not a dict: taking the oldest key of a dict again and again is O(n) each.
        self._runs: OrderedDict[CachedRun[V], None] = OrderedDict()
        self._ahead: OrderedDict[CachedRun[V], None] = OrderedDict()
        self.configure(settings)

    def __len__(self) -> int:
        return len(self._runs) + len(self._ahead)

    def __repr__(self) -> str:
        return f"<{len(self)} runs, next {self._head()!r}>"

    def configure(self, settings: Settings) -> None:
        """Change which runs are spared, from the next pass on."""
        is_lru = settings.policy is Policy.LRU
        self._max_requeues = 0 if is_lru else settings.max_requeues
        self._spares_accessed = settings.extend_recently_accessed

    def add(self, run: CachedRun[V]) -> None:
        """Add a run that is not in the queue."""
        self._queue_of(run)[run] = None

    def arrive(self, run: CachedRun[V]) -> None:
        """Move a prefetched run that is read now to the other runs."""
        self.remove(run)
        run.ahead = False
        self.add(run)

    def abandon(self, run: CachedRun[V]) -> None:
        """Move a run that was prefetched in vain to the head of the queue."""
        self.remove(run)
        run.ahead = False
        self.put_back([run])

    def requeue(self, run: CachedRun[V]) -> None:
        """Spare a run, and count that."""
        run.requeues += 1
        run.accessed = False
        self.move_to_end(run)

    def move_to_end(self, run: CachedRun[V]) -> None:
        """Move a run to the tail of its part of the queue."""
        self._queue_of(run).move_to_end(run)

    def remove(self, run: CachedRun[V]) -> None:
        """Remove a run from any position of the queue."""
        del self._queue_of(run)[run]

    def spares(self, run: CachedRun[V]) -> bool:
        """Return whether a pass that examined the run now would requeue it."""
        if run.expected_reads and run.requeues < self._max_requeues:
            return True
        return self._spares_accessed and run.accessed

    def shrink(
        self, size_bytes: int, runs: int
    ) -> tuple[list[CachedRun[V]], list[CachedRun[V]]]:
        """Remove runs until both this many bytes and this many runs are freed.

        Returns the removed runs, and the requeued runs, each as often as it was
        requeued and even if it was removed in the end; both in order of occurrence.
        """
        removed: list[CachedRun[V]] = []
        requeued: list[CachedRun[V]] = []
        passed_over: list[CachedRun[V]] = []
        while (run := self._head()) is not None:
            self._counters.examined += 1
            match self._verdict(run, enough=size_bytes <= 0 and runs <= 0):
                case Verdict.STOP:
                    break
                case Verdict.PASS_OVER:
                    self.remove(run)
                    passed_over.append(run)
                case Verdict.REQUEUE:
                    self.requeue(run)
                    self._counters.requeued_by_size += 1
                    requeued.append(run)
                case Verdict.REMOVE:
                    self.remove(run)
                    removed.append(run)
                    size_bytes -= run.size_bytes
                    runs -= 1
        self.put_back(passed_over)
        return removed, requeued

    def put_back(self, runs: list[CachedRun[V]]) -> None:
        """Put removed runs back at the head of the queue, in their order.

        They precede runs that the pass found between them and passed over.
        """
        for run in reversed(runs):
            self.add(run)
            self._queue_of(run).move_to_end(run, last=False)

    def all(self) -> list[CachedRun[V]]:
        """List all runs, the next to be evicted first."""
        return [*self._runs, *self._ahead]

    def _queue_of(self, run: CachedRun[V]) -> OrderedDict[CachedRun[V], None]:
        return self._ahead if run.ahead else self._runs

    def _head(self) -> CachedRun[V] | None:
        return next(iter(self._runs), None) or next(iter(self._ahead), None)

    def _verdict(self, run: CachedRun[V], *, enough: bool) -> Verdict:
        if enough:
            return Verdict.STOP
        if run.pins:
            return Verdict.PASS_OVER
        return Verdict.REQUEUE if self.spares(run) else Verdict.REMOVE
