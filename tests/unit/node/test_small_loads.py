"""Small loads are done together, and what one of them meets is its own affair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkcache import homes
from sparkcache.node.events import LoaderMessage
from sparkcache.node.messages import LoadedBundle, Served, Streamed
from tests.unit.node.node_world import (
    CONFIG,
    FAILURE,
    SIZE,
    Reader,
    World,
    plan,
    small_slice,
)

SMALL = 8


def small_world(**settings: Any) -> World:
    world = World(replace(CONFIG, **settings))
    world.loader()
    return world


def planned(world: World, slices: int = SMALL, name: str = "a") -> Reader:
    """A planned reader of small ledgers: it is read ahead from the beginning."""
    parts = [small_slice(number) for number in range(slices)]
    return world.reader(*parts, plans=(plan(name, None),))


def ledgers(world: World) -> list[list[int]]:
    """The ledgers of each load that was begun."""
    return [
        [load.ledger.id for load in (start.load, *start.more)] for start in world.loads
    ]


def test_small_loads_are_done_together() -> None:
    world = small_world()
    assert world.read(planned(world)) == [Served(SIZE)] * SMALL
    assert ledgers(world) == [list(range(SMALL))]
    assert len(world.bundles) == 1


def test_runs_of_a_bundle_are_served_with_the_first() -> None:
    world = small_world()
    reader = planned(world)
    world.read(reader)
    assert len(reader.sent) == 1
    metrics = world.service.metrics()
    assert (metrics.requests, metrics.runs) == (SMALL, SMALL)


def test_the_memory_of_a_bundle_is_freed_after_its_last_run() -> None:
    world = small_world(drop_after_last_read=True)
    reader = planned(world, name="run")
    for read in range(1, SMALL + 1):
        reader.ask()
        world.settle()
        assert world.service.metrics().held_bytes == SMALL * SIZE, read
    reader.finish()
    assert world.service.metrics().held_bytes == 0
    assert world.open_fds == set()
    world.service.check()


def waiting_world(
    place: homes.Place = homes.Place.ANYWHERE, missing: int = -1, **settings: Any
) -> tuple[World, list[Reader]]:
    """Readers of one small run each, whose loads have waited for a loader."""
    world = World(replace(CONFIG, **settings))
    world.missing = {missing}
    readers = [world.reader(small_slice(n), place=place) for n in range(SMALL)]
    for reader in readers:
        reader.ask()
    world.loader()
    return world, readers


def test_only_the_run_of_a_missing_object_fails() -> None:
    world, readers = waiting_world(missing=2)
    loader = world.loaders[0]
    while ledgers(world)[-1:] != [[2]]:
        assert loader.step()
    world.missing.clear()
    world.settle()
    assert ledgers(world) == [list(range(SMALL)), [2]]
    assert [reader.answers for reader in readers] == [[Served(SIZE)]] * SMALL
    assert world.service.metrics().failures == 1


def test_an_object_that_stays_missing_fails_its_reader_alone() -> None:
    world, readers = waiting_world(missing=2)
    world.settle()
    sound = [reader.answers for number, reader in enumerate(readers) if number != 2]
    assert sound == [[Served(SIZE)]] * (SMALL - 1)
    assert readers[2].answers == [FAILURE]
    assert world.service.metrics().failures == 2
    world.service.check()


def test_small_loads_of_a_loader_that_dies_are_done_again() -> None:
    world = small_world()
    reader = planned(world)
    reader.ask()
    loader = world.loaders[0]
    loader.step()
    loader.step()  # memory is granted for all of them
    assert world.service.metrics().held_bytes == SMALL * SIZE
    loader.die()
    loader.end()
    assert world.service.metrics().held_bytes == 0
    world.loader()
    assert world.read(reader) == [Served(SIZE)] * SMALL
    world.service.check()


def test_small_runs_that_do_not_fit_are_streamed_one_by_one() -> None:
    world, readers = waiting_world(max_bytes=2 * SIZE)
    world.settle()
    answers = [answer for reader in readers for answer in reader.answers]
    assert set(map(type, answers)) <= {Served, Streamed}
    assert len(answers) == SMALL
    assert any(isinstance(answer, Streamed) for answer in answers)
    assert world.service.metrics().peak_bytes <= 2 * SIZE
    world.service.check()


def test_small_runs_away_from_home_are_not_kept() -> None:
    world, readers = waiting_world(homes.Place.AWAY)
    world.settle()
    assert [reader.answers for reader in readers] == [[Streamed()]] * SMALL
    assert world.service.metrics().runs == 0


def test_a_ring_has_no_bundles() -> None:
    world = small_world(engine="ring", segment_bytes=4 * SIZE)
    assert world.read(planned(world)) == [Served(SIZE)] * SMALL
    assert ledgers(world) == [[number] for number in range(SMALL)]
    assert world.bundles == {}
    world.service.stop()


@pytest.mark.parametrize("runs", [0, SMALL - 1, SMALL + 1])
def test_a_loader_that_writes_another_bundle_is_closed(runs: int) -> None:
    world = small_world()
    planned(world).ask()
    loader = world.loaders[0]
    loader.step()
    loader.step()
    fd = world.create()
    message = LoadedBundle((None,) * runs)
    world.service.handle(LoaderMessage(loader, message, fd))
    assert loader.is_closed
    assert fd not in world.open_fds


def test_small_runs_that_will_not_be_kept_are_loaded_together_nevertheless() -> None:
    world = small_world()
    parts = [small_slice(number) for number in range(SMALL)]
    reader = world.reader(*parts, plans=(plan("p", None),), can_load=True)
    assert world.read(reader) == [Served(SIZE)] * SMALL
    assert ledgers(world) == [list(range(SMALL))]
