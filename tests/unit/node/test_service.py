"""What a node does, with readers and loaders that are driven step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from node_world import (
    CONFIG,
    FAILURE,
    RUNS,
    SIZE,
    TOPIC,
    FakePeer,
    Reader,
    World,
    key,
    plan,
    stretch,
)

from sparkcache.consumers import Consumer
from sparkcache.consumers import Reader as ScanReader
from sparkcache.fetch import Scan
from sparkcache.model import ReadToken
from sparkcache.node.messages import (
    Open,
    Patience,
    Refused,
    Served,
    Streamed,
    Take,
    Told,
    ToldTopics,
)
from sparkcache.node.task import Task


def knowing(*held: int) -> World:
    """A world where all offsets are known and these runs of 0..99 are held."""
    world = World()
    world.loader()
    for entry in (*range(RUNS), *held):
        reader = world.of(entry, entry + 1)
        reader.ask()
        world.settle()
        reader.leave()
        if entry == RUNS - 1:
            world.service.configure(replace(CONFIG, max_bytes=0))
            world.service.configure(CONFIG)
            assert world.held() == set()
    assert world.held() == set(held)
    world.loads.clear()
    world.decoded.clear()
    return world


def test_a_run_is_loaded_once_and_then_served_at_once() -> None:
    world = World()
    world.loader()
    first, second = world.of(0, 1), world.of(0, 1)
    assert first.ask() is None
    world.settle()
    assert first.answers == [Served(SIZE)]
    assert second.ask() == Served(SIZE)
    assert first.mapped == second.mapped
    metrics = world.service.metrics()
    assert (metrics.requests, metrics.hits, metrics.misses) == (2, 1, 1)
    assert (metrics.loads, metrics.inserts, metrics.served_bytes) == (1, 1, 2 * SIZE)


def test_64_tasks_that_want_the_same_cause_one_load() -> None:
    world = World()
    world.loader()
    world.loader()
    readers = [world.of(0, 10) for _ in range(64)]
    for reader in readers:
        assert reader.ask() is None
    while not all(reader.is_done for reader in readers):
        world.settle()
        for reader in readers:
            if reader.wants_more:
                reader.ask()
    assert world.loaded() == [(0, RUNS - 1)]
    assert world.decoded == [*range(10), 10]  # and then nobody wants any more
    metrics = world.service.metrics()
    assert (metrics.requests, metrics.hits, metrics.prefetch_hits) == (640, 567, 9)
    assert (metrics.waits, metrics.misses) == (63, 1)
    assert (metrics.reads, metrics.saved_gets) == (64, 63)
    assert metrics.inserts == 10


def test_loads_that_overlap_leave_a_gap_for_one_more() -> None:
    world = knowing()
    world.loader()
    first, second = world.of(10, 71), world.of(80, 100)
    first.ask()
    second.ask()
    for loader in world.loaders:
        loader.step()
    world.loader()
    third = world.of(10, 100)
    world.read(third)
    assert sorted(world.loaded()) == [(10, 70), (71, 79), (80, 99)]
    assert third.answers == [Served(SIZE)] * 90


def test_what_is_held_is_not_loaded() -> None:
    world = knowing(5, 15, 75, 76, 78)
    world.read(world.of(0, 100))
    assert world.loaded() == [(0, 4), (6, 14), (16, 74), (77, 77), (79, 99)]
    assert world.decoded == [n for n in range(100) if n not in {5, 15, 75, 76, 78}]


def test_what_is_held_is_passed_over_where_offsets_are_not_known() -> None:
    world = World()
    world.loader()
    world.read(world.of(0, 3))
    world.loads.clear()
    world.decoded.clear()
    world.read(world.of(0, 6))
    assert world.loaded() == [(3, RUNS - 1)]
    assert world.decoded == [3, 4, 5, 6]


def test_runs_on_the_way_are_kept_where_there_is_room() -> None:
    world = World()
    world.loader()
    reader = world.of(3, 4)
    reader.ask()
    world.settle()
    assert reader.answers == [Served(SIZE)]
    assert world.held() == {0, 1, 2, 3}


def test_runs_on_the_way_that_nobody_wants_evict_nothing() -> None:
    world = World(replace(CONFIG, max_bytes=3 * SIZE, trigger=1, watermark=1))
    world.loader()
    for number in (1, 2, 3):
        world.reader(stretch(number, 0, 1)).ask()
    world.settle()
    for reader in list(world.readers):
        reader.leave()
    late = world.of(3, 4)
    late.ask()
    world.settle()
    assert late.answers == [Served(SIZE)]
    assert world.service.metrics().evicted_by_size == 1


def test_a_failed_load_is_made_once_more_then_every_waiter_is_told() -> None:
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


def test_a_load_that_fails_for_the_first_time_is_of_no_concern() -> None:
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


def test_a_load_goes_on_for_those_who_were_served_from_memory() -> None:
    """They never waited for it, and yet it is theirs."""
    world = World(replace(CONFIG, read_ahead_bytes=SIZE))
    world.loader()
    first = world.of(0, 5)
    first.ask()
    world.settle()
    second = world.of(0, 50)
    assert second.ask() == Served(SIZE)
    first.leave()
    world.read(second)
    assert world.loaded() == [(0, RUNS - 1)]


def test_a_task_that_comes_between_grant_and_delivery_waits_for_it() -> None:
    world = World()
    loader = world.loader()
    first = world.of(0, 1)
    first.ask()
    loader.step()  # the load begins
    loader.step()  # a run is decoded, and granted
    assert loader.is_asking
    second = world.of(0, 1)
    assert second.ask() is None
    world.settle()
    assert first.answers == second.answers == [Served(SIZE)]
    assert world.decoded == [0, 1]


@pytest.mark.parametrize("steps", [1, 2, 3], ids=["reading", "granted", "delivered"])
def test_a_dead_loader_is_made_good_for_once(steps: int) -> None:
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


def test_a_loader_that_dies_before_the_pipe_is_there_is_made_good_for() -> None:
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


def test_without_room_runs_come_through_pipes() -> None:
    world = World(replace(CONFIG, max_bytes=0))
    world.loader()
    world.loader()
    first, second = world.of(0, 3), world.of(0, 3)
    for _ in range(3):
        first.ask()
        second.ask()
        world.settle()
    assert first.answers == second.answers == [Streamed()] * 3
    assert world.open_fds == set()
    metrics = world.service.metrics()
    assert (metrics.streamed, metrics.inserts, metrics.peak_bytes) == (6, 0, 0)
    assert metrics.served_bytes == 6 * SIZE


def test_mapped_runs_are_not_evicted_for_room() -> None:
    world = World(replace(CONFIG, max_bytes=2 * SIZE, trigger=1, watermark=1))
    world.loader()
    first, second = world.of(0, 1), world.of(1, 2)
    first.ask()
    second.ask()
    world.settle()
    third = world.of(2, 3)
    third.ask()
    world.settle()
    assert third.answers == [Streamed()]
    first.leave()
    fourth = world.of(3, 4)
    fourth.ask()
    world.settle()
    assert fourth.answers == [Served(SIZE)]
    assert world.memory_bytes() == 2 * SIZE == world.service.metrics().peak_bytes


def test_readers_are_read_ahead_of_so_far_and_no_farther() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=5 * SIZE))
    world.loader()
    reader = world.of(0, 50)
    for asked, ahead in enumerate((2, 3, 4, 5, 5, 5)):
        reader.ask()
        world.settle()
        assert world.held() == set(range(asked + 1 + ahead))
    assert world.loaded() == [(0, RUNS - 1)]


def test_all_readers_together_are_read_ahead_of_a_quarter_of_the_cache() -> None:
    world = World(replace(CONFIG, max_bytes=32 * SIZE))
    for number in range(4):
        world.loader()
        world.reader(stretch(number, 0, 50)).ask()
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
    world.service.configure(replace(world.service.config, max_bytes=0))
    world.service.configure(replace(CONFIG, read_ahead_bytes=3 * SIZE))
    world.service.tick()
    world.settle()
    assert world.held() == {0, 1, 5}  # two are mapped; three in vain are a lesson


def test_the_next_stretch_is_loaded_before_it_is_asked_for() -> None:
    world = World()
    world.loader()
    reader = world.reader(stretch(0, 0, 2, runs=2), stretch(1, 0, 2, runs=2))
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
    second = world.reader(stretch(1, 0, 50))
    assert second.ask() is None
    world.settle()
    assert second.answers == [Served(SIZE)]
    assert world.held() == {0, 1, 2, 3}  # what was decoded is not lost
    world.read(first)
    world.read(second)
    assert len(world.decoded) == len(set(world.decoded)) * 2


def test_one_that_is_waited_for_displaces_one() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    for number in range(3):
        world.loader()
        world.reader(stretch(number, 0, 50)).ask()
    world.settle()
    world.reader(stretch(3, 0, 50)).ask()
    world.service.tick()
    assert sum(bool(loader.sent) for loader in world.loaders) == 1


def test_a_load_that_nobody_waits_for_displaces_none() -> None:
    world = World(replace(CONFIG, read_ahead_bytes=2 * SIZE))
    world.loader()
    first = world.of(0, 50)
    first.ask()
    world.settle()
    second = world.reader(stretch(1, 0, 1, runs=1), stretch(2, 0, 50))
    second.ask()
    world.settle()
    first.ask()
    world.settle()
    assert first.answers == [Served(SIZE)] * 2
    assert len(world.loads) <= 4


def test_loaders_that_are_fewer_than_tasks_serve_them_all() -> None:
    world = World(replace(CONFIG, max_bytes=40 * SIZE))
    world.loader()
    readers = [world.reader(stretch(number, 0, 30)) for number in range(9)]
    while any(reader.wants_more for reader in readers):
        for reader in readers:
            if reader.wants_more:
                reader.ask()
        world.settle()
        assert not any(reader.is_waiting for reader in readers)


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


def test_who_waits_is_told_to_be_patient() -> None:
    world = World()
    waiting, reading = world.of(0, 9), world.of(0, 9)
    waiting.ask()
    world.advance(1)
    assert [message for message, _ in waiting.sent] == [Patience()]
    assert reading.sent == []


def consume(world: World, reader: Reader) -> None:
    world.read(reader)
    reader.finish()


def test_a_run_is_dropped_when_its_last_planned_reader_has_read_it() -> None:
    world, planned = World(), plan("p", None, None)
    world.loader()
    consume(world, world.of(0, 9, plans=(planned,)))
    assert world.held() == set(range(9))
    second = world.of(0, 9, plans=(planned,))
    for asked in range(9):
        second.ask()
        assert world.held() == set(range(asked, 9))
    second.finish()
    assert world.held() == set()
    assert world.service.metrics().evicted_by_last_read == 9
    assert world.memory_bytes() == 0


def test_a_retried_task_counts_once() -> None:
    world, planned = World(), plan("p", None, None)
    world.loader()
    for _ in range(3):
        attempt = world.of(0, 9, plans=(planned,), stage=7)
        for _ in range(4):
            attempt.ask()
            world.settle()
        attempt.leave()
    consume(world, world.of(0, 9, plans=(planned,), stage=7))
    assert world.held() == set(range(9))


def test_both_sides_of_a_self_join_count() -> None:
    world, planned = World(), plan("p", None, None)
    world.loader()
    left = world.of(0, 9, plans=(planned,), stage=1)
    right = world.of(0, 9, plans=(planned,), stage=2)
    while left.wants_more:
        left.ask()
        right.ask()
        world.settle()
    left.finish()
    assert world.held() == {8}
    right.finish()
    assert world.held() == set()


def test_a_task_that_dies_has_not_read_the_run_it_was_at() -> None:
    world, planned = World(), plan("p", None)
    world.loader()
    reader = world.of(0, 9, plans=(planned,))
    for _ in range(3):
        reader.ask()
        world.settle()
    reader.leave()
    assert world.held() == set(range(2, 9))


def test_a_plan_counts_what_is_held_when_it_begins() -> None:
    world = World(replace(CONFIG, ttl_create_s=5, ttl_after_read_s=5))
    world.loader()
    world.read(world.of(0, 9))
    world.of(0, 9, plans=(plan("p", 4),))
    world.advance(10)
    assert world.held() == {0, 1, 2, 3}


def test_the_end_of_a_plan_drops_what_it_alone_held() -> None:
    world = World()
    world.loader()
    one, other = plan("one", 6, 6), plan("other", 3, 3)
    world.read(world.of(0, 9, plans=(one, other)))
    world.end_plans("one")
    assert world.held() == {0, 1, 2, 6, 7, 8}  # the last ones were never planned
    assert world.service.metrics().evicted_by_plan_end == 3


def test_a_read_under_two_plans_counts_in_both() -> None:
    world = World()
    world.loader()
    consume(world, world.of(0, 9, plans=(plan("one", None), plan("other", None))))
    assert world.held() == set()


def test_what_a_stream_has_not_read_is_held_until_its_query_ends() -> None:
    world = World()
    world.loader()
    stream = replace(plan("run/1", None), batch=1)
    consume(world, world.of(0, 3, plans=(stream,)))
    consume(world, world.of(0, 9))
    world.advance(11)
    assert world.held() == set(range(3, 9))
    world.end_plans("run")
    world.advance(11)
    assert world.held() == set()


def test_a_late_task_does_not_bring_a_plan_back() -> None:
    world, planned = World(), plan("p", None, None)
    world.loader()
    world.end_plans("p")
    consume(world, world.of(0, 9, plans=(planned,)))
    world.advance(1000)
    assert world.held() == set()


def test_reads_without_a_plan_live_by_their_time() -> None:
    world = World()
    world.loader()
    consume(world, world.of(0, 9))
    world.advance(9)
    assert world.held() == set(range(9))
    world.advance(2)
    assert world.held() == set()
    assert world.service.metrics().evicted_by_ttl == 9
    assert world.open_fds == set()


def test_a_run_that_outlives_its_time_at_once_is_served_all_the_same() -> None:
    world = World(replace(CONFIG, ttl_create_s=0, ttl_after_read_s=0, ttl_s=0))
    world.loader()
    for _ in range(3):
        assert world.read(world.of(0, 3)) == [Served(SIZE)] * 3
    assert world.service.metrics().hits == 0


def test_settings_of_a_later_stage_hold() -> None:
    world = World()
    small, smaller = replace(CONFIG, max_bytes=9999), replace(CONFIG, max_bytes=99)
    world.of(0, 1, epoch=5, settings=small)
    world.of(0, 1, epoch=4, settings=smaller)
    assert world.service.config == small
    world.of(0, 1, epoch=6, settings=smaller)
    assert world.service.config == smaller


def test_a_lower_limit_frees_what_nobody_maps() -> None:
    world = World()
    world.loader()
    reader = world.of(0, 9)
    world.read(reader)
    world.of(0, 1, epoch=1, settings=replace(CONFIG, max_bytes=SIZE))
    assert world.memory_bytes() == 2 * SIZE  # it may still map the last two
    reader.leave()
    world.advance(0)
    assert world.memory_bytes() <= SIZE


def test_so_many_runs_are_held_as_there_are_descriptors() -> None:
    world = World(max_runs=5)
    world.loader()
    world.read(world.of(0, 30))
    assert len(world.open_fds) == 5


def test_who_speaks_another_version_is_refused() -> None:
    world, peer = World(), FakePeer()
    task = Task(peer)
    scan = Scan("memory://bucket", CONFIG, ())
    reader = ScanReader(ReadToken(0, 0), "scan", Consumer(TOPIC), 0)
    world.service.open(task, Open(0, scan, reader, 0, CONFIG, ()))
    [(answer, _)] = peer.sent
    assert isinstance(answer, Refused)
    assert task.scan is None


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param([(0, 9)], id="a run it did not say it would read"),
        pytest.param([(1, 0)], id="a stretch there is not"),
        pytest.param([(-1, 0)], id="a stretch before the first"),
        pytest.param([(0, 1), (0, 2)], id="another run before it has got one"),
    ],
)
def test_who_asks_out_of_order_is_hung_up_on(asked: list[tuple[int, int]]) -> None:
    world = World()
    reader = world.of(0, 9)
    for place in asked:
        world.service.take(reader.task, Take(*place))
    assert reader.is_closed


def test_nobody_reads_backwards() -> None:
    world = World()
    world.loader()
    reader = world.of(0, 9)
    reader.ask()
    reader.ask() if reader.wants_more else None
    world.settle()
    world.service.take(reader.task, Take(0, 0))
    assert reader.is_closed


def test_metrics_are_told() -> None:
    world, peer = World(), FakePeer()
    world.service.ask(peer)
    assert peer.sent == [(Told(world.service.metrics()), None)]
    world.service.ask_topics(peer)
    assert peer.sent[1:] == [(ToldTopics(world.service.topic_metrics()), None)]


def test_a_topic_is_counted_with_its_group() -> None:
    world = World()
    world.loader()
    world.read(world.of(0, 2, group="shop/eu"))
    world.read(world.of(0, 3))
    (topic,) = world.service.topic_metrics()
    assert (topic.topic, topic.group) == (TOPIC, "shop/eu")
    assert (topic.requests, topic.hits, topic.prefetch_hits) == (5, 2, 2)
    assert (topic.waits, topic.misses) == (0, 1)
    assert (topic.inserts, topic.loaded_bytes, topic.served_bytes) == (
        3,
        3 * SIZE,
        5 * SIZE,
    )
    assert (topic.runs, topic.kept_bytes, topic.evictions) == (3, 3 * SIZE, 0)
    for reader in list(world.readers):
        reader.leave()
    world.service.configure(replace(CONFIG, max_bytes=SIZE))
    (topic,) = world.service.topic_metrics()
    assert (topic.runs, topic.kept_bytes, topic.evictions) == (1, SIZE, 2)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (5, 3), (-1, 3), (0, RUNS + 1)])
def test_who_wants_runs_that_there_are_not_is_hung_up_on(start: int, stop: int) -> None:
    world = World()
    reader = world.of(start, stop)
    assert reader.is_closed
    assert reader.task.scan is None
