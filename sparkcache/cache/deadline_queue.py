"""Queue of runs that share one time to live, so they expire in the order they start."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from sparkcache.cache.cached_run import CachedRun

V = TypeVar("V")


class DeadlineQueue(Generic[V]):
    """Runs in the order of their deadlines, without sorting: time never goes back."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        # Not a dict: taking the oldest key of a dict again and again is O(n) each.
        self._runs: OrderedDict[CachedRun[V], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"<{len(self)} runs for {self.ttl_s} s each>"

    def add(self, run: CachedRun[V], now_s: float) -> None:
        """Start the time to live of a run that is in no queue."""
        run.deadlines = self
        run.since_s = now_s
        self._runs[run] = None

    def restart(self, run: CachedRun[V], now_s: float) -> None:
        """Restart the time to live of a run in this queue."""
        run.since_s = now_s
        self._runs.move_to_end(run)

    def remove(self, run: CachedRun[V]) -> None:
        """Remove a run from any position of the queue."""
        run.deadlines = None
        del self._runs[run]

    def head(self) -> CachedRun[V] | None:
        """Return the run that expires first; None if the queue is empty."""
        return next(iter(self._runs), None)

    def end_s(self, run: CachedRun[V]) -> float:
        """Return when the run's time to live ends unless it is restarted."""
        return run.since_s + self.ttl_s

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        assert all(run.deadlines is self for run in self._runs)
        since = [run.since_s for run in self._runs]
        assert since == sorted(since)
