"""The runs held of one ledger, by position.

A sorted list of places answers for a range. Removing a run leaves its place there,
because closing the gap would cost O(n) for each of the oldest runs, which are the first
ones. When most places are empty the list is made anew, so adding and removing cost O(1)
over time as long as runs arrive in order.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from sparkcache.cache.cached_run import CachedRun

V = TypeVar("V")

_FEW = 16  # places that are not worth tidying


class LedgerRuns(Generic[V]):
    """Runs of a ledger. They may overlap, though those of one plan never do."""

    __slots__ = ("_longest", "_places", "_runs")

    def __init__(self) -> None:
        # (first, last) rather than Run: hashed and compared in C.
        self._runs: dict[tuple[int, int], CachedRun[V]] = {}
        self._places: list[tuple[int, int]] = []
        self._longest = 0

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"<{len(self)} runs, {len(self._places)} places>"

    def add(self, cached: CachedRun[V]) -> None:
        """Take in a run that is not here."""
        run = cached.key.run
        place = (run.first, run.last)
        self._runs[place] = cached
        self._longest = max(self._longest, run.last - run.first)
        places = self._places
        if not places or place > places[-1]:
            places.append(place)
            return
        index = bisect_left(places, place)
        if places[index] != place:
            places.insert(index, place)

    def remove(self, cached: CachedRun[V]) -> None:
        """Let go of a run that is here."""
        run = cached.key.run
        del self._runs[run.first, run.last]
        if len(self._places) > 2 * len(self._runs) + _FEW:
            self._places = [place for place in self._places if place in self._runs]

    def overlapping(self, first: int, last: int) -> list[CachedRun[V]]:
        """Find the runs with any of the entries first..last, ascending."""
        found = []
        places = self._places
        # No run that begins earlier than this reaches `first`.
        for index in range(bisect_left(places, (first - self._longest,)), len(places)):
            place = places[index]
            if place[0] > last:
                break
            if place[1] >= first and place in self._runs:
                found.append(self._runs[place])
        return found

    def all(self) -> list[CachedRun[V]]:
        """List every run, ascending."""
        return [self._runs[place] for place in self._places if place in self._runs]

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        assert self._places == sorted(set(self._places))
        assert self._runs.keys() <= set(self._places)
        assert len(self._places) <= 2 * len(self._runs) + _FEW
        for place, cached in self._runs.items():
            assert place == (cached.key.run.first, cached.key.run.last)
            assert place[1] - place[0] <= self._longest
