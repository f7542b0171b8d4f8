"""How long a run lives in a node: the exact times, through what tasks say to it."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import pytest

from sparkcache.cache import Ttl
from sparkcache.config import CacheConfig
from sparkcache.node.cache_settings import cache_settings
from sparkcache.node.messages import GetMetrics, Served
from tests.ttl_cases import DUAL_TTL, Steps
from tests.unit.node.node_world import CONFIG, SIZE, World, key, plan, run_slice

MANY = 300  # runs, which take three passes


def ahead(config: CacheConfig = CONFIG) -> tuple[World, int]:
    """A world at 0 s where run 1 was read ahead; and its descriptor."""
    world = World(config, now_s=0.0)
    world.loader()
    reader = world.of(0, 2)
    reader.ask()
    world.settle()
    reader.leave()
    return world, max(world.open_fds)


def ask(world: World) -> bool:
    """Read run 1; return whether it was there."""
    reader = world.of(1, 2)
    answer = reader.ask()
    if reader.is_waiting:
        world.settle()
    assert reader.answers == [Served(SIZE)]
    reader.leave()
    return answer is not None


def play(world: World, steps: Steps) -> None:
    for what, at_s in steps:
        world.now_s = at_s
        match what:
            case "read":
                assert ask(world)
            case "peek":
                assert world.service.is_held(key(1))
            case "list":
                world.request(GetMetrics())
                assert world.service.metrics().runs > 0
            case "near":
                reader = world.of(0, 2)
                reader.ask()
                world.settle()
                reader.leave()
            case "pass":
                world.advance(0)


@pytest.mark.parametrize(("steps", "at_s", "held"), DUAL_TTL)
def test_dual_ttl(steps: Steps, at_s: float, held: bool) -> None:
    world, fd = ahead()
    play(world, steps)
    world.now_s = at_s
    assert world.service.is_held(key(1)) == held
    assert fd in world.open_fds, "no pass has been"
    while world.service.expire():
        pass
    assert (fd in world.open_fds) == held
    before = world.service.metrics()
    assert ask(world) == held
    counted = world.service.metrics() - before
    hits = counted.hits + counted.prefetch_hits
    assert (hits, counted.misses) == ((1, 0) if held else (0, 1))


@pytest.mark.parametrize(
    ("create_s", "after_read_s", "legacy_s", "unread_s", "read_s"),
    [
        pytest.param(180, 10, 15, 180, 10, id="both are set: both hold"),
        pytest.param(0, 0, 15, 15, 15, id="both are off: 15 s since the last access"),
        pytest.param(0, 10, 15, 15, 10, id="create is off: it takes the legacy one"),
        pytest.param(180, 0, 15, 180, 15, id="after-read is off: it takes legacy"),
        pytest.param(180, 10, 0, 180, 10, id="legacy is not needed: it may be off"),
        pytest.param(1, 2, 15, 1, 2, id="after-read is longer than create: it stays"),
    ],
)
def test_which_durations_apply(
    create_s: float, after_read_s: float, legacy_s: float, unread_s: int, read_s: int
) -> None:
    config = durations(create_s, after_read_s, legacy_s)
    world, _ = ahead(config)
    world.now_s = math.nextafter(unread_s, 0)
    assert world.service.is_held(key(1))
    world.now_s = unread_s
    assert not world.service.is_held(key(1))
    world, _ = ahead(config)
    world.now_s = 0.5
    assert ask(world)
    world.now_s = math.nextafter(0.5 + read_s, 0)
    assert world.service.is_held(key(1))
    world.now_s = 0.5 + read_s
    assert not world.service.is_held(key(1))


@pytest.mark.parametrize(
    ("create_s", "after_read_s"),
    [
        pytest.param(180, 0, id="after-read is off, and nothing to take for it"),
        pytest.param(0, 10, id="create is off, and nothing to take for it"),
        pytest.param(0, 0, id="everything is off"),
    ],
)
def test_an_invalid_fallback_keeps_nothing_and_serves_all(
    create_s: float, after_read_s: float
) -> None:
    world, _ = ahead(durations(create_s, after_read_s, 0))
    assert not world.service.is_held(key(1))
    assert not ask(world)
    assert not ask(world)
    world.advance(0)
    assert world.open_fds == set()


def test_the_defaults_are_those_of_rocketmq() -> None:
    ttl = cache_settings(CacheConfig(), max_runs=1).ttl
    assert ttl == Ttl(180, 10, expected_s=3600, max_life_s=math.inf)


def test_a_run_that_is_loaded_again_takes_the_place_of_the_one_overdue() -> None:
    world, fd = ahead()
    world.now_s = 180
    assert not ask(world)
    assert fd not in world.open_fds
    assert world.service.metrics().evicted_by_ttl >= 1
    world.now_s = 190
    assert not world.service.is_held(key(1)), "a reader waited for it: it was read"


# What is said of it


def durations(
    create_s: float, after_read_s: float, legacy_s: float = 15
) -> CacheConfig:
    return replace(
        CONFIG, ttl_create_s=create_s, ttl_after_read_s=after_read_s, ttl_s=legacy_s
    )


@pytest.mark.parametrize(
    ("config", "warnings"),
    [
        pytest.param(CONFIG, 0, id="the defaults"),
        pytest.param(durations(0, 0), 0, id="the legacy policy: they are the same"),
        pytest.param(durations(10, 20), 1, id="after-read is longer"),
        pytest.param(durations(0, 20), 1, id="after-read is longer than legacy"),
    ],
)
def test_holding_runs_longer_after_a_read_warns_once(
    config: CacheConfig, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    World(config).advance(10)
    assert said(caplog) == warnings
    world = World()
    world.configure(config)
    world.configure(replace(config, max_bytes=SIZE))
    assert said(caplog) == 2 * warnings


def said(caplog: pytest.LogCaptureFixture) -> int:
    records = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert all("held longer after a read" in r.getMessage() for r in records)
    return len(records)


# The hard cap


def test_the_cap_ends_a_run_that_is_read_for_ever() -> None:
    world, fd = ahead(replace(CONFIG, max_life_s=100))
    play(world, [("read", at_s) for at_s in range(9, 100, 9)])
    world.now_s = math.nextafter(100, 0)
    assert world.service.is_held(key(1))
    world.now_s = 100
    assert not world.service.is_held(key(1))
    world.service.expire()
    assert fd not in world.open_fds


def test_the_cap_also_ends_runs_that_planned_readers_expect() -> None:
    world = World(replace(CONFIG, max_life_s=100), now_s=0.0)
    world.loader()
    planned = plan("p", None, None)
    world.read(world.of(0, 9, plans=(planned,)))
    world.now_s = 100
    assert world.held() == set()
    world.advance(0)
    counted = world.service.metrics()
    assert counted.evicted_unread == counted.evicted_by_ttl > 0
    assert world.read(world.of(0, 9, plans=(planned,))) == [Served(SIZE)] * 9


def test_what_is_mapped_when_its_life_ends_counts_until_it_is_let_go() -> None:
    world = World(replace(CONFIG, max_life_s=5), now_s=0.0)
    world.loader()
    reader = world.of(0, 1)
    world.read(reader)
    world.advance(5)
    assert world.open_fds == set()
    assert world.service.metrics().held_bytes == SIZE == world.memory_bytes()
    reader.leave()
    assert world.service.metrics().held_bytes == 0


# Short passes


def many(config: CacheConfig = CONFIG) -> World:
    """A world at 0 s that holds this number of runs."""
    world = World(config, now_s=0.0)
    world.loader()
    world.read(world.reader(run_slice(0, 0, MANY, runs=MANY)))
    for reader in list(world.readers):
        reader.leave()
    assert len(world.open_fds) == MANY
    return world


def test_a_pass_is_short_and_says_that_there_is_more() -> None:
    world = many()
    world.now_s = 500
    left = []
    while world.service.expire():
        left.append(len(world.open_fds))
    assert left == [172, 44]
    assert world.open_fds == set()
    assert world.service.metrics().evicted_by_ttl == MANY


def test_between_passes_nothing_overdue_is_served() -> None:
    world = many()
    world.now_s = 500
    while world.service.expire():
        assert world.held() == set()
        world.service.check()
    assert world.service.metrics().runs == 0


def test_longer_times_bring_nothing_overdue_back() -> None:
    """New settings wait for the passes that the old ones have left to do."""
    world = many()
    world.now_s = 500
    longer = durations(9000, 9000)
    world.configure(longer)
    assert world.held() == set()
    assert world.service.expire()
    assert world.held() == set()
    while world.service.expire():
        pass
    assert world.open_fds == set()
    ask(world)
    world.advance(8999)
    assert world.held() == {0, 1}


def test_shorter_times_are_caught_up_with_by_short_passes_too() -> None:
    world = many(durations(9000, 9000))
    world.now_s = 500
    world.configure(CONFIG)
    assert world.held() == set()
    assert len(world.open_fds) == MANY
    assert world.service.expire()
    assert len(world.open_fds) == 172


def test_settings_that_are_withdrawn_before_they_apply_never_do() -> None:
    world = many()
    world.now_s = 500
    world.configure(replace(CONFIG, max_bytes=0))
    world.configure(CONFIG)
    world.advance(0)
    assert not ask(world)
    assert world.held() == {0, 1}


def test_what_is_overdue_goes_before_what_is_not_where_room_is_needed() -> None:
    world = World(
        replace(CONFIG, max_bytes=4 * SIZE, trigger=1, watermark=1), now_s=0.0
    )
    world.loader()
    for entry in (0, 1, 2):
        world.read(world.reader(run_slice(entry + 1, 0, 1)))
    readers = list(world.readers)
    for reader in readers:
        reader.leave()
    world.now_s = 9
    world.read(world.reader(run_slice(1, 0, 1)))  # the first in the order of removal
    world.now_s = 12
    world.read(world.reader(run_slice(4, 0, 1)))
    world.read(world.reader(run_slice(5, 0, 1)))
    assert world.service.is_held(key(0, 1))
    counted = world.service.metrics()
    assert (counted.evicted_by_ttl, counted.evicted_by_size) == (1, 0)
