"""Which run goes next, whatever the policy.

With NEXT_READ, runs that are expected are in `NextRead` and all others in the
`RemovalQueue`, which goes first. With any other policy the queue has all of them.
"""

from __future__ import annotations

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
    """Every run of a cache, in one of two orders."""

    def __init__(
        self, settings: Settings, counters: Counters, foreseen: ReadForecast
    ) -> None:
        self._foreseen = foreseen
        self._policy = settings.policy
        self._queue: RemovalQueue[V] = RemovalQueue(settings, counters)
        self._next: NextRead[V] = NextRead(foreseen, counters)

    def __len__(self) -> int:
        return len(self._queue) + len(self._next)

    def __repr__(self) -> str:
        return f"<{self._policy.value}: {self._queue!r}, {self._next!r}>"

    def configure(self, settings: Settings) -> None:
        """Change the policy, from the next pass on."""
        self._queue.configure(settings)
        if settings.policy is not self._policy:
            runs = self.all()
            for run in runs:
                self.remove(run)
            self._policy = settings.policy
            for run in runs:
                self.add(run)

    def add(self, run: CachedRun[V]) -> None:
        """Take in a run that is not here."""
        if self._policy is Policy.NEXT_READ and run.expected_reads:
            self._next.add(run)
        else:
            self._queue.add(run)

    def remove(self, run: CachedRun[V]) -> None:
        """Take out a run that is here."""
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
        """Spare a run whose time is over, and note that."""
        run.requeues += 1
        run.accessed = False
        if run not in self._next:
            self._queue.move_to_end(run)

    def access(self, run: CachedRun[V]) -> None:
        """Note that a run is read."""
        run.accessed = True
        if run in self._next:
            run.ahead = False
        elif run.ahead:
            self._queue.arrive(run)
        elif self._policy is Policy.LRU:
            self._queue.move_to_end(run)

    def abandon(self, run: CachedRun[V]) -> None:
        """Note that the reader a run was loaded ahead of does not come."""
        if run in self._next:
            run.ahead = False
        elif run.ahead:
            self._queue.abandon(run)

    def expect(self, run: CachedRun[V]) -> None:
        """Note that a run is expected that was not, or the other way round."""
        if self._policy is Policy.NEXT_READ:
            self.remove(run)
            self.add(run)

    def moved(self, topic: str) -> None:
        """Note that what is foreseen of a topic, or who maps its runs, has changed."""
        self._next.moved(topic)

    def spares(self, run: CachedRun[V]) -> bool:
        """Whether a pass that looked at the run now would requeue it."""
        return self._queue.spares(run)

    def sweep(
        self, size_bytes: int, runs: int
    ) -> tuple[list[CachedRun[V]], list[CachedRun[V]]]:
        """Remove until so much is freed, but nothing whose next read is foreseen.

        Returns what was removed, and what was requeued, as often as it was.
        """
        return self._queue.shrink(size_bytes, runs)

    def put_back(self, runs: list[CachedRun[V]]) -> None:
        """Let what was swept stay after all, the next to go first as before."""
        self._queue.put_back(runs)

    def evict_for(
        self, size_bytes: int, runs: int, to: RunKey | None
    ) -> list[CachedRun[V]] | None:
        """Remove until so much is freed, but nothing read sooner than the newcomer.

        None, and nothing is removed, if that cannot be. None reads at once.
        """
        ticks = -1.0 if to is None else self._ticks_until_read(to)
        return self._next.evict_for(size_bytes, runs, ticks)

    def shrink(self, size_bytes: int, runs: int) -> list[CachedRun[V]]:
        """Remove of what is foreseen until so much is freed, or nothing is left."""
        return self._next.shrink(size_bytes, runs)

    def all(self) -> list[CachedRun[V]]:
        """List every run, the next to go first."""
        return self._queue.all() + self._next.all()

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        self._next.check()
        assert self._policy is Policy.NEXT_READ or not len(self._next)
        if self._policy is Policy.NEXT_READ:
            assert not any(run.expected_reads for run in self._queue.all())

    def _ticks_until_read(self, key: RunKey) -> float:
        place = self._foreseen.place(key)
        return self._foreseen.ticks_until_read(key.ledger.topic, place)
