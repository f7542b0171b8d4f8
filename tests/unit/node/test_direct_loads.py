"""Runs that a task is to load itself, and what the node makes of its reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkcache.homes import Place
from sparkcache.metrics import Metrics
from sparkcache.node.messages import LoadDirectly, LoadedDirectly, Served, Streamed
from tests.unit.node.node_world import (
    CONFIG,
    RUNS,
    SIZE,
    STORED,
    Reader,
    World,
    key,
    plan,
    run_slice,
)

SMALL = replace(CONFIG, max_bytes=10 * SIZE, run_bytes=SIZE)
LARGE = replace(CONFIG, run_bytes=SIZE)


def read_all(world: World, reader: Reader) -> None:
    while not reader.is_done:
        reader.ask()
        world.settle()
    reader.finish()
    world.settle()


def first_answer(world: World, reader: Reader) -> object:
    reader.ask()
    world.settle()
    return reader.answers[0]


def test_the_last_planned_reader_loads_itself() -> None:
    world = World(LARGE)
    world.loader()
    reader = world.reader(run_slice(0, 0, 9), plans=(plan("p", None),), can_load=True)
    read_all(world, reader)
    assert len(reader.loaded) == 9
    assert not world.loads
    assert not world.held()
    metrics = world.service.metrics()
    assert (metrics.requests, metrics.misses, metrics.direct) == (9, 9, 9)
    assert metrics.requested_bytes == 9 * STORED


def test_a_run_that_another_planned_reader_comes_to_is_loaded_and_held() -> None:
    world = World(LARGE)
    world.loader()
    plans = (plan("p", None, None),)
    reader = world.reader(run_slice(0, 0, 9), plans=plans, can_load=True)
    assert isinstance(first_answer(world, reader), Served)
    read_all(world, reader)
    assert world.held() == set(range(9))


def test_of_three_in_turns_a_third_is_held_and_the_rest_loaded_directly() -> None:
    world = World(replace(LARGE, max_bytes=30 * SIZE, read_ahead_bytes=2 * SIZE))
    world.loader()
    plans = (plan("p", None, None, None),)
    counts: list[Metrics] = []
    for _ in range(3):
        for part in range(10):
            whole = run_slice(part, 0, 9, runs=9)
            reader = world.reader(
                replace(whole, topic_offset=part * 9 * STORED),
                stage=len(counts),
                part=part,
                plans=plans,
                can_load=True,
            )
            read_all(world, reader)
        counts.append(world.service.metrics())
    first, second, third = counts
    assert second.direct - first.direct > 50
    assert third.hits - second.hits > 20
    assert third.requests == 270
    assert third.peak_bytes <= 30 * SIZE


def test_an_unplanned_scan_that_is_larger_than_the_cache_is_loaded_directly() -> None:
    world = World(SMALL)
    world.loader()
    reader = world.reader(run_slice(0, 0, 40), can_load=True)
    assert isinstance(first_answer(world, reader), LoadDirectly)
    read_all(world, reader)
    assert not world.held()


def test_an_unplanned_scan_that_fits_is_held_and_found_again() -> None:
    world = World(replace(LARGE, max_bytes=2 * RUNS * STORED))
    world.loader()
    read_all(world, world.reader(run_slice(0, 0, 9), can_load=True))
    assert world.service.metrics().direct == 0
    again = world.reader(run_slice(0, 0, 9), can_load=True)
    read_all(world, again)
    assert all(isinstance(answer, Served) for answer in again.answers)
    assert world.service.metrics().hits == 9


def test_a_scan_of_which_other_nodes_read_most_is_not_taken_for_large() -> None:
    world = World(replace(LARGE, max_bytes=RUNS * STORED // 4))
    world.loader()
    reader = world.reader(run_slice(0, 0, 9), part=7, can_load=True)
    assert isinstance(first_answer(world, reader), Served)


def test_two_unplanned_scans_at_a_time_share_what_they_load() -> None:
    world = World(SMALL)
    world.loader()
    ahead = world.reader(run_slice(0, 0, 40), can_load=True)
    behind = world.reader(run_slice(0, 0, 40), can_load=True)
    assert isinstance(first_answer(world, ahead), Served | Streamed)
    assert isinstance(first_answer(world, behind), Served | Streamed)
    assert len(world.loads) == 1


def test_a_reader_that_others_join_asks_again_before_their_runs() -> None:
    world = World(SMALL)
    world.loader()
    other = world.reader(run_slice(0, 5, 9), can_load=False)
    reader = world.reader(run_slice(0, 0, 40), place=Place.AWAY, can_load=True)
    reader.ask()
    assert reader.loaded == [(0, 0)]
    assert list(reader.assigned) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    other.leave()
    read_all(world, reader)
    assert len(reader.loaded) == 40


def test_a_task_away_from_home_loads_what_its_node_does_not_hold() -> None:
    world = World(LARGE)
    world.loader()
    reader = world.reader(run_slice(0, 0, 9), place=Place.AWAY, can_load=True)
    read_all(world, reader)
    metrics = world.service.metrics()
    assert (metrics.direct, metrics.away_bytes) == (9, 9 * STORED)


def test_small_slices_come_several_in_a_message() -> None:
    world = World(LARGE)
    world.loader()
    slices = [run_slice(number, 0, 1, runs=1) for number in range(20)]
    reader = world.reader(*slices, plans=(plan("p", None),), can_load=True)
    read_all(world, reader)
    assigned = [
        message for message, _ in reader.sent if isinstance(message, LoadDirectly)
    ]
    assert [len(message.loads) for message in assigned] == [16, 4]


def test_a_load_begins_where_an_earlier_one_found_the_run() -> None:
    world = World(SMALL)
    read_all(world, world.reader(run_slice(0, 0, 9), can_load=True))
    reader = world.reader(run_slice(0, 6, 9), can_load=True)
    answer = reader.ask()
    assert isinstance(answer, LoadDirectly)
    assert (answer.loads[0].begin, answer.loads[0].offset) == (6, 6 * STORED)


def test_what_a_task_spends_is_counted_for_its_topic() -> None:
    world = World(SMALL)
    reader = world.reader(run_slice(0, 0, 9), can_load=True)
    reader.ask()
    reader.report(gets=2, received_bytes=77)
    metrics = world.service.metrics()
    assert (metrics.gets, metrics.received_bytes) == (2, 77)


def test_a_task_that_dies_has_read_what_it_reported() -> None:
    world = World(LARGE)
    planned = plan("p", None)
    reader = world.reader(run_slice(0, 0, 9), plans=(planned,), can_load=True)
    for _ in range(3):
        reader.ask()
    reader.report()
    reader.leave()
    world.service.check()
    assert world.service.metrics().direct == 3
    again = world.reader(run_slice(0, 0, 9), stage=0, plans=(planned,), can_load=True)
    read_all(world, again)
    assert len(again.loaded) == 9


@pytest.mark.parametrize("runs", [10, 100], ids=["one too many", "many too many"])
def test_a_task_that_reports_other_runs_is_disconnected(runs: int) -> None:
    world = World(SMALL)
    reader = world.reader(run_slice(0, 0, 9), can_load=True)
    reader.ask()
    reader.send_node(LoadedDirectly((SIZE,) * runs, (0,) * runs))
    assert reader.is_closed


def test_a_task_may_ask_for_a_run_that_it_was_to_load_itself() -> None:
    world = World(SMALL)
    reader = world.reader(run_slice(0, 0, 9), can_load=True)
    reader.ask()
    reader.assigned.clear()
    assert isinstance(reader.ask(), LoadDirectly)
    assert reader.loaded == [(0, 0), (0, 1)]
    assert world.service.metrics().requests == 2


def test_a_reader_that_cannot_load_is_served() -> None:
    world = World(SMALL)
    world.loader()
    reader = world.reader(run_slice(0, 0, 40))
    assert isinstance(first_answer(world, reader), Served)
    assert world.held() >= {key(0).run.first}
