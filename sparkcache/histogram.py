"""Histograms: counts of values by range, which can be added up."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from operator import add, sub
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES_S = (
    *(factor / 1e6 for factor in (10, 20, 50, 100, 200, 500)),
    *(factor / 1e3 for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 3600.0),
)
"""Bounds for times in seconds, from 10 us to an hour."""

COUNTS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
"""Bounds for small numbers."""


@dataclass(frozen=True, slots=True, repr=False)
class Histogram:
    """Number of values in each range between bounds.

    Attributes:
        bounds: Upper bounds, ascending. A value is counted at the first bound that is
            not less than the value.
        counts: Number of values at each bound, then of values above the last bound.
        total: Sum of all values.

    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Histogram:
        """Return a histogram without values."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def __repr__(self) -> str:
        return f"<{self.count} values, mean {self.mean:g}>"

    def __add__(self, other: Histogram) -> Histogram:
        return self._with(other, add)

    def __sub__(self, earlier: Histogram) -> Histogram:
        return self._with(earlier, sub)

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Mean of the values; 0 if there are none."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the least bound that at least this share of the values is within.

        For values above the last bound that bound is returned, without values 0.
        """
        wanted, seen = share * self.count, 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound if seen else 0.0
        return self.bounds[-1]

    def _with(
        self, other: Histogram, combine: Callable[[float, float], float]
    ) -> Histogram:
        if self.bounds != other.bounds:
            raise ValueError("histograms with different bounds cannot be combined")
        counts = map(combine, self.counts, other.counts)
        return Histogram(
            self.bounds, tuple(map(int, counts)), combine(self.total, other.total)
        )


class Values:
    """Counts values one by one; its `histogram` is frozen."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        assert all(low < high for low, high in pairwise(bounds))
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def __repr__(self) -> str:
        return f"Values({sum(self._counts)} of them)"

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def histogram(self) -> Histogram:
        """Return the distribution of the values counted so far."""
        return Histogram(self._bounds, tuple(self._counts), self._total)
