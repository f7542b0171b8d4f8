"""How far ahead of readers is loaded, and for whom."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sparkcache.config.setting import PolicyName
from sparkcache.fetch import RunSlice
from sparkcache.fetch.read_ahead_window import ONE_RUN, ReadAheadWindow
from sparkcache.node.messages import Clear, Served
from sparkcache.node.run_store import RunStore
from tests.unit.node.node_world import (
    CONFIG,
    RUNS,
    SIZE,
    Reader,
    World,
    key,
    knowing,
    plan,
    run_slice,
)

if TYPE_CHECKING:
    from sparkcache.cache import CachedRun
    from sparkcache.model import RunKey

LEDGERS = 32


def small(number: int) -> RunSlice:
    """A whole ledger of one run."""
    return run_slice(number, 0, 1, runs=1)


def read_slowly(world: World, reader: Reader) -> None:
    """Have a reader read all, the loaders doing what they can in between."""
    while reader.wants_more:
        reader.ask()
        world.settle()


def look_and_leave(world: World, readers: int, runs: int) -> None:
    """Have readers of `runs` runs take the first one and leave."""
    for number in range(readers):
        reader = world.reader(run_slice(number, 0, runs))
        reader.ask()
        world.settle()
        reader.leave()


@pytest.mark.parametrize("runs", [1, 2, 20], ids=lambda runs: f"{runs} runs a ledger")
def test_a_reader_of_many_ledgers_stalls_once(runs: int) -> None:
    world = World()
    world.loader()
    world.loader()
    reader = world.reader(
        *(run_slice(number, 0, runs, runs=runs) for number in range(LEDGERS))
    )
    read_slowly(world, reader)
    assert reader.answers == [Served(SIZE)] * runs * LEDGERS
    metrics = world.service.metrics()
    assert (metrics.misses, metrics.waits) == (1, 0)
    assert metrics.loads == LEDGERS
    assert metrics.loaded_ahead == runs * LEDGERS - 1
    assert metrics.wasted == 0


def test_a_loader_prepares_small_loads_while_it_is_busy() -> None:
    world = World()
    loader = world.loader()
    reader = world.reader(*map(small, range(LEDGERS)))
    for _ in range(6):
        reader.ask()
        world.settle()
    world.prepared.clear()
    reader.ask()
    loader.step()
    loader.step()
    loading, (prepared,) = world.loads[-1].load, world.prepared
    assert prepared.ledger.id == loading.ledger.id + 1
    assert loader.prepared
    read_slowly(world, reader)
    assert loader.prepared == set()
    assert world.service.metrics().loads == LEDGERS


def test_a_loader_prepares_a_large_load_towards_the_end_of_another() -> None:
    world = World()
    loader = world.loader()
    every = [run_slice(number, 0, 20, runs=20) for number in range(3)]
    world.reader(*every, plans=(plan("p", None),)).ask()
    while len(world.decoded) < 13:
        assert not world.prepared
        loader.step()
    loader.step()
    loader.step()
    assert [load.ledger.id for load in world.prepared] == [1]
    world.settle()
    assert [start.load.ledger.id for start in world.loads] == [0, 1, 2]
    assert [load.ledger.id for load in world.prepared] == [1, 2]


def test_what_was_prepared_is_forgotten_when_nobody_wants_it_any_more() -> None:
    world = World()
    loader = world.loader()
    reader = world.reader(*map(small, range(LEDGERS)))
    for _ in range(6):
        reader.ask()
        world.settle()
    reader.ask()
    loader.step()
    assert loader.sent
    reader.leave()
    world.settle()
    assert loader.prepared == set()
    assert len(world.loads) < LEDGERS // 2


def test_what_a_dead_loader_had_prepared_is_loaded_by_another() -> None:
    world = World()
    loader = world.loader()
    reader = world.reader(*map(small, range(LEDGERS)))
    for _ in range(6):
        reader.ask()
        world.settle()
    reader.ask()
    loader.step()
    loader.die()
    world.loader()
    world.settle()
    read_slowly(world, reader)
    assert reader.answers == [Served(SIZE)] * LEDGERS


def test_a_reader_that_jumps_is_not_read_ahead_of() -> None:
    world = knowing()
    reader = world.of(0, 100)
    for _ in range(20):
        reader.skip(3)
        reader.ask()
        world.settle()
    assert reader.answers == [Served(SIZE)] * 20
    assert world.decoded == [*range(3, 80, 4)]
    assert world.service.metrics().wasted == 0


def test_a_reader_that_jumps_once_is_read_ahead_of_again() -> None:
    world = knowing()
    reader = world.of(0, 100)
    reader.skip(50)
    reader.ask()
    world.settle()
    assert world.held() == {50}
    reader.ask()
    world.settle()
    assert world.held() == {50, 51, 52}
    reader.ask()
    world.settle()
    assert world.held() == {50, 51, 52, 53, 54}


def test_a_reader_that_wants_one_run_and_leaves_wastes_little() -> None:
    world = World()
    world.loader()
    reader = world.of(0, 50)
    reader.ask()
    world.settle()
    reader.leave()
    world.advance(CONFIG.ttl_create_s)
    while world.service.expire():
        pass
    metrics = world.service.metrics()
    assert metrics.wasted == metrics.loaded_ahead == 2
    assert metrics.wasted_bytes == 2 * SIZE


def test_where_readers_leave_after_one_run_the_next_ones_waste_nothing() -> None:
    world = World()
    world.loader()
    look_and_leave(world, 10, runs=50)
    assert world.service.metrics().loaded_ahead == 2 * 2


def test_a_reader_that_goes_on_where_others_left_is_read_ahead_of() -> None:
    world = World()
    world.loader()
    look_and_leave(world, 2, runs=50)
    ahead = world.service.metrics().loaded_ahead
    steady = world.reader(run_slice(2, 0, 50))
    for expected in (0, 0 + 1, 1 + 2):
        steady.ask()
        world.settle()
        assert world.service.metrics().loaded_ahead - ahead == expected
    steady.leave()
    world.reader(run_slice(3, 0, 50)).ask()
    world.settle()
    assert world.service.metrics().loaded_ahead - ahead == 3 + 2


def test_a_reader_of_one_whole_run_has_not_left_early() -> None:
    world = World()
    world.loader()
    look_and_leave(world, 5, runs=1)
    world.reader(run_slice(9, 0, 50)).ask()
    world.settle()
    assert world.service.metrics().loaded_ahead == 2


def test_nothing_is_loaded_that_nobody_is_going_to_read() -> None:
    world = knowing()
    reader = world.of(10, 20)
    read_slowly(world, reader)
    assert world.decoded == [*range(10, 20)]


def test_a_planned_reader_is_read_ahead_of_as_far_as_may_be() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=7 * SIZE))
    world.loader()
    world.of(0, 50, plans=(plan("p", None),)).ask()
    world.settle()
    assert world.held() == set(range(8))


def test_a_reader_beside_those_that_are_planned_is_not_planned_itself() -> None:
    world = World()
    world.loader()
    world.of(0, 50, plans=(plan("p", 10),)).ask()
    world.settle()
    assert world.held() == {0, 1, 2}


def test_depth_is_what_was_read_so_far() -> None:
    depth = ReadAheadWindow(ONE_RUN)
    depths = [depth.bytes]
    for _ in range(3):
        depth.read(1000)
        depths.append(depth.bytes)
    assert depths == [1, 1001, 2001, 3001]
    assert depth.run_bytes == 1000
    depth.waste()
    assert depth.bytes == 1500
    depth.jump()
    assert depth.bytes == 0


# Partitions that nobody has begun


def scan(world: World, part: int, *, following: int = 3) -> Reader:
    """A reader of one ledger of 4 runs, which is a partition of a scan of many."""
    return world.reader(
        run_slice(part, 0, 4, runs=4),
        stage=0,
        part=part,
        following=tuple(
            (next_part, run_slice(next_part, 0, 4, runs=4))
            for next_part in range(part + 1, part + 1 + following)
        ),
    )


def test_the_next_partition_is_there_when_its_task_begins() -> None:
    world = World()
    world.loader()
    for part in range(10):
        reader = scan(world, part)
        assert reader.ask() == (None if part == 0 else Served(SIZE))
        world.settle()
        read_slowly(world, reader)
        reader.finish()
    assert world.service.metrics().misses == 1
    assert world.service.metrics().loads == 11


def test_nothing_of_the_next_partition_is_loaded_before_the_present_one() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    world.loader()
    reader = scan(world, 0)
    for _ in range(2):
        reader.ask()
        world.settle()
    assert not world.service.is_held(key(0, 1))
    reader.ask()
    world.settle()
    assert world.service.is_held(key(0, 1))
    assert not world.service.is_held(key(2, 1))


def test_two_tasks_are_followed_by_two_whichever_is_begun_first() -> None:
    world = World()
    world.loader()
    world.loader()
    for reader in (scan(world, 0), scan(world, 1)):
        world.settle()
        read_slowly(world, reader)
        reader.finish()
    for part in (3, 2):
        assert scan(world, part).ask() == Served(SIZE)
    assert sorted(start.load.ledger.id for start in world.loads) == [0, 1, 2, 3]


def test_what_is_loaded_for_a_task_that_does_not_come_is_given_up() -> None:
    world = World()
    world.loader()
    reader = scan(world, 0)
    read_slowly(world, reader)
    reader.finish()
    assert world.service.is_held(key(0, 1))
    world.advance(5)
    later = world.reader(run_slice(1, 0, 4, runs=4), stage=1)
    assert later.ask() == Served(SIZE)
    world.service.check()


def test_partitions_that_are_begun_elsewhere_are_not_loaded_for_long() -> None:
    world = World()
    world.loader()
    for part in range(0, 40, 2):
        reader = scan(world, part)
        read_slowly(world, reader)
        world.advance(5)
        reader.finish()
    loaded = [start.load.ledger.id for start in world.loads]
    assert [number for number in loaded if number % 2] == [1, 3, 5]


# When there is no room


@pytest.mark.parametrize("policy", ["next-read", "expected-reads", "lru"])
def test_what_was_read_goes_before_what_was_loaded_ahead(policy: PolicyName) -> None:
    config = replace(CONFIG, policy=policy, max_bytes=8 * SIZE, trigger=1, watermark=1)
    world = World(config)
    world.loader()
    ahead = world.of(0, 50)
    ahead.ask()
    world.settle()  # 0 is read, 1 and 2 are not
    other = world.reader(run_slice(1, 0, 20))
    for _ in range(12):
        other.ask()
        world.settle()
    assert {1, 2} <= world.held()


def test_what_was_loaded_for_one_that_left_goes_first() -> None:
    world = World(replace(CONFIG, max_bytes=8 * SIZE, policy="lru"))
    world.loader()
    ahead = world.of(0, 50)
    ahead.ask()
    world.settle()
    ahead.leave()
    assert world.held() == {0, 1, 2}
    other = world.reader(run_slice(1, 0, 20))
    for _ in range(4):
        other.ask()
        world.settle()
    assert world.held() <= {0}
    assert world.service.metrics().wasted == 2


def test_what_is_held_is_not_looked_up_for_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.loader()
    world.read(world.of(0, RUNS))
    looked_up = []
    peek = RunStore.peek

    def counting(
        store: RunStore, key: RunKey, now_s: float | None = None
    ) -> CachedRun[int] | None:
        looked_up.append(key)
        return peek(store, key, now_s)

    monkeypatch.setattr(RunStore, "peek", counting)
    reader = world.of(0, RUNS)
    for _ in range(RUNS):
        assert isinstance(reader.ask(), Served)
    assert len(looked_up) < 3 * RUNS


def test_what_was_held_and_is_evicted_is_loaded_ahead_again() -> None:
    world = World()
    world.loader()
    ledgers = [small(number) for number in range(LEDGERS)]
    world.read(world.reader(*ledgers))
    reader = world.reader(*ledgers)
    for _ in range(10):
        reader.ask()
    world.request(Clear())
    read_slowly(world, reader)
    metrics = world.service.metrics()
    assert metrics.misses == 2, "the first of all, and the first after the eviction"
