"""Runs that share one time to live, so that the one that began first ends first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from sparkcache.cache.cached_run import CachedRun

V = TypeVar("V")


class DeadlineQueue(Generic[V]):
    """Ordered by deadline without sorting anything: now never goes backwards."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        # Not a dict: taking the oldest key of a dict again and again is O(n) each.
        self._runs: OrderedDict[CachedRun[V], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"<{len(self)} runs for {self.ttl_s} s each>"

    def add(self, run: CachedRun[V], now_s: float) -> None:
        """Begin the time of a run that is in no queue."""
        run.deadlines = self
        run.since_s = now_s
        self._runs[run] = None

    def restart(self, run: CachedRun[V], now_s: float) -> None:
        """Begin the time of a run in this queue anew."""
        run.since_s = now_s
        self._runs.move_to_end(run)

    def remove(self, run: CachedRun[V]) -> None:
        """Take out a run, wherever in the queue it is."""
        run.deadlines = None
        del self._runs[run]

    def head(self) -> CachedRun[V] | None:
        """Find the run that ends first."""
        return next(iter(self._runs), None)

    def end_s(self, run: CachedRun[V]) -> float:
        """When the run's time ends, if it does not begin anew."""
        return run.since_s + self.ttl_s

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        assert all(run.deadlines is self for run in self._runs)
        since = [run.since_s for run in self._runs]
        assert since == sorted(since)
