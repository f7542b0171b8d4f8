"""Loads that fail, or that nobody wants, and loaders that die or are silent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from sparkcache.node.messages import KeepAlive, Refused, Served, Streamed
from tests.unit.node.node_world import CONFIG, FAILURE, RUNS, SIZE, World


def test_a_failed_load_is_repeated_once_then_all_waiters_get_the_error() -> None:
    world = World()
    loader = world.loader()
    readers = [world.of(0, 9), world.of(0, 9), world.of(4, 9)]
    for reader in readers:
        reader.ask()
    loader.step()
    loader.fail()
    assert [reader.answers for reader in readers] == [[], [], []]
    world.service.check()
    loader.step()
    loader.fail()
    assert [reader.answers for reader in readers] == [[FAILURE]] * 3
    assert len(world.loads) == 2
    assert world.service.metrics().failures == 2


def test_a_load_without_valid_credentials_is_not_repeated() -> None:
    """Its loader has looked them up again, and tasks may have others."""
    world = World()
    loader = world.loader()
    readers = [world.of(0, 9), world.of(0, 9)]
    for reader in readers:
        reader.ask()
    loader.step()
    refused = replace_fields(FAILURE, lacks_credentials=True)
    loader.fail(refused)
    assert [reader.answers for reader in readers] == [[refused]] * 2
    world.service.check()


def test_a_load_that_fails_once_is_repeated() -> None:
    world = World()
    loader = world.loader()
    reader = world.of(0, 9)
    reader.ask()
    loader.step()
    loader.fail()
    assert world.read(reader) == [Served(SIZE)] * 9


def test_a_failure_in_what_is_read_ahead_waits_for_the_reader() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    loader = world.loader()
    reader = world.of(0, 2)
    reader.ask()
    while not reader.answers:
        loader.step()
    loader.fail()
    world.settle()
    assert world.read(reader) == [Served(SIZE)] * 2


def test_a_waiter_that_leaves_takes_nothing_from_the_others() -> None:
    world = World()
    loader = world.loader()
    first, second = world.of(0, 9), world.of(0, 9)
    first.ask()
    second.ask()
    loader.step()
    first.leave()
    assert world.read(second) == [Served(SIZE)] * 9
    assert world.loaded() == [(0, RUNS - 1)]


def test_a_load_that_nobody_wants_any_more_is_given_up() -> None:
    world = World()
    loader = world.loader()
    reader = world.of(0, 9)
    reader.ask()
    loader.step()
    reader.leave()
    world.settle()
    assert world.decoded == [0]
    assert not world.held()
    assert world.service.metrics().held_bytes == 0


@pytest.mark.parametrize("steps", [1, 2, 3], ids=["reading", "granted", "delivered"])
def test_the_load_of_a_dead_loader_is_repeated_once(steps: int) -> None:
    world = World()
    reader = world.of(0, 2)
    reader.ask()
    loader = world.loader()
    for _ in range(steps):
        loader.step()
    loader.die()
    world.service.check()
    world.loader()
    assert world.read(reader) == [Served(SIZE)] * 2
    loader.end()
    assert world.service.metrics().held_bytes == SIZE * len(world.held())


def test_a_loader_that_dies_twice_refuses() -> None:
    world = World()
    reader = world.of(0, 2)
    reader.ask()
    for _ in range(2):
        loader = world.loader()
        loader.step()
        loader.die()
    assert isinstance(reader.answers[-1], Refused)
    assert world.service.metrics().failures == 2
    assert world.service.metrics().held_bytes == 0


def test_the_load_of_a_loader_that_dies_before_its_pipe_is_open_is_repeated() -> None:
    world = World(replace(CONFIG, max_bytes=0))
    loader = world.loader()
    first, second = world.of(0, 1), world.of(0, 1)
    first.ask()
    second.ask()
    loader.step()
    loader.step()  # decoded and denied: two pipes will come
    second.leave()
    loader.die()
    world.service.check()
    world.loader()
    world.settle()
    assert first.answers == [Streamed()]
    assert second.answers == []


def test_idle_loaders_may_die() -> None:
    world = World()
    world.loader().die()
    world.loader()
    assert world.read(world.of(0, 2)) == [Served(SIZE)] * 2


def test_a_silent_loader_is_given_up() -> None:
    world = World()
    loader = world.loader()
    reader = world.of(0, 9)
    reader.ask()
    loader.step()
    world.advance(59)
    assert not loader.is_closed
    world.advance(2)
    assert loader.is_closed
    loader.die()
    assert isinstance(reader.answers[-1], Refused)
    world.loader()
    assert world.read(world.of(0, 2)) == [Served(SIZE)] * 2


def test_a_loader_that_waits_for_its_readers_is_not_silent() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=SIZE))
    loader = world.loader()
    reader = world.of(0, 9)
    reader.ask()
    world.settle()
    world.advance(1000)
    assert not loader.is_closed
    assert world.read(reader) == [Served(SIZE)] * 9


def test_without_loaders_nobody_waits_for_ever() -> None:
    world = World()
    reader = world.of(0, 9)
    reader.ask()
    world.advance(59)
    assert reader.is_waiting
    world.advance(2)
    assert isinstance(reader.answers[-1], Refused)
    world.service.check()


def test_a_waiting_task_gets_keep_alives() -> None:
    world = World()
    waiting, partition_read = world.of(0, 9), world.of(0, 9)
    waiting.ask()
    world.advance(1)
    assert [message for message, _ in waiting.sent] == [KeepAlive()]
    assert partition_read.sent == []
