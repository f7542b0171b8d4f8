"""When each place of a topic will be read next, and by whom."""

from __future__ import annotations

from math import inf

import hypothesis.strategies as st
import pytest
from effort import tries
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from sparkcache.consumers import (
    Consumer,
    Consumers,
    Forecast,
    Located,
    Plan,
    Reader,
    Reading,
)
from sparkcache.consumers.axis import Axis
from sparkcache.consumers.speed import HALF_LIFE, Speed
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey

TOPIC = "a"
RUNS = 100  # of one entry and 10 stored bytes each, in extents of 25
WHOLE = Consumer(TOPIC)


def key(entry: int, topic: str = TOPIC) -> RunKey:
    found = Ledger("test", topic, 0, ObjectId(f"mem://{topic}", 1, "v1"))
    return RunKey(found, Run(entry, entry))


def extents(first: int, stop: int, shift: float = 0.0) -> list[Located]:
    """The extents that have any of the entries first..stop-1."""
    return [
        Located(0, at, at + 24, at * 10.0 + shift, 250)
        for at in range(first // 25 * 25, stop, 25)
    ]


def reader(
    stage: int = 0,
    partition: int = 0,
    part: int | None = None,
    consumer: Consumer = WHOLE,
    scan: str = "s",
) -> Reader:
    part = partition if part is None else part
    return Reader(ReadToken(stage, partition, part), scan, consumer, RUNS * 10.0)


def opened(
    forecast: Forecast,
    first: int = 0,
    stop: int = RUNS,
    *plan_ids: str,
    who: Reader | None = None,
) -> Reading:
    return forecast.open(
        who or reader(),
        plan_ids,
        extents(first, stop),
        Position(0, first),
        Position(0, stop),
    )


def read(forecast: Forecast, reading: Reading, first: int, stop: int) -> None:
    for entry in range(first, stop):
        forecast.advance(reading, key(entry))


def until(forecast: Forecast, entry: int) -> float:
    return forecast.ticks_until_read(TOPIC, forecast.place(key(entry)))


def is_like_new(forecast: Forecast) -> bool:
    """Whether it knows of no reader; where topics lie is remembered."""
    return not forecast._topics and not forecast._expected._active


# Where


def test_entries_of_an_extent_are_taken_to_be_of_one_size() -> None:
    axis = Axis()
    axis.learn([Located(3, 10, 19, 500.0, 40)])
    assert axis.at(Position(3, 10)) == 500.0
    assert axis.at(Position(3, 15)) == 520.0
    assert axis.at(Position(3, 20)) == 540.0


@pytest.mark.parametrize(
    ("ledger", "entry", "place"),
    [
        pytest.param(0, 0, 0.0, id="before all that is known"),
        pytest.param(3, 90, 540.0, id="after the end of an extent"),
        pytest.param(4, 0, 540.0, id="in a ledger between those known"),
        pytest.param(9, 0, 700.0, id="after all that is known"),
    ],
)
def test_what_is_unknown_lies_where_its_predecessor_ends(
    ledger: int, entry: int, place: float
) -> None:
    axis = Axis()
    axis.learn([Located(5, 0, 9, 600.0, 100), Located(3, 10, 19, 500.0, 40)])
    assert axis.at(Position(ledger, entry)) == place


def test_a_scan_planned_after_ledgers_were_trimmed_counts_from_elsewhere() -> None:
    axis = Axis()
    axis.learn([Located(1, 0, 9, 0.0, 100), Located(2, 0, 9, 100.0, 100)])
    axis.learn([Located(2, 0, 9, 0.0, 100), Located(3, 0, 9, 100.0, 100)])
    assert axis.at(Position(2, 0)) == 100.0
    assert axis.at(Position(3, 0)) == 200.0


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        pytest.param([[2], [3], [4]], 300.0, id="one partition for each ledger"),
        pytest.param([[2, 3], [4]], 300.0, id="the last partition has only new ones"),
        pytest.param([[2, 3, 4]], 300.0, id="one partition"),
        pytest.param([[3], [4], [2]], 300.0, id="out of order"),
    ],
)
def test_all_partitions_of_a_scan_count_from_the_same_place(
    parts: list[list[int]], place: float
) -> None:
    forecast = Forecast()
    for ledger in (1, 2, 3):
        open_ledgers(forecast, [ledger], of=(1, 2, 3))
    for part in parts:
        open_ledgers(forecast, part, of=(2, 3, 4), stage=1)
    assert forecast.place(in_ledger(4, 0)) == place


