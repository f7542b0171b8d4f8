"""Tasks that read where their runs have their home, and tasks that read elsewhere."""

from __future__ import annotations

from sparkcache.homes import Place
from sparkcache.node.messages import Served, Streamed
from tests.unit.node.node_world import SIZE, STORED, World, plan, run_slice


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
