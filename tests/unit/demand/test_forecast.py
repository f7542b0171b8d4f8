"""When each place of a topic will be read next, and by whom."""

from __future__ import annotations

from math import inf

import pytest

from sparkcache.demand import Consumer, Forecast, Plan
from sparkcache.demand.speed import HALF_LIFE
from sparkcache.model import Position
from tests.unit.demand.forecast_cases import (
    RUNS,
    TOPIC,
    WHOLE,
    extents,
    is_like_new,
    key,
    opened,
    read,
    reader,
    until,
)


def test_a_place_is_read_the_later_the_farther_it_is_from_its_reader() -> None:
    forecast = Forecast()
    partition_read = opened(forecast)
    read(forecast, partition_read, 0, 20)
    assert until(forecast, 19) == inf
    assert until(forecast, 20) == 0.0
    assert until(forecast, 30) == pytest.approx(10.0, rel=0.01)
    assert until(forecast, 80) == pytest.approx(60.0, rel=0.01)


def test_the_nearest_reader_before_a_place_counts() -> None:
    forecast = Forecast()
    first, second = opened(forecast), opened(forecast, who=reader(stage=1))
    for entry in range(40):
        read(forecast, first, entry, entry + 1)
        if entry >= 30:
            read(forecast, second, entry - 30, entry - 29)
    assert until(forecast, 45) < until(forecast, 12)
    assert until(forecast, 5) == inf
    assert until(forecast, 39) > until(forecast, 12)


def test_partitions_read_at_once_are_read_each_by_its_task() -> None:
    forecast = Forecast()
    tasks = [
        opened(forecast, first, first + 25, who=reader(partition=number))
        for number, first in enumerate((0, 25))
    ]
    for step in range(10):
        for task, first in zip(tasks, (0, 25), strict=True):
            read(forecast, task, first + step, first + step + 1)
    assert until(forecast, 5) == until(forecast, 30) == inf
    assert until(forecast, 15) == pytest.approx(until(forecast, 40))
    # What no task has opened comes when both are through.
    assert until(forecast, 50) == pytest.approx(30.0, rel=0.1)


def test_what_a_task_has_left_is_waited_for_the_longer_nobody_takes_it_up() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE,)))
    failed = opened(forecast, 0, 25, "p", who=reader(partition=0))
    read(forecast, failed, 0, 10)
    forecast.close(failed)
    assert until(forecast, 9) == inf
    assert until(forecast, 10) == 0.0
    other = opened(forecast, 25, 50, "p", who=reader(partition=1))
    read(forecast, other, 25, 45)
    assert until(forecast, 10) == 20.0
    again = opened(forecast, 0, 25, "p", who=reader(partition=0))
    assert until(forecast, 0) == 0.0
    read(forecast, again, 0, 25)
    forecast.close(again)
    assert until(forecast, 10) == inf


def test_a_task_that_is_run_twice_leaves_nothing_while_one_attempt_goes_on() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE,)))
    slow = opened(forecast, 0, 25, "p")
    fast = opened(forecast, 0, 25, "p")
    read(forecast, fast, 0, 20)
    forecast.close(slow)
    assert until(forecast, 10) == inf
    assert until(forecast, 22) < 10


@pytest.mark.parametrize("slow_is_first", [True, False])
def test_the_nearest_of_two_attempts_counts(slow_is_first: bool) -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE,)))
    attempts = [opened(forecast, 0, 25, "p") for _ in range(2)]
    slow, fast = attempts if slow_is_first else reversed(attempts)
    read(forecast, slow, 0, 5)
    read(forecast, fast, 0, 20)
    assert until(forecast, 22) == pytest.approx(4.0, rel=0.3)
    assert until(forecast, 10) == pytest.approx(10.0, rel=0.3)


def test_an_attempt_given_up_because_another_was_faster_leaves_nothing() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE,)))
    slow, fast = (opened(forecast, 0, 25, "p") for _ in range(2))
    read(forecast, slow, 0, 5)
    read(forecast, fast, 0, 25)
    forecast.close(fast)
    assert until(forecast, 10) < inf
    forecast.close(slow)
    assert until(forecast, 10) == inf
    forecast.check()


@pytest.mark.parametrize("is_closed", [False, True], ids=["hangs", "is gone"])
def test_a_consumer_that_died_is_expected_later_and_later(is_closed: bool) -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE,)))
    forecast.close(opened(forecast, 0, RUNS, who=reader(stage=9)))  # says what is where
    died = opened(forecast, 0, 25, "p")
    read(forecast, died, 0, 20)
    if is_closed:
        forecast.close(died)
    busy = opened(forecast, who=reader(stage=1, consumer=Consumer("b")))
    waits = []
    for _ in range(12):
        forecast._tick += 100 * HALF_LIFE
        forecast.advance(busy, key(50, "b"))
        waits.append((until(forecast, 22), until(forecast, 60)))
    assert waits == sorted(waits)
    forecast.end(["p"])
    assert until(forecast, 60) == inf


def test_a_consumer_that_has_not_begun_is_expected_from_its_start_on() -> None:
    forecast = Forecast()
    second = Consumer(TOPIC, Position(0, 50), Position(0, 80))
    forecast.begin(Plan("p", (WHOLE, second)))
    partition_read = opened(forecast, 0, RUNS, "p")
    read(forecast, partition_read, 0, 90)
    assert until(forecast, 20) == inf
    assert until(forecast, 50) == pytest.approx(45.0)
    assert until(forecast, 79) == pytest.approx(74.0, rel=0.01)
    assert until(forecast, 80) == inf


