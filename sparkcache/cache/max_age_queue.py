"""How long a run may live in all, whatever is read of it or expected."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from sparkcache.cache.cached_run import CachedRun

V = TypeVar("V")


class MaxAgeQueue(Generic[V]):
    """Every run in the order of insertion, so that the first is the first to end.

    Kept in order while there is no cap as well: one that is set later holds for what
    is there by then.
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
        """Begin the life of a run: its first, or a fresh one."""
        run.inserted_s = now_s
        self._runs[run] = None
        self._runs.move_to_end(run)

    def remove(self, run: CachedRun[V]) -> None:
        """Take out a run, wherever in the order it is."""
        del self._runs[run]

    def head(self) -> CachedRun[V] | None:
        """Find the run that ends first."""
        return next(iter(self._runs), None)

    def end_s(self, run: CachedRun[V]) -> float:
        """When the run ends, if it is not removed before."""
        return run.inserted_s + self.max_life_s

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        inserted = [run.inserted_s for run in self._runs]
        assert inserted == sorted(inserted)
        assert all(run.inserted_s <= run.since_s for run in self._runs)
