"""Which loader gets the next load, when another is started, and when one is ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkcache.node.events import LoaderEnded
from sparkcache.node.messages import Served, Start
from tests.unit.node.node_world import CONFIG, SIZE, FakeLoader, World, run_slice


def world_of(most: int) -> World:
    world = World(replace(CONFIG, read_ahead_bytes=0))
    world.processes.most = most
    return world


def started(loader: FakeLoader) -> bool:
    return any(isinstance(message, Start) for message, _ in loader.sent)


def test_the_loader_that_became_idle_last_gets_the_next_load() -> None:
    world = world_of(0)
    loaders = [world.loader() for _ in range(3)]
    first = [world.reader(run_slice(number, 0, 1)) for number in range(3)]
    for reader in first:
        reader.ask()
    for loader in loaders:
        while loader.step():
            pass
    for number in range(3, 6):
        world.reader(run_slice(number, 0, 1)).ask()
        assert [started(loader) for loader in loaders] == [False, False, True]
        world.settle()


def test_loaders_are_started_as_they_are_needed() -> None:
    world = world_of(2)
    assert not world.loaders
    for number in range(3):
        world.reader(run_slice(number, 0, 1)).ask()
        assert len(world.loaders) == min(number + 1, 2)
        world.service.check()
    world.settle()
    world.reader(run_slice(3, 0, 1)).ask()
    assert len(world.loaders) == 2
    assert world.service.metrics().loaders == 2
    assert world.service.metrics().loader_bytes == 2 * SIZE


def test_a_load_waits_for_a_loader_that_cannot_be_started() -> None:
    world = world_of(1)
    world.processes.can_fork = False
    reader = world.reader(run_slice(0, 0, 1))
    reader.ask()
    world.service.check()
    world.processes.can_fork, world.processes.most = True, 1
    world.tick()
    assert world.read(reader) == [Served(SIZE)]


def test_a_loader_that_keeps_too_much_is_replaced_after_its_load() -> None:
    world = world_of(1)
    world.processes.can_last = False
    readers = [world.reader(run_slice(number, 0, 2)) for number in range(2)]
    for reader in readers:
        reader.ask()
    first = world.loaders[0]
    assert world.read(readers[0]) == world.read(readers[1]) == [Served(SIZE)] * 2
    assert first not in world.loaders
    world.service.check()


def test_the_loader_that_is_idle_for_longest_is_ended_first() -> None:
    world = world_of(0)
    first = world.loader()
    world.advance(30)
    second = world.loader()
    world.advance(29)
    assert world.service.retire_loader(60) is None
    world.advance(1)
    assert world.service.retire_loader(60) is first
    assert world.service.retire_loader(60) is None
    assert world.service.retire_loader() is second


@pytest.mark.parametrize("has_decoded", [False, True], ids=["fetching", "decoded"])
def test_what_a_loader_that_dies_has_fetched_is_counted(has_decoded: bool) -> None:
    world = world_of(0)
    loader = world.loader()
    reader = world.of(0, 2)
    reader.ask()
    loader.step()
    if has_decoded:
        loader.step()
    loader.die()
    world.dying.remove(loader)
    world.service.handle(LoaderEnded(loader, 1, 1000, 2))
    [topic] = world.service.topic_metrics()
    assert (topic.gets, topic.received_bytes) == (1, 1000)
    assert world.service.metrics().retries == 2
    assert topic.saved_bytes == topic.requested_bytes - 1000
