"""What loaders do next: load for readers that wait, then ahead of readers."""

from __future__ import annotations

from dataclasses import replace

from sparkcache.node.messages import Served
from tests.unit.node.node_world import CONFIG, RUNS, SIZE, World, key, run_slice


def test_read_ahead_is_limited_for_each_reader() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=5 * SIZE))
    world.loader()
    reader = world.of(0, 50)
    for asked, ahead in enumerate((2, 3, 4, 5, 5, 5)):
        reader.ask()
        world.settle()
        assert world.held() == set(range(asked + 1 + ahead))
    assert world.loaded() == [(0, RUNS - 1)]


def test_read_ahead_of_all_readers_takes_a_quarter_of_the_cache() -> None:
    world = World(replace(CONFIG, max_bytes=32 * SIZE))
    for number in range(4):
        world.loader()
        world.reader(run_slice(number, 0, 50)).ask()
    world.settle()
    assert len(world.open_fds) == 4 * (1 + 2)


def test_the_fastest_reader_is_read_ahead_of() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    world.loader()
    slow, fast = world.of(0, 50), world.of(0, 50)
    slow.ask()
    for _ in range(8):
        fast.ask()
        world.settle()
    assert world.held() == set(range(10))


def test_evicted_runs_do_not_count_as_ahead() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=3 * SIZE))
    world.loader()
    reader = world.of(0, 50)
    reader.ask()
    world.settle()
    reader.ask()
    world.settle()
    assert world.held() == {0, 1, 2, 3, 4}
    world.configure(replace(CONFIG, max_bytes=0))
    world.configure(replace(CONFIG, read_ahead_bytes=3 * SIZE))
    world.tick()
    world.settle()
    assert world.held() == {0, 1, 5}  # two are mapped; wasted loads teach it


def test_the_next_slice_is_loaded_before_it_is_asked_for() -> None:
    world = World()
    world.loader()
    reader = world.reader(run_slice(0, 0, 2, runs=2), run_slice(1, 0, 2, runs=2))
    reader.ask()
    world.settle()
    reader.ask()
    world.settle()
    assert [start.load.ledger.id for start in world.loads] == [0, 1]
    assert world.service.is_held(key(0, 1))


def test_a_load_far_ahead_gives_way_to_one_that_is_waited_for() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    loader = world.loader()
    first = world.of(0, 50)
    first.ask()
    world.settle()
    assert loader.is_asking
    second = world.reader(run_slice(1, 0, 50))
    assert second.ask() is None
    world.settle()
    assert second.answers == [Served(SIZE)]
    assert world.held() == {0, 1, 2, 3}  # what was decoded is not lost
    world.read(first)
    world.read(second)
    assert len(world.decoded) == len(set(world.decoded)) * 2


def test_a_load_that_is_waited_for_displaces_one() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    for number in range(3):
        world.loader()
        world.reader(run_slice(number, 0, 50)).ask()
    world.settle()
    world.reader(run_slice(3, 0, 50)).ask()
    world.tick()
    assert sum(bool(loader.sent) for loader in world.loaders) == 1


def test_a_load_that_nobody_waits_for_displaces_none() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    world.loader()
    first = world.of(0, 50)
    first.ask()
    world.settle()
    second = world.reader(run_slice(1, 0, 1, runs=1), run_slice(2, 0, 50))
    second.ask()
    world.settle()
    first.ask()
    world.settle()
    assert first.answers == [Served(SIZE)] * 2
    assert len(world.loads) <= 4


def test_loaders_that_are_fewer_than_tasks_serve_them_all() -> None:
    world = World(replace(CONFIG, max_bytes=40 * SIZE))
    world.loader()
    readers = [world.reader(run_slice(number, 0, 30)) for number in range(9)]
    while any(reader.wants_more for reader in readers):
        for reader in readers:
            if reader.wants_more:
                reader.ask()
        world.settle()
        assert not any(reader.is_waiting for reader in readers)
