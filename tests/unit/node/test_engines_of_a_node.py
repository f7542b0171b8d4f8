"""What a node offers with either engine, and what the ring adds to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.metrics import Metrics
from sparkcache.node.messages import Grant, Loaded, Served, ServedFromSegment, Streamed
from tests.unit.node.node_world import CONFIG, RUNS, SIZE, TOPIC, World, plan, run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkcache.config import CacheConfig
    from sparkcache.node.messages import Message

RING = replace(CONFIG, max_bytes=1000 * SIZE, engine="ring", segment_bytes=4 * SIZE)
LISTS = replace(RING, copy_entries=False)
ENGINES = pytest.mark.parametrize(
    "config", [CONFIG, RING, LISTS], ids=["runs", "ring", "lists"]
)


@pytest.fixture
def world_of() -> Iterator[Callable[..., World]]:
    """Makes nodes of given settings, and ends them."""
    worlds = []

    def make(config: CacheConfig = RING, **more: Any) -> World:
        world = World(replace(config, **more))
        world.loader()
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.service.stop()


def read(world: World, start: int, stop: int) -> list[Message]:
    """What a reader gets that reads these runs, and leaves."""
    reader = world.of(start, stop)
    found = world.read(reader)
    reader.finish()
    return found


@ENGINES
def test_d5_a_miss_is_inserted_and_one_load_serves_all(
    world_of: Callable[..., World], config: object
) -> None:
    world = world_of(config)
    readers = [world.of(0, RUNS) for _ in range(5)]
    for reader in readers:
        reader.ask()
    world.settle()
    for reader in readers:
        assert world.read(reader) == [Served(SIZE)] * RUNS
    assert world.loaded() == [(0, RUNS - 1)]
    assert read(world, 0, RUNS) == [Served(SIZE)] * RUNS
    assert world.loaded() == [(0, RUNS - 1)]


@ENGINES
def test_d5_what_is_missing_of_a_range_is_loaded_and_no_more(
    world_of: Callable[..., World], config: object
) -> None:
    world = world_of(config)
    read(world, 0, RUNS)
    for entry in (20, 21, 50):
        run = world.service._store._runs.remove(
            run_slice(0, entry, entry + 1).key(entry)
        )
        assert run is not None
        world.service._store._free([run])
    world.decoded.clear()
    read(world, 10, 60)
    assert world.decoded == [20, 21, 50]


@ENGINES
def test_d6_what_is_held_and_hit_is_known_by_topic(
    world_of: Callable[..., World], config: object
) -> None:
    world = world_of(config)
    read(world, 0, 10)
    read(world, 0, 20)
    [topic] = world.service.topic_metrics()
    assert (topic.topic, topic.requests, topic.hits) == (TOPIC, 30, topic.hits)
    assert topic.hits >= 10
    assert (topic.runs, topic.kept_bytes) == (20, 20 * SIZE)
    assert topic.served_bytes == 30 * SIZE


@ENGINES
def test_a_run_goes_with_its_last_planned_read(
    world_of: Callable[..., World], config: object
) -> None:
    world = world_of(config)
    plans = (plan("p", None, None),)
    first, second = (world.of(0, RUNS, plans=plans) for _ in range(2))
    world.read(first)
    first.finish()
    assert len(world.held()) == RUNS
    world.read(second)
    second.finish()
    assert world.held() == set()
    assert metrics(world).evicted_by_last_read == RUNS


@ENGINES
def test_runs_without_room_are_streamed(
    world_of: Callable[..., World], config: object
) -> None:
    world = world_of(config, max_bytes=0)
    assert read(world, 0, 3) == [Streamed()] * 3
    assert metrics(world).held_bytes == 0


@ENGINES
def test_the_limit_holds_for_what_is_in_memory(
    world_of: Callable[..., World], config: object
) -> None:
    world = world_of(config, max_bytes=12 * SIZE)
    readers = [world.of(begin, RUNS) for begin in (0, 30, 60)]
    while any(reader.wants_more for reader in readers):
        for reader in readers:
            if reader.wants_more:
                reader.ask()
            reader.check()
            assert world.memory_bytes() <= metrics(world).held_bytes <= 12 * SIZE
        world.settle()
    found = metrics(world)
    assert (found.evicted_by_size > 0) == (found.evicted_by_ring == 0)


def metrics(world: World) -> Metrics:
    return world.service.metrics()


def messages(world: World, start: int, stop: int) -> list[ServedFromSegment]:
    """What a reader is sent that reads these runs."""
    reader = world.of(start, stop)
    world.read(reader)
    reader.finish()
    found = [message for message, _ in reader.sent]
    assert all(isinstance(message, ServedFromSegment) for message in found)
    return found  # type: ignore[return-value]


def test_small_runs_are_handed_over_many_at_a_time_and_a_segment_once(
    world_of: Callable[..., World],
) -> None:
    world = world_of()
    read(world, 0, RUNS)
    sent = messages(world, 0, RUNS)
    slots = [slot for message in sent for slot in message.slots]
    assert len(slots) == RUNS
    new = [message.segment for message in sent if message.segment is not None]
    assert len(new) == len(set(new)) == RUNS // 4, "segments of four runs"
    assert len(sent) == RUNS // 4, "each segment has to be sent first"


def test_once_it_has_the_segments_a_reader_gets_64_runs_at_most(
    world_of: Callable[..., World],
) -> None:
    world = world_of(segment_bytes=RUNS * SIZE)
    read(world, 0, RUNS)
    sent = messages(world, 0, RUNS)
    assert [len(message.slots) for message in sent] == [64, 36]
    assert metrics(world).hits >= RUNS


def test_a_run_that_is_handed_over_ahead_counts_as_read_once_it_is(
    world_of: Callable[..., World],
) -> None:
    world = world_of(segment_bytes=RUNS * SIZE)
    read(world, 0, 10)
    plans = (plan("p", None),)
    reader = world.of(0, 10, plans=plans)
    reader.ask()
    assert len(reader.session.pins) == 10
    assert len(world.held()) == 10
    reader.leave()
    assert len(world.held()) == 10, "nothing of it was read"
    again = world.of(0, 10, plans=plans)
    again.ask()
    again.ask()
    again.finish()
    assert world.held() == set(range(2, 10))


@pytest.mark.parametrize("begin_s", [4.9 + at / 100 for at in range(12)])
def test_what_is_handed_over_at_once_is_pinned_though_its_life_ends_meanwhile(
    world_of: Callable[..., World], begin_s: float
) -> None:
    world = world_of(segment_bytes=RUNS * SIZE, max_life_s=5)
    read(world, 0, 50)
    world.now_s += begin_s
    world.tick_s = 0.003
    reader = world.of(0, 50)
    reader.ask()
    handed_over = [m.slots for m, _ in reader.sent if isinstance(m, ServedFromSegment)]
    assert len(reader.session.pins) == sum(map(len, handed_over))


def test_a_reader_that_jumps_gives_back_what_it_was_handed(
    world_of: Callable[..., World],
) -> None:
    world = world_of(segment_bytes=RUNS * SIZE)
    read(world, 0, RUNS)
    reader = world.of(0, RUNS)
    reader.ask()
    assert len(reader.session.pins) == 64
    reader.skip(80)
    reader.ask()
    assert len(reader.session.pins) == 1 + (RUNS - 81)
    reader.check()


def test_a_segment_that_is_read_is_not_written_to(
    world_of: Callable[..., World],
) -> None:
    world = world_of(max_bytes=8 * SIZE)
    read(world, 0, 4)
    reader = world.of(0, 4)
    reader.ask()
    assert len(reader.session.pins) == 4
    read(world, 10, 60)
    reader.check()
    assert world.held() >= {0, 1, 2, 3}
    reader.leave()
    read(world, 60, 90)
    assert world.held() & {0, 1, 2, 3} == set()


@ENGINES
def test_the_slot_of_a_dying_loader_stays_reserved_until_it_has_ended(
    world_of: Callable[..., World], config: object
) -> None:
    world = world_of(config)
    reader = world.of(0, 9)
    reader.ask()
    [loader] = world.loaders
    while not (loader.is_asking and loader.sent):
        loader.step()
    assert isinstance(loader.sent[0][0], Grant)
    loader.die()
    assert metrics(world).in_flight_bytes == SIZE
    world.loader()
    assert world.read(reader) == [Served(SIZE)] * 9
    loader.end()
    reader.check()
    assert metrics(world).in_flight_bytes == 0
    world.service.check()


def test_a_segment_that_cannot_be_created_is_no_room(
    world_of: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(12, "Cannot allocate memory")

    world = world_of()
    monkeypatch.setattr("os.memfd_create", fail)
    assert read(world, 0, 3) == [Streamed()] * 3
    assert world.service._store._runs.is_idle
    monkeypatch.undo()
    assert read(world, 0, 3) == [Served(SIZE)] * 3


def test_loaders_unmap_segments_that_left_the_ring(
    world_of: Callable[..., World],
) -> None:
    world = world_of(max_bytes=40 * SIZE)
    read(world, 0, 40)
    [loader] = world.loaders
    assert {segment.number for segment in loader.segments} == set(range(10))
    world.configure(replace(RING, max_bytes=8 * SIZE))
    world.settle()
    held = set(world.service._store._runs.segments)
    assert {segment.number for segment in loader.segments} == held
    assert len(held) == 2
    read(world, 40, 60)
    assert world.service._store._segments.size_bytes <= 8 * SIZE


@pytest.mark.parametrize("before", [CONFIG, RING, LISTS], ids=["runs", "ring", "lists"])
@pytest.mark.parametrize("after", [CONFIG, RING, LISTS], ids=["runs", "ring", "lists"])
def test_the_engine_is_changed_while_it_runs(
    world_of: Callable[..., World], before: CacheConfig, after: CacheConfig
) -> None:
    world = world_of(before)
    assert read(world, 0, 9) == [Served(SIZE)] * 9
    reader = world.of(0, 9)
    reader.ask()
    world.configure(replace(after, read_ahead_bytes=0))
    world.service.check()
    if before is not after:
        assert world.held() == set()
        assert metrics(world).evicted_explicitly == 9
        late = world.of(20, 22)
        assert world.read(late) == [Streamed()] * 2, "until nobody reads the old one"
        late.finish()
    counted = metrics(world)
    reader.check()
    reader.leave()
    world.advance(1)
    assert read(world, 30, 33) == [Served(SIZE)] * 3
    assert world.held() >= {30, 31, 32}
    assert metrics(world).inserts > counted.inserts
    assert metrics(world).evicted_by_last_read >= counted.evicted_by_last_read
    assert (world.service._store._segments.size_bytes > 0) == (after is RING)
    world.service.check()


def test_a_loader_that_delivers_what_it_was_not_granted_is_dismissed(
    world_of: Callable[..., World],
) -> None:
    world = world_of()
    reader = world.of(0, 3)
    reader.ask()
    [loader] = world.loaders
    while not loader.is_loading:
        loader.step()
    fd = world.create()
    loader.report(Loaded(0), fd)
    assert loader.is_closed
    assert world.open_fds == set()
