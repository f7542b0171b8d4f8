"""What a node serves: each run loaded once, from memory or through pipes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkcache.node.messages import Clear, Served, Streamed
from tests.unit.node.node_world import (
    CONFIG,
    RUNS,
    SIZE,
    TOPIC,
    World,
    knowing,
    run_slice,
)


def test_a_run_is_loaded_once_and_then_served_at_once() -> None:
    world = World()
    world.loader()
    first, second = world.of(0, 1), world.of(0, 1)
    assert first.ask() is None
    world.settle()
    assert first.answers == [Served(SIZE)]
    assert second.ask() == Served(SIZE)
    assert first.mapped == second.mapped
    metrics = world.service.metrics()
    assert (metrics.requests, metrics.hits, metrics.misses) == (2, 1, 1)
    assert (metrics.loads, metrics.inserts, metrics.served_bytes) == (1, 1, 2 * SIZE)


def test_64_tasks_that_want_the_same_cause_one_load() -> None:
    world = World()
    world.loader()
    world.loader()
    readers = [world.of(0, 10) for _ in range(64)]
    for reader in readers:
        assert reader.ask() is None
    while not all(reader.is_done for reader in readers):
        world.settle()
        for reader in readers:
            if reader.wants_more:
                reader.ask()
    assert world.loaded() == [(0, RUNS - 1)]
    assert world.decoded == [*range(10), 10]  # and then nobody wants any more
    metrics = world.service.metrics()
    assert (metrics.requests, metrics.hits, metrics.prefetch_hits) == (640, 567, 9)
    assert (metrics.waits, metrics.misses) == (63, 1)
    assert (metrics.reads, metrics.saved_gets) == (64, 63)
    assert metrics.inserts == 10


def test_loads_that_overlap_leave_a_gap_for_one_more() -> None:
    world = knowing()
    world.loader()
    first, second = world.of(10, 71), world.of(80, 100)
    first.ask()
    second.ask()
    for loader in world.loaders:
        loader.step()
    world.loader()
    third = world.of(10, 100)
    world.read(third)
    assert sorted(world.loaded()) == [(10, 70), (71, 79), (80, 99)]
    assert third.answers == [Served(SIZE)] * 90


def test_what_is_held_is_not_loaded() -> None:
    world = knowing(5, 15, 75, 76, 78)
    world.read(world.of(0, 100))
    assert world.loaded() == [(0, 4), (6, 14), (16, 74), (77, 77), (79, 99)]
    assert world.decoded == [n for n in range(100) if n not in {5, 15, 75, 76, 78}]


def test_what_is_held_is_passed_over_where_offsets_are_not_known() -> None:
    world = World()
    world.loader()
    world.read(world.of(0, 3))
    world.loads.clear()
    world.decoded.clear()
    world.read(world.of(0, 6))
    assert world.loaded() == [(3, RUNS - 1)]
    assert world.decoded == [3, 4, 5, 6]


def test_runs_on_the_way_are_kept_where_there_is_room() -> None:
    world = World()
    world.loader()
    reader = world.of(3, 4)
    reader.ask()
    world.settle()
    assert reader.answers == [Served(SIZE)]
    assert world.held() == {0, 1, 2, 3}


def test_runs_on_the_way_that_nobody_wants_evict_nothing() -> None:
    world = World(replace(CONFIG, max_bytes=3 * SIZE, trigger=1, watermark=1))
    world.loader()
    for number in (1, 2, 3):
        world.reader(run_slice(number, 0, 1)).ask()
    world.settle()
    for reader in list(world.readers):
        reader.leave()
    late = world.of(3, 4)
    late.ask()
    world.settle()
    assert late.answers == [Served(SIZE)]
    assert world.service.metrics().evicted_by_size == 1


def test_a_load_goes_on_for_those_who_were_served_from_memory() -> None:
    """They never waited for it, but they read what it loads."""
    world = World(replace(CONFIG, read_ahead_bytes=SIZE))
    world.loader()
    first = world.of(0, 5)
    first.ask()
    world.settle()
    second = world.of(0, 50)
    assert second.ask() == Served(SIZE)
    first.leave()
    world.read(second)
    assert world.loaded() == [(0, RUNS - 1)]


def test_a_task_that_comes_between_grant_and_delivery_waits_for_it() -> None:
    world = World()
    loader = world.loader()
    first = world.of(0, 1)
    first.ask()
    loader.step()  # the load begins
    loader.step()  # a run is decoded, and granted
    assert loader.is_asking
    second = world.of(0, 1)
    assert second.ask() is None
    world.settle()
    assert first.answers == second.answers == [Served(SIZE)]
    assert world.decoded == [0, 1]


def test_without_room_runs_come_through_pipes() -> None:
    world = World(replace(CONFIG, max_bytes=0))
    world.loader()
    world.loader()
    first, second = world.of(0, 3), world.of(0, 3)
    for _ in range(3):
        first.ask()
        second.ask()
        world.settle()
    assert first.answers == second.answers == [Streamed()] * 3
    assert world.open_fds == set()
    metrics = world.service.metrics()
    assert (metrics.streamed, metrics.inserts, metrics.peak_bytes) == (6, 0, 0)
    assert metrics.served_bytes == 6 * SIZE


def test_mapped_runs_are_not_evicted_for_room() -> None:
    world = World(replace(CONFIG, max_bytes=2 * SIZE, trigger=1, watermark=1))
    world.loader()
    first, second = world.of(0, 1), world.of(1, 2)
    first.ask()
    second.ask()
    world.settle()
    third = world.of(2, 3)
    third.ask()
    world.settle()
    assert third.answers == [Streamed()]
    first.leave()
    fourth = world.of(3, 4)
    fourth.ask()
    world.settle()
    assert fourth.answers == [Served(SIZE)]
    assert world.memory_bytes() == 2 * SIZE == world.service.metrics().peak_bytes


def test_settings_of_a_later_stage_hold() -> None:
    world = World()
    small, smaller = replace(CONFIG, max_bytes=9999), replace(CONFIG, max_bytes=99)
    world.of(0, 1, epoch=5, settings=small)
    world.of(0, 1, epoch=4, settings=smaller)
    assert world.service.config == small.node
    world.of(0, 1, epoch=6, settings=smaller)
    assert world.service.config == smaller.node


def test_settings_of_the_session_that_decides_hold() -> None:
    world = World()
    own, other = replace(CONFIG, max_bytes=9999), replace(CONFIG, max_bytes=99)
    world.of(0, 1, epoch=1, settings=other)
    assert world.service.config == other.node
    for epoch, authority in ((2, 2), (3, 0), (4, 1), (5, 0), (1, 2)):
        settings = own if (epoch, authority) == (2, 2) else other
        world.of(0, 1, epoch=epoch, settings=settings, authority=authority)
        assert world.service.config == own.node
    world.of(0, 1, epoch=6, settings=other, authority=2)
    assert world.service.config == other.node


def test_a_lower_limit_frees_what_nobody_maps() -> None:
    world = World()
    world.loader()
    reader = world.of(0, 9)
    world.read(reader)
    world.of(0, 1, epoch=1, settings=replace(CONFIG, max_bytes=SIZE))
    assert world.memory_bytes() == 2 * SIZE  # it may still map the last two
    reader.leave()
    world.advance(0)
    assert world.memory_bytes() <= SIZE


def test_as_many_runs_are_held_as_there_are_descriptors() -> None:
    world = World(max_runs=5)
    world.loader()
    world.read(world.of(0, 30))
    assert len(world.open_fds) == 5


@pytest.mark.parametrize("topic", [None, TOPIC])
def test_clear_evicts_what_nobody_maps(topic: str | None) -> None:
    world = World()
    world.loader()
    reader = world.of(0, 5)
    world.read(reader)
    assert world.held() == {0, 1, 2, 3, 4}
    world.request(Clear("other"))
    assert world.held() == {0, 1, 2, 3, 4}
    world.request(Clear(topic))
    assert world.held() == set()
    metrics = world.service.metrics()
    assert metrics.evicted_explicitly == 5
    assert metrics.held_bytes == SIZE * len(reader.mapped) > 0
    reader.leave()
    assert world.service.metrics().held_bytes == 0
    world.service.check()
