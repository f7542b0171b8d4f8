"""The time to live and the maximum age of every run.

The time to live depends on a run's state: unread, read, or with reads to come. Each
state has one time to live, hence one queue that keeps itself in deadline order, and
finding overdue runs costs a look at three heads: no heap, no timer wheel. A run changes
queues only when its time to live restarts, and joins the new queue at the tail.

In addition a run has an age, counted from its insertion, which may be limited.

Deadlines are inclusive: at exactly `since + ttl` the time to live is over.

Source: the exact semantics are those of Caffeine with the dual `Expiry` of Apache
RocketMQ (issue 10572). Different here: reads within a second of each other also count
fully; runs with reads to come have a time to live of their own, after PIP-430; and the
age is limited, because otherwise a run that is read again and again never expires.
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
    """The deadlines of all kept runs."""

    def __init__(self, ttl: Ttl, counters: Counters) -> None:
        self._counters = counters
        self._ages: MaxAgeQueue[V] = MaxAgeQueue(inf)
        self._unread: DeadlineQueue[V] = DeadlineQueue(0.0)
        self._read: DeadlineQueue[V] = DeadlineQueue(0.0)
        self._expected: DeadlineQueue[V] = DeadlineQueue(0.0)
        # In the order of a pass: a spared run never moves to an earlier queue.
        self._queues = (self._expected, self._read, self._unread)
        self.configure(ttl)

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def __repr__(self) -> str:
        expected, read, unread = map(len, self._queues)
        return f"<{expected} runs expected, {read} read, {unread} unread>"

    def configure(self, ttl: Ttl) -> None:
        """Change the times to live, also of the runs already kept.

        Times to live still count from when they started. Runs already read live
        `create_s` from their last read if reads no longer change the time to live.
        """
        self._reads_matter = ttl.after_read_s is not None
        self._unread.ttl_s = ttl.create_s
        self._read.ttl_s = (
            ttl.create_s if ttl.after_read_s is None else ttl.after_read_s
        )
        self._expected.ttl_s = ttl.expected_s
        self._ages.max_life_s = ttl.max_life_s

    def insert(self, run: CachedRun[V], now_s: float) -> None:
        """Start the age and the time to live of a run."""
        self._ages.begin(run, now_s)
        self.start(run, now_s)

    def start(self, run: CachedRun[V], now_s: float) -> None:
        """Start or restart the time to live that the run's state demands."""
        if run.expected_reads:
            queue = self._expected
        else:
            queue = self._read if run.was_read else self._unread
        old_queue = run.deadlines
        if old_queue is queue:
            queue.restart(run, now_s)
            return
        if old_queue is not None:
            old_queue.remove(run)
        queue.add(run, now_s)

    def read(self, run: CachedRun[V], now_s: float) -> None:
        """Note a read, after `expected_reads` was lowered if the read was planned."""
        if self._reads_matter:
            run.was_read = True
            self.start(run, now_s)

    def stop(self, run: CachedRun[V]) -> None:
        """Forget the deadlines of a run."""
        if run.deadlines is not None:
            run.deadlines.remove(run)
            self._ages.remove(run)

    def end_s(self, run: CachedRun[V]) -> float:
        """Return when the run's time to live or its age ends, whichever is first."""
        age_ends_s = run.inserted_s + self._ages.max_life_s
        queue = run.deadlines
        if queue is None:
            return age_ends_s
        ttl_ends_s = run.since_s + queue.ttl_s
        return age_ends_s if age_ends_s < ttl_ends_s else ttl_ends_s

    def is_past_ttl(self, run: CachedRun[V], now_s: float) -> bool:
        """Return whether the run's time to live is over."""
        queue = run.deadlines
        return queue is not None and now_s >= queue.end_s(run)

    def is_past_max_age(self, run: CachedRun[V], now_s: float) -> bool:
        """Return whether the run has reached the maximum age and cannot be spared."""
        return now_s >= self._ages.end_s(run)

    def overdue(self, now_s: float) -> Iterator[CachedRun[V]]:
        """Yield the runs whose maximum age or time to live is over.

        The caller must stop or restart each run before it takes the next one.
        """
        for queue in self._in_use():
            while (run := queue.head()) is not None:
                self._counters.examined += 1
                if now_s < queue.end_s(run):
                    break
                yield run

    def next_deadline_s(self) -> float | None:
        """Return the earliest deadline of any run; None if no run expires."""
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
        self._ages.check()
        assert len(self._ages) == len(self)

    def _in_use(self) -> tuple[DeadlineQueue[V] | MaxAgeQueue[V], ...]:
        if self._ages.max_life_s == inf:
            return self._queues
        return (self._ages, *self._queues)
