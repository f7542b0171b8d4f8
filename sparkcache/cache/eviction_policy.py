"""The eviction order of all runs, for every policy.

With NEXT_READ, expected runs are in `NextRead` and all others in the `RemovalQueue`,
whose runs are evicted first. With any other policy the queue holds all runs.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkcache.cache.next_read import NextRead
from sparkcache.cache.removal_queue import RemovalQueue
from sparkcache.cache.settings import Policy

if TYPE_CHECKING:
    from sparkcache.cache.cached_run import CachedRun
    from sparkcache.cache.counters import Counters
    from sparkcache.cache.next_read import ReadForecast
    from sparkcache.cache.settings import Settings
    from sparkcache.model import RunKey

V = TypeVar("V")


class EvictionPolicy(Generic[V]):
    """All runs of a cache, each in the order that applies to it."""

    def __init__(
        self, settings: Settings, counters: Counters, forecast: ReadForecast
    ) -> None:
        self._policy = settings.policy
        self._queue: RemovalQueue[V] = RemovalQueue(settings, counters)
        self._next: NextRead[V] = NextRead(forecast, counters, settings.get_cost_bytes)

    def __len__(self) -> int:
        return len(self._queue) + len(self._next)

    def __repr__(self) -> str:
        return f"<{self._policy.value}: {self._queue!r}, {self._next!r}>"

    def configure(self, settings: Settings) -> None:
        """Change the policy, from the next pass on."""
        self._queue.configure(settings)
        self._next.get_cost_bytes = settings.get_cost_bytes
        if settings.policy is not self._policy:
            runs = self.all()
            for run in runs:
                self.remove(run)
            self._policy = settings.policy
            for run in runs:
                self.add(run)

    def add(self, run: CachedRun[V]) -> None:
        """Add a run that is in neither order."""
        if self._policy is Policy.NEXT_READ and run.expected_reads:
            self._next.add(run)
        else:
            self._queue.add(run)

    def remove(self, run: CachedRun[V]) -> None:
        """Remove a run from its order."""
        if run in self._next:
            self._next.remove(run)
        else:
            self._queue.remove(run)

    def renew(self, run: CachedRun[V]) -> None:
        """Treat a run as if it had just been inserted."""
        run.requeues = 0
        run.accessed = False
        self.remove(run)
        self.add(run)

    def requeue(self, run: CachedRun[V]) -> None:
        """Spare a run whose time to live is over, and count that."""
        run.requeues += 1
        run.accessed = False
        if run not in self._next:
            self._queue.move_to_end(run)

    def access(self, run: CachedRun[V]) -> None:
        """Note that a run is read."""
        run.accessed = True
        if run in self._next:
            run.ahead = False
            self._next.touch(run)
        elif run.ahead:
            self._queue.arrive(run)
        elif self._policy is Policy.LRU:
            self._queue.move_to_end(run)

    def abandon(self, run: CachedRun[V]) -> None:
        """Note that the reader that a run was prefetched for is not coming."""
        if run in self._next:
            run.ahead = False
        elif run.ahead:
            self._queue.abandon(run)

    def expect(self, run: CachedRun[V]) -> None:
        """Note that a run became expected, or is no longer expected."""
        if self._policy is Policy.NEXT_READ:
            self.remove(run)
            self.add(run)

    def readers_moved(self, topic: str) -> None:
        """Note that the forecast of a topic has changed."""
        self._next.readers_moved(topic)

    def pins_changed(self, run: CachedRun[V]) -> None:
        """Note that the pins of a run have changed."""
        self._next.touch(run)

    def spares(self, run: CachedRun[V]) -> bool:
        """Return whether a pass that examined the run now would requeue it."""
        return self._queue.spares(run)

    def sweep(
        self, size_bytes: int, runs: int
    ) -> tuple[list[CachedRun[V]], list[CachedRun[V]]]:
        """Remove runs from the queue until this many bytes and runs are freed.

        Runs whose next read is forecast stay. Returns the removed runs, and the
        requeued runs, each as often as it was requeued.
        """
        return self._queue.shrink(size_bytes, runs)

    def put_back(self, runs: list[CachedRun[V]]) -> None:
        """Put swept runs back at the head of the queue, in their order."""
        self._queue.put_back(runs)

    def evict_for(
        self, size_bytes: int, runs: int, new_key: RunKey | None, new_bytes: int
    ) -> list[CachedRun[V]] | None:
        """Remove expected runs that are read later than a new run, to make room for it.

        `new_key` None means that the new run is read at once. Returns None, and removes
        no run, if this many bytes and runs cannot be freed so.
        """
        if new_key is None:
            return self._next.evict_for(size_bytes, runs, -inf)
        return self._next.evict_for(
            size_bytes, runs, self._next.lateness(new_key, new_bytes)
        )

    def would_evict_for(self, new_key: RunKey, new_bytes: int) -> bool:
        """Return whether any run would make room for a new run."""
        if len(self._queue):
            return True
        return self._next.is_any_later(self._next.lateness(new_key, new_bytes))

    def shrink(self, size_bytes: int, runs: int) -> list[CachedRun[V]]:
        """Remove expected runs until this much is freed or none can be removed."""
        return self._next.shrink(size_bytes, runs)

    def all(self) -> list[CachedRun[V]]:
        """List all runs, the next to be evicted first."""
        return self._queue.all() + self._next.all()

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        self._next.check()
        assert self._policy is Policy.NEXT_READ or not len(self._next)
        if self._policy is Policy.NEXT_READ:
            assert not any(run.expected_reads for run in self._queue.all())
