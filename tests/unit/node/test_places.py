"""Tasks that read where their runs have their home, and tasks that read elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkcache.homes import Place
from sparkcache.node.home_extents import HomeExtents
from sparkcache.node.messages import Served, Streamed
from tests.unit.node.node_world import RUNS, SIZE, STORED, World, plan, run_slice


def world_with_a_loader() -> World:
    world = World()
    world.loader()
    return world


def test_what_is_loaded_away_from_its_home_is_not_kept() -> None:
    world = world_with_a_loader()
    away = world.of(0, 3, place=Place.AWAY, plans=(plan("p", None, None),))
    assert world.read(away) == [Streamed()] * 3
    assert world.held() == set()
    assert len(world.loads) == 1
    counted = world.service.metrics()
    assert (counted.away_requests, counted.home_requests) == (3, 0)
    assert counted.away_bytes == 3 * STORED
    assert counted.not_admitted == 0


def test_what_is_loaded_at_home_is_kept() -> None:
    world = world_with_a_loader()
    assert world.read(world.of(0, 3, place=Place.HOME)) == [Served(SIZE)] * 3
    assert world.held() == {0, 1, 2}
    counted = world.service.metrics()
    assert (counted.away_requests, counted.home_requests) == (0, 3)
    assert counted.away_bytes == 0


def test_what_is_held_is_served_to_a_task_away_from_home() -> None:
    world = world_with_a_loader()
    world.read(world.of(0, 3))
    assert world.read(world.of(0, 3, place=Place.AWAY)) == [Served(SIZE)] * 3
    counted = world.service.metrics()
    assert (counted.away_requests, counted.away_bytes, counted.hits) == (3, 0, 3)


def test_a_run_is_kept_if_a_task_at_home_waits_for_it_too() -> None:
    world = world_with_a_loader()
    away, home = world.of(0, 1, place=Place.AWAY), world.of(0, 1, place=Place.HOME)
    away.ask()
    home.ask()
    world.settle()
    assert away.answers == home.answers == [Served(SIZE)]
    assert world.held() == {0}
    assert world.service.metrics().away_bytes == 0


def test_nothing_is_loaded_ahead_of_a_task_away_from_home() -> None:
    world = world_with_a_loader()
    following = ((1, run_slice(1, 0, 3)),)
    away = world.of(0, 5, place=Place.AWAY, following=following)
    away.ask()
    world.settle()
    assert away.answers == [Streamed()]
    assert len(world.loads) == 1
    assert world.decoded == [0, 1], "the second one waits in the loader"
    assert world.service.metrics().in_flight_bytes == 0
    world.service.check()


def test_a_loader_that_only_a_task_away_will_need_goes_to_one_that_waits() -> None:
    world = world_with_a_loader()
    away = world.of(0, 5, place=Place.AWAY)
    away.ask()
    world.settle()
    home = world.reader(run_slice(1, 0, 1), place=Place.HOME)
    home.ask()
    world.settle()
    assert home.answers == [Served(SIZE)]
    assert world.read(away) == [Streamed()] * 5


def test_an_heir_keeps_what_it_loads_and_loads_nothing_of_later_partitions() -> None:
    world = world_with_a_loader()
    following = ((1, run_slice(1, 0, 3)),)
    heir = world.of(0, 2, place=Place.HEIR, following=following)
    assert world.read(heir) == [Served(SIZE)] * 2
    assert world.held() == {0, 1}
    assert len(world.loads) == 1
    assert world.service.metrics().home_requests == 2


def test_an_extent_that_is_read_at_home_in_parts_counts_once() -> None:
    world = world_with_a_loader()
    assert world.service.metrics().home_bytes == 0
    for start, stop in ((0, 3), (3, 9), (0, 3)):
        world.read(world.of(start, stop, place=Place.HOME))
    assert world.service.metrics().home_bytes == RUNS * STORED
    world.read(world.reader(run_slice(1, 0, 1), place=Place.HOME))
    assert world.service.metrics().home_bytes == 2 * RUNS * STORED


@pytest.mark.parametrize("place", [Place.ANYWHERE, Place.AWAY])
def test_an_executor_is_not_home_of_what_its_tasks_read_otherwise(place: Place) -> None:
    world = world_with_a_loader()
    world.read(world.of(0, 3, place=place))
    assert world.service.metrics().home_bytes == 0


def test_what_has_moved_to_another_home_is_no_longer_at_home_here() -> None:
    world = world_with_a_loader()
    both = (run_slice(0, 0, 1), run_slice(1, 0, 1))
    world.read(world.reader(*both, place=Place.HOME))
    world.read(world.of(0, 3, place=Place.AWAY))
    assert world.service.metrics().home_bytes == RUNS * STORED


def test_an_extent_is_as_large_as_its_largest_read() -> None:
    whole = run_slice(0, 0, 1)
    narrow = replace(whole, extent=replace(whole.extent, size_bytes=STORED))
    homes = HomeExtents()
    for run_slice_ in (narrow, whole, narrow):
        homes.open([run_slice_], Place.HOME)
    assert homes.size_bytes == RUNS * STORED
    homes.check()


def test_of_very_many_extents_those_opened_last_are_remembered() -> None:
    homes = HomeExtents(max_extents=3)
    extents = [run_slice(number, 0, 1) for number in range(5)]
    homes.open(extents[:3], Place.HOME)
    homes.open([extents[0]], Place.HOME)
    homes.open(extents[3:], Place.HOME)
    homes.check()
    assert homes.size_bytes == 3 * RUNS * STORED
    homes.open([extents[1], extents[2]], Place.AWAY)  # forgotten before
    assert homes.size_bytes == 3 * RUNS * STORED
    homes.open([extents[0]], Place.AWAY)
    assert homes.size_bytes == 2 * RUNS * STORED


def test_the_share_at_home_is_one_of_the_requests_for_runs_that_have_a_home() -> None:
    world = world_with_a_loader()
    assert world.service.metrics().home_ratio == 0
    world.read(world.of(0, 3, place=Place.HOME))
    world.read(world.of(3, 4, place=Place.AWAY))
    world.read(world.of(4, 9))
    assert world.service.metrics().home_ratio == 0.75


def test_a_new_home_learns_how_many_planned_reads_are_done() -> None:
    world = world_with_a_loader()
    of_three = (plan("p", None, None, None),)
    second = replace(run_slice(0, 0, 2), reads=1)
    reader = world.reader(second, place=Place.HOME, plans=of_three)
    world.read(reader)
    reader.finish()
    assert world.held() == {0, 1}, "the third read is still to come"
    last = world.of(0, 2, place=Place.HOME, plans=of_three)
    world.read(last)
    last.finish()
    assert world.held() == set()
    assert world.service.metrics().evicted_by_last_read == 2


def test_a_home_learns_of_planned_reads_that_were_done_away_from_it() -> None:
    world = world_with_a_loader()
    of_three = (plan("p", None, None, None),)
    first = world.of(0, 2, place=Place.HOME, plans=of_three)
    world.read(first)
    first.finish()
    third = world.reader(
        replace(run_slice(0, 0, 2), reads=2), place=Place.HOME, plans=of_three
    )
    world.read(third)
    third.finish()
    assert world.held() == set()


def test_what_a_home_knows_better_it_keeps() -> None:
    world = world_with_a_loader()
    of_two = (plan("p", None, None),)
    first = world.of(0, 1, place=Place.HOME, plans=of_two)
    world.read(first)
    first.finish()
    second = world.reader(
        replace(run_slice(0, 0, 1), reads=1), place=Place.HOME, plans=of_two
    )
    world.read(second)
    assert world.held() == {0}
    second.finish()
    assert world.held() == set()


def test_more_reads_than_were_planned_are_no_more_than_all() -> None:
    world = world_with_a_loader()
    late = world.reader(
        replace(run_slice(0, 0, 1), reads=7), place=Place.HOME, plans=(plan("p", None),)
    )
    world.read(late)
    world.service.check()
