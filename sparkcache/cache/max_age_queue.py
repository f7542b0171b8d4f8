"""The maximum age of runs, which neither reads nor expected reads extend."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from sparkcache.cache.cached_run import CachedRun

V = TypeVar("V")


class MaxAgeQueue(Generic[V]):
    """All runs in the order of insertion, so the first run reaches the limit first.

    The order is maintained even without a maximum age, because one that is set later
    applies to the runs already kept.
    """

    def __init__(self, max_life_s: float) -> None:
        self.max_life_s = max_life_s
        # Not a dict: taking the oldest key of a dict again and again is O(n) each.
        self._runs: OrderedDict[CachedRun[V], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"<{len(self)} runs for {self.max_life_s} s at most>"

    def begin(self, run: CachedRun[V], now_s: float) -> None:
        """Start or restart the age of a run."""
        run.inserted_s = now_s
        self._runs[run] = None
        self._runs.move_to_end(run)

    def remove(self, run: CachedRun[V]) -> None:
        """Remove a run from any position of the queue."""
        del self._runs[run]

    def head(self) -> CachedRun[V] | None:
        """Return the oldest run; None if the queue is empty."""
        return next(iter(self._runs), None)

    def end_s(self, run: CachedRun[V]) -> float:
        """Return when the run reaches the maximum age."""
        return run.inserted_s + self.max_life_s

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        inserted = [run.inserted_s for run in self._runs]
        assert inserted == sorted(inserted)
        assert all(run.inserted_s <= run.since_s for run in self._runs)
