"""Batches of a stream that end within an extent: the next one gets what is coming."""

from __future__ import annotations

from dataclasses import replace

from sparkcache.demand import Consumer, Plan
from sparkcache.model import Position
from sparkcache.node.messages import Served
from tests.unit.node.node_world import (
    CONFIG,
    RUNS,
    SIZE,
    TOPIC,
    Reader,
    World,
    key,
    run_slice,
)


def batch(world: World, number: int, start: int, stop: int) -> Reader:
    """A reader of a stream's batch."""
    begin = Position(0, start)
    stream = Plan("run/query/1", (Consumer(TOPIC, start=begin),), batch=number)
    return world.of(start, stop, plans=(stream,), end=Position(0, stop))


def test_the_load_of_a_batch_goes_on_for_the_next_one() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=8 * SIZE))
    world.loader()
    for number in range(10):
        reader = batch(world, 1 + number, 10 * number, 10 * number + 10)
        world.read(reader)
        reader.finish()
        world.settle()
        if number < 9:
            assert {10 * number + 10, 10 * number + 17} <= world.held()
            assert 10 * number + 18 not in world.held()
    assert world.loaded() == [(0, RUNS - 1)]
    assert world.decoded == list(range(RUNS))


def test_two_ranges_of_a_batch_have_a_rest_each() -> None:
    world = World()
    world.loader()
    stream = Plan("run/query/1", (Consumer(TOPIC),), batch=1)
    for number in (0, 1):
        part = run_slice(number, 0, 10)
        reader = world.reader(part, plans=(stream,), end=Position(number, 10))
        reader.ask()
    world.settle()
    for reader in list(world.readers):
        world.read(reader)
        reader.finish()
    world.settle()
    for number in (0, 1):
        assert world.service.is_held(key(20, number))
    assert len(world.loads) == 2


def test_a_load_does_not_go_on_for_long_for_a_batch_that_does_not_come() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    world.loader()
    reader = batch(world, 1, 0, 10)
    world.read(reader)
    reader.finish()
    world.settle()
    assert world.service.metrics().in_flight == 1
    world.advance(5)
    world.settle()
    assert world.service.metrics().in_flight == 0
    world.read(batch(world, 2, 10, 20))
    assert world.loaded() == [(0, RUNS - 1), (12, RUNS - 1)]


def test_a_load_that_waits_for_the_next_batch_gives_way() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    world.loader()
    reader = batch(world, 1, 0, 10)
    world.read(reader)
    reader.finish()
    other = world.reader(run_slice(1, 0, 1))
    assert world.read(other) == [Served(SIZE)]


def test_no_load_goes_on_past_what_a_stream_reads() -> None:
    world = World()
    world.loader()
    consumer = Consumer(TOPIC, end=Position(0, 10))
    stream = Plan("run/query/1", (consumer,), batch=1)
    world.read(world.of(0, 10, plans=(stream,), end=Position(0, 10)))
    assert world.held() == set(range(10))


def test_what_another_partition_of_a_batch_reads_is_not_loaded_for_the_next() -> None:
    world = World()
    world.loader()
    stream = Plan("run/query/1", (Consumer(TOPIC),), batch=1)
    world.read(world.of(0, 10, plans=(stream,), end=Position(0, 20)))
    assert world.held() == set(range(10))
