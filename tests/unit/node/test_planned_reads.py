"""How long runs are held that planned readers, or none, are still to read."""

from __future__ import annotations

from dataclasses import replace

from sparkcache.demand import NOT_BEGUN
from sparkcache.node.messages import Served
from tests.unit.node.node_world import CONFIG, SIZE, Reader, World, plan


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


def test_nobody_reads_for_a_stream_that_is_to_come() -> None:
    world = World()
    world.loader()
    to_come = replace(plan("p", None), batch=NOT_BEGUN)
    for _ in range(2):
        consume(world, world.of(0, 3, plans=(to_come,)))
    world.advance(11)
    assert world.held() == {0, 1, 2}
    stream = replace(plan("run/1", None), batch=1)
    consume(world, world.of(0, 3, plans=(stream,)))
    world.advance(11)
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


def test_a_run_that_expires_at_once_is_still_served() -> None:
    world = World(replace(CONFIG, ttl_create_s=0, ttl_after_read_s=0, ttl_s=0))
    world.loader()
    for _ in range(3):
        assert world.read(world.of(0, 3)) == [Served(SIZE)] * 3
    assert world.service.metrics().hits == 0