def test_a_scan_planned_after_ledgers_were_trimmed_reads_to_its_end() -> None:
    forecast = Forecast()
    for ledger in (1, 2, 3):
        forecast.close(open_ledgers(forecast, [ledger], of=(1, 2, 3)))
    open_ledgers(forecast, [2], of=(2, 3), stage=1)
    assert until_in(forecast, 3, 9) < inf


def test_a_scan_planned_before_ledgers_were_trimmed_may_begin_later() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE, WHOLE, WHOLE)))
    late = open_ledgers(forecast, [2], of=(2, 3), plan_ids=("p",))
    early = open_ledgers(forecast, [1, 2], of=(1, 2, 3), stage=1, plan_ids=("p",))
    forecast.advance(early, in_ledger(1, 9))
    assert forecast.place(in_ledger(1, 0)) < forecast.place(in_ledger(2, 0))
    assert until_in(forecast, 1, 5) < inf  # the third consumer has not begun
    forecast.close(late)
    forecast.check()


def in_ledger(ledger: int, entry: int) -> RunKey:
    """A run of a ledger of ten entries and 100 stored bytes."""
    found = Ledger("test", TOPIC, ledger, ObjectId(f"mem://{ledger}", 1, "v1"))
    return RunKey(found, Run(entry, entry))


def until_in(forecast: Forecast, ledger: int, entry: int) -> float:
    return forecast.ticks_until_read(TOPIC, forecast.place(in_ledger(ledger, entry)))


def open_ledgers(
    forecast: Forecast,
    part: list[int],
    of: tuple[int, ...],
    stage: int = 0,
    plan_ids: tuple[str, ...] = (),
) -> Reading:
    """Open some of the ledgers that a scan found when it was planned."""
    number = of.index(part[0])
    return forecast.open(
        Reader(ReadToken(stage, number, number), f"{of}", WHOLE, 100.0 * len(of)),
        plan_ids,
        [Located(ledger, 0, 9, 100.0 * of.index(ledger), 100) for ledger in part],
        Position(part[0], 0),
        Position(part[-1], 10),
    )


# How fast


def test_speed_is_a_share_in_what_goes_on() -> None:
    often, seldom = Speed(0), Speed(0)
    for tick in range(1, 5 * HALF_LIFE):
        often.add(100.0, tick)
        if tick % 10 == 0:
            seldom.add(100.0, tick)
    assert often.at(tick) == pytest.approx(100.0, rel=0.05)
    assert seldom.at(tick) == pytest.approx(10.0, rel=0.05)


def test_who_stands_still_is_thought_slower_and_slower() -> None:
    speed = Speed(0)
    assert speed.at(0) is None
    for tick in range(1, HALF_LIFE):
        speed.add(100.0, tick)
    before = speed.at(tick)
    assert before is not None
    later = speed.at(tick + 3 * HALF_LIFE)
    assert later is not None
    assert later < before / 4
    assert speed.at(tick + 10_000 * HALF_LIFE) is None


# When


def test_a_place_is_read_the_later_the_farther_it_is_from_its_reader() -> None:
    forecast = Forecast()
    reading = opened(forecast)
    read(forecast, reading, 0, 20)
    assert until(forecast, 19) == inf
    assert until(forecast, 20) == 0.0
    assert until(forecast, 30) == pytest.approx(10.0, rel=0.01)
    assert until(forecast, 80) == pytest.approx(60.0, rel=0.01)


def test_the_nearest_reader_behind_a_place_counts() -> None:
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
def test_who_of_two_attempts_is_nearest_counts(slow_is_first: bool) -> None:
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
    forecast.close(
        opened(forecast, 0, RUNS, who=reader(stage=9))
    )  # tells what is where
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
    reading = opened(forecast, 0, RUNS, "p")
    read(forecast, reading, 0, 90)
    assert until(forecast, 20) == inf
    assert until(forecast, 50) == pytest.approx(90.0, rel=0.01)
    assert until(forecast, 79) == pytest.approx(119.0, rel=0.01)
    assert until(forecast, 80) == inf


def test_a_plan_that_is_never_carried_out_drifts_away() -> None:
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


def test_plans_of_one_topic_are_counted_each_for_itself() -> None:
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
    reading = opened(forecast, 0, 25)
    read(forecast, reading, 0, 5)
    assert until(forecast, 60) < inf
    forecast.close(reading)
    assert is_like_new(forecast)


def test_partitions_read_by_other_executors_are_not_waited_for_here() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE,)))
    opened(forecast, 0, 25, "p", who=reader(partition=0))
    opened(forecast, 50, 75, "p", who=reader(partition=2))
    assert until(forecast, 30) == inf
    assert until(forecast, 80) < inf