def test_consumers_of_a_plan_are_expected_as_often_as_they_have_begun() -> None:
    forecast = Forecast()
    other = Consumer("b")
    forecast.begin(Plan("p", (other,) * 3 + (WHOLE,) * 2))
    forecast.close(opened(forecast, 0, RUNS, who=reader(stage=9)))  # says what is where
    for stage in (0, 1):
        begun = opened(forecast, 0, RUNS, "p", who=reader(stage, consumer=other))
        read(forecast, begun, 0, 30)
        forecast.close(begun)
    # In 60 ticks two have begun, so the next in 20; two of the three are of this topic.
    assert until(forecast, 0) == pytest.approx(30.0)
    first = opened(forecast, 0, RUNS, "p")
    assert until(forecast, 0) == 0.0
    read(forecast, first, 0, 40)
    # In 100 ticks three have begun, so the next in 25; one of the two is of this topic.
    assert until(forecast, 0) == pytest.approx(50.0)


def test_an_unused_plan_is_expected_later_and_later() -> None:
    forecast = Forecast()
    forecast.begin(Plan("never", (WHOLE,)))
    busy = forecast.open(
        reader(stage=9, consumer=Consumer("b")),
        (),
        extents(0, RUNS),
        Position(0, 0),
        Position(0, RUNS),
    )
    waits = []
    for entry in range(RUNS):
        forecast.advance(busy, key(entry, "b"))
        waits.append(until(forecast, 0))
    assert waits == sorted(waits)
    assert waits[-1] >= RUNS


def test_a_plan_that_comes_late_finds_readers_under_way() -> None:
    forecast = Forecast()
    early = opened(forecast)
    read(forecast, early, 0, 50)
    assert forecast.expected(key(10)) == 0
    forecast.begin(Plan("late", (WHOLE, WHOLE)))
    assert forecast.expected(key(10)) == 2
    assert until(forecast, 10) < inf


def test_both_sides_of_a_self_join_count() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE, WHOLE)))
    for stage in (3, 4):
        side = opened(forecast, 0, 25, "p", who=reader(stage=stage))
        forecast.advance(side, key(0))
        assert forecast.mark_read(side, 0, key(0))
    assert forecast.expected(key(0)) == 0


def test_both_halves_of_a_union_with_itself_count() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE, WHOLE)))
    halves = [
        opened(forecast, 0, RUNS, "p", who=reader(stage=3, partition=n, part=0))
        for n in (0, 1)
    ]
    for half in halves:
        forecast.advance(half, key(0))
        assert forecast.mark_read(half, 0, key(0))
    assert halves[0].cursor is not halves[1].cursor
    assert forecast.expected(key(0)) == 0
    assert until(forecast, 0) == inf


def test_a_coalesced_task_reads_several_partitions_of_one_scan() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE,)))
    for part in range(4):
        one = opened(
            forecast, 25 * part, 25 * part + 25, "p", who=reader(partition=0, part=part)
        )
        for ordinal, entry in enumerate(range(25 * part, 25 * part + 25)):
            forecast.advance(one, key(entry))
            assert forecast.mark_read(one, ordinal, key(entry))
        forecast.close(one)
    assert all(forecast.expected(key(entry)) == 0 for entry in range(RUNS))


def test_a_token_counts_once_whatever_the_attempts() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE, WHOLE)))
    for _ in range(3):
        attempt = opened(forecast, 0, 25, "p")
        forecast.advance(attempt, key(0))
        forecast.mark_read(attempt, 0, key(0))
        forecast.close(attempt)
    assert forecast.expected(key(0)) == 1


def test_where_spark_reads_less_than_planned_nothing_outlives_the_plan() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE, WHOLE, WHOLE)))
    only = opened(forecast, 0, RUNS, "p")
    for entry in range(RUNS):
        forecast.advance(only, key(entry))
        forecast.mark_read(only, entry, key(entry))
    forecast.close(only)
    assert forecast.expected(key(50)) == 2
    forecast.end(["p"])
    assert forecast.expected(key(50)) == 0
    assert is_like_new(forecast)


def test_plans_of_one_topic_are_counted_separately() -> None:
    forecast = Forecast()
    forecast.begin(Plan("outer", (WHOLE, WHOLE)))
    forecast.begin(Plan("inner", (WHOLE,)))
    assert forecast.expected(key(0)) == 3
    both = opened(forecast, 0, RUNS, "outer", "inner")
    forecast.mark_read(both, 0, key(0))
    assert forecast.expected(key(0)) == 1
    forecast.close(both)
    forecast.end(["inner"])
    assert forecast.expected(key(0)) == 1
    forecast.end(["outer"])
    assert is_like_new(forecast)


def test_a_plan_that_is_over_does_not_come_back() -> None:
    forecast = Forecast()
    plan = Plan("p", (WHOLE,))
    forecast.begin(plan)
    forecast.end(["p"])
    assert not forecast.begin(plan)
    late = opened(forecast, 0, RUNS, "p")
    assert late.plan_ids == ()
    forecast.close(late)
    assert is_like_new(forecast)


def test_a_reader_that_nobody_planned_leaves_no_trace() -> None:
    forecast = Forecast()
    partition_read = opened(forecast, 0, 25)
    read(forecast, partition_read, 0, 5)
    assert until(forecast, 60) < inf
    forecast.close(partition_read)
    assert is_like_new(forecast)


def test_partitions_read_by_other_executors_are_not_waited_for_here() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE,)))
    opened(forecast, 0, 25, "p", who=reader(partition=0))
    opened(forecast, 50, 75, "p", who=reader(partition=2))
    assert until(forecast, 30) == inf
    assert until(forecast, 80) < inf
