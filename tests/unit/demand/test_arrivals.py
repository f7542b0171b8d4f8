"""When consumers begin that have not begun."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcache.demand.arrivals import Arrivals, soonest

TICKS = st.floats(0.0, 1e6)


def arrivals(waiting: int, *begun: int) -> Arrivals:
    found = Arrivals(0)
    found.waiting = waiting + len(begun)
    for tick in begun:
        found.begin(tick)
    found.check()
    return found


@pytest.mark.parametrize(
    ("found", "tick", "count", "delay"),
    [
        pytest.param(arrivals(1), 0, 1, 0.0, id="at once, when the plan begins"),
        pytest.param(arrivals(1), 70, 1, 70.0, id="alone, after as long again"),
        pytest.param(arrivals(1, 10, 20, 30), 40, 1, 10.0, id="as often as before"),
        pytest.param(arrivals(4, 10, 20, 30), 40, 4, 10.0, id="one of four, as often"),
        pytest.param(arrivals(4, 10, 20, 30), 40, 1, 40.0, id="this one of the four"),
        pytest.param(arrivals(1, 10, 20, 30), 130, 1, 50.0, id="overdue: later"),
        pytest.param(arrivals(1, 30), 30, 1, 15.0, id="memory of one beginning"),
    ],
)
def test_the_delay(found: Arrivals, tick: int, count: int, delay: float) -> None:
    assert found.delay(tick, count) == pytest.approx(delay)


def test_who_does_not_come_is_expected_later_and_later() -> None:
    found = arrivals(3, 10, 20)
    delays = [found.delay(tick) for tick in range(20, 2000)]
    assert delays == sorted(delays)


@given(other=TICKS, way=TICKS, delay=TICKS)
def test_the_first_of_two_comes_no_later_than_either(
    other: float, way: float, delay: float
) -> None:
    first = soonest(other, way, delay)
    assert first <= other or first == pytest.approx(other)
    assert first <= way + delay
    assert first >= min(other, way)
    assert soonest(inf, way, delay) == way + delay


@given(others=st.tuples(TICKS, TICKS), ways=st.tuples(TICKS, TICKS), delay=TICKS)
def test_who_is_farther_comes_no_sooner(
    others: tuple[float, float], ways: tuple[float, float], delay: float
) -> None:
    near = soonest(min(others), min(ways), delay)
    far = soonest(max(others), max(ways), delay)
    assert near <= far or near == pytest.approx(far)


def test_the_first_of_two_on_average() -> None:
    # Half of the time it has begun after 69.3 ticks, if it takes 100 on average.
    assert soonest(69.3147, 0.0, 100.0) == pytest.approx(50.0, rel=1e-4)
