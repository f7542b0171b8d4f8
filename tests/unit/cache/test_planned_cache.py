"""Runs and plans together: what each event does to both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkcache.cache import PlannedCache, Policy, Settings
from sparkcache.demand import (
    Consumer,
    ExtentOffset,
    PartitionRead,
    Plan,
    ReaderIdentity,
)
from sparkcache.model import Position, ReadToken, RunKey, Slot
from tests.unit.cache.cache_cases import PULSAR, key

TTL = replace(PULSAR, create_s=1e9, expected_s=1e9)
SETTINGS = Settings(4, 100, TTL, Policy.NEXT_READ)
RUNS = 8  # of a topic, of ten entries each


def opened(
    cache: PlannedCache[None], topic: str, *plan_ids: str, stage: int = 0
) -> PartitionRead:
    return cache.open(
        ReaderIdentity(ReadToken(stage, 0), "s", Consumer(topic), RUNS * 10.0),
        plan_ids,
        [ExtentOffset(0, 0, 10 * RUNS - 1, 0.0, 10 * RUNS)],
        Position(0, 0),
        Position(0, 10 * RUNS),
    )


def load(cache: PlannedCache[None], where: RunKey) -> bool:
    fits, _ = cache.reserve(where, 1, 0.0)
    if fits:
        cache.insert(where, None, slot=Slot(1), now_s=0.0)
    cache.check(0.0)
    return fits is not None


def read(
    cache: PlannedCache[None],
    partition_read: PartitionRead,
    topic: str,
    first: int,
    stop: int,
) -> list[int]:
    """Read runs; return which of them had to be loaded."""
    loaded = []
    for index in range(first, stop):
        where = key(index, topic=topic)
        if cache.take(partition_read, where, 0.0) is None:
            loaded.append(index)
            load(cache, where)
        cache.finish(partition_read, index, where, 0.0)
        cache.check(0.0)
    return loaded


def held(cache: PlannedCache[None]) -> set[RunKey]:
    return {run.key for run in cache.runs.runs()}


def test_a_run_goes_with_its_last_planned_read() -> None:
    cache: PlannedCache[None] = PlannedCache(SETTINGS)
    cache.begin([Plan("p", (Consumer("a"), Consumer("a")))], 0.0)
    first, second = (opened(cache, "a", "p", stage=n) for n in (0, 1))
    assert read(cache, first, "a", 0, 3) == [0, 1, 2]
    assert read(cache, second, "a", 0, 2) == []
    assert held(cache) == {key(2)}
    assert cache.runs.counters.evicted_by_last_read == 2


def test_what_is_taken_and_not_finished_with_stays_expected() -> None:
    cache: PlannedCache[None] = PlannedCache(SETTINGS)
    cache.begin([Plan("p", (Consumer("a"),))], 0.0)
    failed = opened(cache, "a", "p")
    cache.take(failed, key(0), 0.0)
    assert load(cache, key(0))
    cache.close(failed)
    again = opened(cache, "a", "p")
    assert read(cache, again, "a", 0, 1) == []
    assert held(cache) == set()


def test_the_end_of_a_plan_lets_go_of_what_nobody_else_waits_for() -> None:
    cache: PlannedCache[None] = PlannedCache(SETTINGS)
    both = Plan("both", (Consumer("a"), Consumer("b")))
    cache.begin([both, Plan("other", (Consumer("b"),))], 0.0)
    for topic in "ab":
        load(cache, key(0, topic=topic))
    assert [run.key for run in cache.end(["both"], 0.0)] == [key(0, topic="a")]
    assert cache.runs.counters.evicted_by_plan_end == 1
    assert held(cache) == {key(0, topic="b")}


def test_runs_outlive_their_last_read_if_they_are_configured_to() -> None:
    cache: PlannedCache[None] = PlannedCache(
        replace(SETTINGS, drop_after_last_read=False)
    )
    cache.begin([Plan("p", (Consumer("a"),))], 0.0)
    assert read(cache, opened(cache, "a", "p"), "a", 0, 2) == [0, 1]
    assert held(cache) == {key(0), key(1)}


def test_what_is_overdue_does_not_come_back_with_other_settings() -> None:
    """Its readers went on without it: nobody counted for it."""
    short = replace(SETTINGS, ttl=replace(TTL, expected_s=10.0), max_requeues=0)
    cache: PlannedCache[None] = PlannedCache(short)
    cache.begin([Plan("p", (Consumer("a"), Consumer("a")))], 0.0)
    partition_read = opened(cache, "a", "p")
    cache.take(partition_read, key(0), 0.0)
    assert load(cache, key(0))
    cache.finish(partition_read, 0, key(0), 10.0)
    removed = cache.runs.configure(replace(short, max_requeues=3), 10.0)
    assert [run.key for run in removed] == [key(0)]
    assert cache.runs.counters.evicted_by_ttl == 1
    cache.check(10.0)


def test_the_last_reader_takes_no_room_from_those_who_will_read_again() -> None:
    cache: PlannedCache[None] = PlannedCache(SETTINGS)
    cache.begin([Plan("p", (Consumer("a"), Consumer("a"), Consumer("b")))], 0.0)
    read(cache, opened(cache, "a", "p"), "a", 0, 4)
    last = opened(cache, "b", "p", stage=1)
    assert read(cache, last, "b", 0, 2) == [0, 1]
    assert held(cache) == {key(index) for index in range(4)}
    assert cache.runs.counters.declined == 2


def test_a_job_that_reads_once_does_not_wash_out_the_cache() -> None:
    cache: PlannedCache[None] = PlannedCache(SETTINGS)
    cache.begin([Plan("p", (Consumer("a"), Consumer("a")))], 0.0)
    read(cache, opened(cache, "a", "p"), "a", 0, 4)
    read(cache, opened(cache, "b", stage=1), "b", 0, RUNS)
    assert held(cache) == {key(index) for index in range(4)}


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(Plan("late", (Consumer("b"),)), id="a plan begins"),
        pytest.param(None, id="a plan ends"),
    ],
)
def test_a_decision_knows_of_plans_at_once(wanted: Plan | None) -> None:
    cache: PlannedCache[None] = PlannedCache(replace(SETTINGS, max_bytes=2))
    for topic in "ab":
        cache.close(opened(cache, topic))
    cache.begin([Plan("p", (Consumer("a"),)), Plan("q", (Consumer("a"),))], 0.0)
    load(cache, key(3))
    load(cache, key(5))
    assert not load(cache, key(0, topic="b"))
    if wanted is not None:
        cache.begin([wanted], 0.0)
        assert load(cache, key(0, topic="b"))
        assert held(cache) == {key(3), key(0, topic="b")}
    else:
        cache.end(["p", "q"], 0.0)
        assert load(cache, key(0, topic="b"))
