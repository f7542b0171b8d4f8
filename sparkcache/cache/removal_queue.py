"""Which run goes next.

One queue over all topics, in the order in which runs were inserted. Those that were
loaded ahead of a reader who is still coming stand behind all others, and join them when
they are read: they are of use to somebody soon, and have cost as much. A pass looks at
the head, again and again, and gives one verdict each time:

    STOP       enough is freed
    PASS_OVER  readers map it, so removing it would free nothing: it keeps its place
    REQUEUE    back to the tail: reads are expected of it, or, where that is switched
               on, it was accessed since a pass last spared it
    REMOVE     anything else

A run with reads to come is spared `max_requeues` times in all, and an access spares
once, so a pass ends after at most `max_requeues + 2` looks at each run.

Source: Apache Pulsar PIP-430, RangeCacheRemovalQueue, as merged. Different here:
PASS_OVER; what was loaded ahead, which Pulsar does not have; and there is no verdict
MISSING, for a run that is removed in any other way leaves the queue at once, from
wherever it stands.
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
    """What a pass does with the run at the head of the queue."""

    STOP = auto()
    PASS_OVER = auto()
    REQUEUE = auto()
    REMOVE = auto()


class RemovalQueue(Generic[V]):
    """The runs of a cache in the order in which to consider their removal."""

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
        """Take in a run that is not in the queue."""
        self._queue_of(run)[run] = None

    def arrive(self, run: CachedRun[V]) -> None:
        """Put a run that was loaded ahead, and is read now, with the others."""
        self.remove(run)
        run.ahead = False
        self.add(run)

    def abandon(self, run: CachedRun[V]) -> None:
        """Put a run that was loaded ahead in vain before all others."""
        self.remove(run)
        run.ahead = False
        self.put_back([run])

    def requeue(self, run: CachedRun[V]) -> None:
        """Spare a run, and note that."""
        run.requeues += 1
        run.accessed = False
        self.move_to_end(run)

    def move_to_end(self, run: CachedRun[V]) -> None:
        """Let a run go after all others."""
        self._queue_of(run).move_to_end(run)

    def remove(self, run: CachedRun[V]) -> None:
        """Take out a run, wherever in the queue it is."""
        del self._queue_of(run)[run]

    def spares(self, run: CachedRun[V]) -> bool:
        """Whether a pass that looked at the run now would requeue it."""
        if run.expected_reads and run.requeues < self._max_requeues:
            return True
        return self._spares_accessed and run.accessed

    def shrink(
        self, size_bytes: int, runs: int
    ) -> tuple[list[CachedRun[V]], list[CachedRun[V]]]:
        """Remove until both so many bytes and so many runs are freed.

        Returns what was removed, and what was requeued, as often as it was and even if
        it was removed in the end; each in the order in which it happened.
        """
        removed: list[CachedRun[V]] = []
        requeued: list[CachedRun[V]] = []
        passed_over: list[CachedRun[V]] = []
        while (run := self._head()) is not None:
            self._counters.looked_at += 1
            match self._verdict(run, enough=size_bytes <= 0 and runs <= 0):
                case Verdict.STOP:
                    break
                case Verdict.PASS_OVER:
                    self.remove(run)
                    passed_over.append(run)
                case Verdict.REQUEUE:
                    self.requeue(run)
                    self._counters.requeued_evicted += 1
                    requeued.append(run)
                case Verdict.REMOVE:
                    self.remove(run)
                    removed.append(run)
                    size_bytes -= run.size_bytes
                    runs -= 1
        self.put_back(passed_over)
        return removed, requeued

    def put_back(self, runs: list[CachedRun[V]]) -> None:
        """Take in runs again in their order, as the first of the queue.

        They go before those that the pass met between them and passed over.
        """
        for run in reversed(runs):
            self.add(run)
            self._queue_of(run).move_to_end(run, last=False)

    def all(self) -> list[CachedRun[V]]:
        """List every run, the next to go first."""
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
