"""When the time of each run is over.

A run's time depends on its state: nobody has read it, somebody has, or somebody is
still expected to. Each state has one time to live, hence one queue that is in order of
deadlines by itself, and finding what is over costs the three heads: no heap, no timer
wheel. A run changes queues only as its time begins anew, at the tail.

Beside that each run has one life, from its insertion on, which may have a cap.

Deadlines are included: at `since + ttl` exactly, the time is over.

Source: the exact semantics are those of Caffeine with the dual `Expiry` of Apache
RocketMQ (issue 10572). Different here: reads within a second of each other count fully
too, and runs with reads to come have a time of their own, after PIP-430; and there is
a cap, without which a run that is read again and again never ends.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkcache.cache.deadline_queue import DeadlineQueue
from sparkcache.cache.max_age_queue import MaxAgeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.cache.cached_run import CachedRun
    from sparkcache.cache.counters import Counters
    from sparkcache.cache.settings import Ttl

V = TypeVar("V")


class Expiry(Generic[V]):
    """The time of every run held, and its life."""

    def __init__(self, ttl: Ttl, counters: Counters) -> None:
        self._counters = counters
        self._lives: MaxAgeQueue[V] = MaxAgeQueue(inf)
        self._unread: DeadlineQueue[V] = DeadlineQueue(0.0)
        self._read: DeadlineQueue[V] = DeadlineQueue(0.0)
        self._expected: DeadlineQueue[V] = DeadlineQueue(0.0)
        # In the order of a pass, for a run that was spared never moves to one before.
        self._queues = (self._expected, self._read, self._unread)
        self.configure(ttl)

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def __repr__(self) -> str:
        expected, read, unread = map(len, self._queues)
        return f"<{expected} runs expected, {read} read, {unread} unread>"

    def configure(self, ttl: Ttl) -> None:
        """Change how long runs live, those held included.

        Their time still counts from when it began. Runs already read live `create_s`
        from their last read if reads no longer matter.
        """
        self._reads_matter = ttl.after_read_s is not None
        self._unread.ttl_s = ttl.create_s
        self._read.ttl_s = (
            ttl.create_s if ttl.after_read_s is None else ttl.after_read_s
        )
        self._expected.ttl_s = ttl.expected_s
        self._lives.max_life_s = ttl.max_life_s

    def insert(self, run: CachedRun[V], now_s: float) -> None:
        """Begin the run's life, and its time."""
        self._lives.begin(run, now_s)
        self.start(run, now_s)

    def start(self, run: CachedRun[V], now_s: float) -> None:
        """Begin the run's time, as its state now demands: the first or a fresh one."""
        if run.expected_reads:
            queue = self._expected
        else:
            queue = self._read if run.was_read else self._unread
        old = run.deadlines
        if old is queue:
            queue.restart(run, now_s)
            return
        if old is not None:
            old.remove(run)
        queue.add(run, now_s)

    def read(self, run: CachedRun[V], now_s: float) -> None:
        """Note a read, after `expected_reads` was lowered if it was a planned one."""
        if self._reads_matter:
            run.was_read = True
            self.start(run, now_s)

    def stop(self, run: CachedRun[V]) -> None:
        """Forget a run."""
        if run.deadlines is not None:
            run.deadlines.remove(run)
            self._lives.remove(run)

    def is_over(self, run: CachedRun[V], now_s: float) -> bool:
        """Whether the run's time has ended."""
        queue = run.deadlines
        return queue is not None and now_s >= queue.end_s(run)

    def is_at_end(self, run: CachedRun[V], now_s: float) -> bool:
        """Whether the run's life has ended, so that nothing spares it."""
        return now_s >= self._lives.end_s(run)

    def over(self, now_s: float) -> Iterator[CachedRun[V]]:
        """Yield the runs whose life or time has ended.

        Each has to be stopped, or started anew, before the next is asked for.
        """
        for queue in self._in_use():
            while (run := queue.head()) is not None:
                self._counters.looked_at += 1
                if now_s < queue.end_s(run):
                    break
                yield run

    def next_deadline_s(self) -> float | None:
        """When the next run's life or time ends; None if none does."""
        first_s = inf
        for queue in self._in_use():
            run = queue.head()
            if run is not None:
                first_s = min(first_s, queue.end_s(run))
        return None if first_s == inf else first_s

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        for queue in self._queues:
            queue.check()
        self._lives.check()
        assert len(self._lives) == len(self)

    def _in_use(self) -> tuple[DeadlineQueue[V] | MaxAgeQueue[V], ...]:
        if self._lives.max_life_s == inf:
            return self._queues
        return (self._lives, *self._queues)