# Any order


class ForecastMachine(RuleBasedStateMachine):
    """Scans of 4 partitions, attempts and plans, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.forecast = Forecast()
        self.plans: dict[str, Plan] = {}
        self.over: set[str] = set()
        self.open: list[tuple[Reading, int, int]] = []
        self.done: dict[tuple[str, ReadToken], int] = {}
        self.reads: dict[tuple[str, RunKey], int] = {}

    @rule(
        name=st.sampled_from("abc"),
        consumers=st.lists(
            st.sampled_from(
                [
                    WHOLE,
                    Consumer(TOPIC, Position(0, 30)),
                    Consumer(TOPIC, None, Position(0, 70)),
                    Consumer("b"),
                ]
            ),
            min_size=1,
            max_size=3,
        ),
    )
    def begin(self, name: str, consumers: list[Consumer]) -> None:
        plan = Plan(name, tuple(consumers))
        news = name not in self.plans and name not in self.over
        assert self.forecast.begin(plan) == news
        if news:
            self.plans[name] = plan

    @rule(names=st.lists(st.sampled_from("abc"), max_size=2))
    def end(self, names: list[str]) -> None:
        ended = self.forecast.end(names)
        assert {plan.id for plan in ended} == {*names} & {*self.plans}
        for name in names:
            self.over.add(name)
            self.plans.pop(name, None)

    @rule(
        stage=st.integers(0, 2),
        part=st.integers(0, 3),
        shift=st.sampled_from([0, 0, 4]),
        consumer=st.sampled_from([WHOLE, Consumer(TOPIC, Position(0, 30))]),
    )
    def open_part(self, stage: int, part: int, shift: int, consumer: Consumer) -> None:
        who = reader(stage, part + shift, part, consumer)
        reading = opened(self.forecast, 25 * part, 25 * part + 25, *"abc", who=who)
        assert {*reading.plan_ids} == {
            name
            for name, plan in self.plans.items()
            if any(found.topic == TOPIC for found in plan.consumers)
        }
        self.open.append((reading, 25 * part, 0))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_read=st.booleans())
    def advance(self, data: st.DataObject, is_read: bool) -> None:
        index = data.draw(st.integers(0, len(self.open) - 1))
        reading, first, ordinal = self.open[index]
        if ordinal == 25:
            return
        run = key(first + ordinal)
        self.forecast.advance(reading, run)
        assert reading.at == (first + ordinal + 1) * 10.0
        if is_read:
            counted = self.forecast.mark_read(reading, ordinal, run)
            assert counted == self.count(reading, ordinal, run)
        self.open[index] = (reading, first, ordinal + 1)

    def count(self, reading: Reading, ordinal: int, run: RunKey) -> bool:
        counted = False
        for name in reading.plan_ids:
            if name not in self.plans:
                continue
            if ordinal <= self.done.get((name, reading.token), -1):
                continue
            self.done[name, reading.token] = ordinal
            if self.reads.get((name, run), 0) < Consumers(
                self.plans[name].consumers
            ).reads(run):
                self.reads[name, run] = self.reads.get((name, run), 0) + 1
                counted = True
        return counted

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.open) - 1))
        reading, _, _ = self.open.pop(index)
        self.forecast.close(reading)

    @invariant()
    def holds(self) -> None:
        self.forecast.check()
        for entry in (0, 33, 69, 70, 99):
            assert self.forecast.expected(key(entry)) == sum(
                Consumers(plan.consumers).reads(key(entry))
                - self.reads.get((name, key(entry)), 0)
                for name, plan in self.plans.items()
            )

    @invariant()
    def between_two_cuts_what_is_farther_is_read_later(self) -> None:
        cuts = self.forecast.cuts(TOPIC)
        assert cuts == sorted(cuts)
        for begin, end in zip([0.0, *cuts], [*cuts, RUNS * 10.0], strict=True):
            if end - begin < 1:
                continue
            places = (begin, (begin + end) / 2, end - 0.5)
            ticks = [self.forecast.ticks_until_read(TOPIC, at) for at in places]
            assert ticks == sorted(ticks)
            assert all(tick >= 0.0 for tick in ticks)

    def teardown(self) -> None:
        for reading, _, _ in self.open:
            self.forecast.close(reading)
        self.forecast.end([*"abc"])
        self.forecast.check()
        assert is_like_new(self.forecast)


TestForecastInAnyOrder = ForecastMachine.TestCase
TestForecastInAnyOrder.settings = hypothesis_settings(
    max_examples=tries(25), stateful_step_count=40
)
