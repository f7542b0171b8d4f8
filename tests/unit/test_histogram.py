"""Histograms, and how they are added up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcache.histogram import COUNTS, TIMES_S, Histogram, Values

numbers = st.lists(st.integers(0, 2000))


def seen(values: list[int]) -> Histogram:
    counted = Values(COUNTS)
    for value in values:
        counted.add(value)
    return counted.histogram()


@given(numbers, numbers)
def test_histograms_add_up(some: list[int], others: list[int]) -> None:
    assert seen(some) + seen(others) == seen(some + others)
    assert seen(some + others) - seen(some) == seen(others)
    assert seen(some).count == len(some)
    assert seen(some).total == sum(some)


@given(st.lists(st.integers(0, 1000), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_the_next_bound(values: list[int], share: float) -> None:
    exact = sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]
    assert seen(values).quantile(share) == min(b for b in COUNTS if b >= exact)


def test_an_empty_histogram() -> None:
    empty = Histogram.empty(TIMES_S)
    assert (empty.count, empty.mean, empty.quantile(0.99)) == (0, 0.0, 0.0)


def test_a_bound_belongs_to_its_range() -> None:
    assert seen([0, 1, 1, 1000, 1001]).counts == (1, 2, *[0] * 9, 1, 1)
    assert seen([5000]).quantile(0.5) == 1000
    assert seen([1, 2, 3, 6]).mean == 3


def test_distributions_of_different_kinds_are_not_added() -> None:
    with pytest.raises(ValueError, match="different bounds"):
        Histogram.empty(COUNTS) + Histogram.empty(TIMES_S)
