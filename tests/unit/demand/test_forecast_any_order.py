"""Scans of a topic, attempts and plans, in any order."""

from __future__ import annotations

from math import inf

import hypothesis.strategies as st
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparkcache.demand import Consumer, Consumers, Forecast, PartitionRead, Plan
from sparkcache.demand.arrivals import soonest as first_of
from sparkcache.model import Position, ReadToken, RunKey
from tests.effort import tries
from tests.unit.demand.forecast_cases import (
    RUNS,
    TOPIC,
    WHOLE,
    is_like_new,
    key,
    opened,
    reader,
)


class ForecastMachine(RuleBasedStateMachine):
    """Scans of 4 partitions, attempts and plans, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.forecast = Forecast()
        self.plans: dict[str, Plan] = {}
        self.over: set[str] = set()
        self.open: list[tuple[PartitionRead, int, int]] = []
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
        partition_read = opened(
            self.forecast, 25 * part, 25 * part + 25, *"abc", who=who
        )
        assert {*partition_read.plan_ids} == {
            name
            for name, plan in self.plans.items()
            if any(found.topic == TOPIC for found in plan.consumers)
        }
        self.open.append((partition_read, 25 * part, 0))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_read=st.booleans())
    def advance(self, data: st.DataObject, is_read: bool) -> None:
        index = data.draw(st.integers(0, len(self.open) - 1))
        partition_read, first, ordinal = self.open[index]
        if ordinal == 25:
            return
        run = key(first + ordinal)
        self.forecast.advance(partition_read, run)
        assert partition_read.offset == (first + ordinal + 1) * 10.0
        if is_read:
            counted = self.forecast.mark_read(partition_read, ordinal, run)
            assert counted == self.count(partition_read, ordinal, run)
        self.open[index] = (partition_read, first, ordinal + 1)

    def count(self, partition_read: PartitionRead, ordinal: int, run: RunKey) -> bool:
        counted = False
        for name in partition_read.plan_ids:
            if name not in self.plans:
                continue
            if ordinal <= self.done.get((name, partition_read.token), -1):
                continue
            self.done[name, partition_read.token] = ordinal
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
        partition_read, _, _ = self.open.pop(index)
        self.forecast.close(partition_read)

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
    def the_soonest_of_all_readers_is_found(self) -> None:
        for offset in range(0, RUNS * 10, 35):
            found = self.forecast.ticks_until_read(TOPIC, offset)
            assert found == pytest.approx(soonest(self.forecast, offset))

    @invariant()
    def speeds_are_up_to_date(self) -> None:
        topic = self.forecast._topics.get(TOPIC)
        for cursor in () if topic is None else topic.scans.values():
            now = cursor._speed.at(self.forecast.tick) or 0.0
            found = cursor.speed(self.forecast.tick) or 0.0
            assert found == pytest.approx(now, rel=0.02)

    @invariant()
    def between_two_breakpoints_what_is_farther_is_read_later(self) -> None:
        breakpoints: list[float] = []
        while (
            at := self.forecast.next_breakpoint(TOPIC, [-1.0, *breakpoints][-1])
        ) < inf:
            breakpoints.append(at)
        for begin, end in zip(
            [0.0, *breakpoints], [*breakpoints, RUNS * 10.0], strict=True
        ):
            if end - begin < 1:
                continue
            places = (begin, (begin + end) / 2, end - 0.5)
            ticks = [self.forecast.ticks_until_read(TOPIC, at) for at in places]
            assert ticks == sorted(ticks)
            assert all(tick >= 0.0 for tick in ticks)

    def teardown(self) -> None:
        for partition_read, _, _ in self.open:
            self.forecast.close(partition_read)
        self.forecast.end([*"abc"])
        self.forecast.check()
        assert is_like_new(self.forecast)


def soonest(forecast: Forecast, offset: float) -> float:
    """When an offset is read next: the rule, asked of every reader."""
    topic, tick, waits = forecast._topics.get(TOPIC), forecast.tick, [inf]
    if topic is None:
        return inf
    for cursor in topic.scans.values():
        pace, parts = cursor.pace(tick), cursor._open
        before = sum(max(part.end - part.offset, 0) for part in parts)
        waits += [
            (offset - part.offset) * pace * len(parts)
            for part in parts
            if part.offset <= offset < part.end
        ]
        waits += [
            tick - part.closed_tick + (offset - part.offset) * pace
            for part in cursor._unfinished.values()
            if part.offset <= offset < part.end
        ]
        if cursor._frontier <= offset < cursor._end:
            waits.append((before + offset - cursor._frontier) * pace)
    begun = min(waits)
    for waiting in topic.waiting.values():
        for consumer, count in waiting.consumers.items():
            begin, end = topic._range_of(consumer)
            if begin <= offset < end:
                way = (offset - begin) * topic.pace.pace(tick)
                delay = waiting.arrivals.delay(tick, count)
                waits.append(first_of(begun, way, delay))
    return min(waits)


TestForecastInAnyOrder = ForecastMachine.TestCase
TestForecastInAnyOrder.settings = hypothesis_settings(
    max_examples=tries(25), stateful_step_count=40
)
