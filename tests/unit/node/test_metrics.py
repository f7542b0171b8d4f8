"""Every metric of a node, driven and looked at."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.metric_definition import Kind
from sparkcache.metrics import METRICS, Metrics
from sparkcache.node.messages import Decoded, Ended
from tests.unit.node.node_world import CONFIG, RUNS, SIZE, STORED, World, plan

if TYPE_CHECKING:
    from collections.abc import Callable

NO_AHEAD = replace(CONFIG, read_ahead_bytes=0, ttl_create_s=100, ttl_after_read_s=50)


def world_of(loaders: int = 1, **config: Any) -> World:
    world = World(replace(NO_AHEAD, **config))
    for _ in range(loaders):
        world.loader()
    return world


def read_all(world: World, start: int, stop: int, **more: object) -> None:
    reader = world.of(start, stop, **more)
    world.read(reader)
    reader.finish()


def test_what_tasks_do_not_fetch_is_saved() -> None:
    world = world_of()
    for _ in range(3):
        read_all(world, 0, RUNS)
    counted = world.service.metrics()
    assert (counted.reads, counted.gets, counted.saved_gets) == (3, 1, 2)
    assert counted.requested_bytes == 3 * RUNS * STORED
    assert counted.saved_bytes == counted.requested_bytes - counted.received_bytes
    assert (counted.requests, counted.hits) == (3 * RUNS, 2 * RUNS)
    assert counted.hit_ratio == pytest.approx(2 / 3)
    (topic,) = world.service.topic_metrics()
    assert (topic.saved_gets, topic.saved_bytes) == (2, counted.saved_bytes)


def test_a_jump_would_have_been_another_get() -> None:
    world = world_of()
    reader = world.of(0, 10)
    reader.skip(2)
    world.settle()
    reader.ask()
    world.settle()
    reader.skip(3)
    world.read(reader)
    assert world.service.metrics().reads == 2


def test_what_the_first_reader_finds_loaded_ahead_is_no_hit() -> None:
    world = world_of(read_ahead_bytes=1 << 30)
    reader = world.of(0, 4)
    reader.ask()
    world.settle()
    counted = world.service.metrics()
    assert (counted.loaded_ahead, counted.prefetched_unread) == (2, 2)
    reader.ask()
    counted = world.service.metrics()
    assert (counted.hits, counted.prefetch_hits, counted.misses) == (0, 1, 1)
    assert (counted.loaded_ahead, counted.prefetched_unread) == (2, 1)
    read_all(world, 1, 2)
    assert world.service.metrics().hits == 1


def test_what_is_in_flight_and_pinned_is_reported() -> None:
    world = world_of()
    reader = world.of(0, 2)
    reader.ask()
    world.loaders[0].step()
    assert world.service.metrics().in_flight == 1
    assert world.service.metrics().in_flight_bytes == 0
    world.loaders[0].step()  # decoded: it is granted room at once
    assert world.service.metrics().in_flight_bytes == SIZE
    world.settle()
    counted = world.service.metrics()
    assert (counted.pinned_runs, counted.pinned_bytes) == (1, SIZE)
    assert counted.in_flight_bytes == 0
    reader.leave()
    world.settle()
    counted = world.service.metrics()
    assert (counted.pinned_runs, counted.pinned_bytes, counted.in_flight) == (0, 0, 0)


def test_times_of_loads_and_hits() -> None:
    world = world_of()
    reader = world.of(0, 1)
    reader.ask()
    world.now_s += 3
    world.settle()
    read_all(world, 0, 1)
    counted = world.service.metrics()
    assert (counted.load_s.count, counted.load_s.total) == (1, 3)
    assert (counted.hit_s.count, counted.hit_s.total) == (1, 0)


def test_ages_of_what_is_evicted() -> None:
    world = world_of()
    read_all(world, 0, 1)
    world.now_s += 20
    read_all(world, 0, 1)
    world.advance(70)
    counted = world.service.metrics()
    assert counted.evicted_by_ttl == 1
    assert counted.evicted_age_s.total == 90
    assert counted.evicted_idle_s.total == 70
    assert counted.evicted_reads.total == 2


def by_ttl(world: World) -> None:
    read_all(world, 0, 3)
    world.advance(1000)


def by_size(world: World) -> None:
    read_all(world, 0, 3)
    world.configure(replace(NO_AHEAD, max_bytes=0))


def by_last_read(world: World) -> None:
    read_all(world, 0, 3, plans=(plan("p", None),))


def by_plan_end(world: World) -> None:
    read_all(world, 0, 3, plans=(plan("p", None, None),))
    world.end_plans("p")


@pytest.mark.parametrize("reason", [by_ttl, by_size, by_last_read, by_plan_end])
def test_evictions_by_reason(reason: Callable[[World], None]) -> None:
    world = world_of()
    reason(world)
    counted = world.service.metrics()
    assert getattr(counted, f"evicted_{reason.__name__}") == 3
    assert (counted.inserts, counted.evictions, counted.runs) == (3, 3, 0)
    assert counted.evicted_explicitly == 0
    (topic,) = world.service.topic_metrics()
    assert topic.evictions == 3


def test_requeues_by_reason() -> None:
    world = world_of(policy="expected-reads", ttl_expected_s=10, max_requeues=2)
    read_all(world, 0, 1, plans=(plan("p", None, None),))
    world.advance(11)
    assert world.service.metrics().requeued_by_ttl == 1
    world.configure(replace(world.config, max_bytes=SIZE))
    read_all(world, 1, 2)
    assert world.service.metrics().requeued_by_size > 0


def test_evictions_of_expected_runs_are_reported() -> None:
    world = world_of()
    read_all(world, 0, 3, plans=(plan("p", None, None),))
    world.configure(replace(NO_AHEAD, max_bytes=0))
    assert world.service.metrics().evicted_unread == 3


def test_what_does_not_fit_is_streamed_and_counted() -> None:
    world = world_of(max_bytes=0)
    read_all(world, 0, 2)
    counted = world.service.metrics()
    assert (counted.streamed, counted.not_admitted) == (2, 2)
    assert (counted.served_bytes, counted.runs) == (2 * SIZE, 0)


def test_what_a_load_cost_is_counted() -> None:
    world = world_of()
    reader = world.of(0, 1)
    reader.ask()
    (loader,) = world.loaders
    loader.step()
    loader.step()
    loader.step()
    loader.report(Ended(gets=3, received_bytes=5000, retries=2))
    counted = world.service.metrics()
    assert (counted.gets, counted.received_bytes, counted.retries) == (3, 5000, 2)
    assert counted.saved_gets == 1 - 3


def test_what_a_run_cost_is_counted_before_a_task_has_it() -> None:
    world = world_of()
    reader = world.of(0, 1)
    reader.ask()
    (loader,) = world.loaders
    loader.step()
    loader.report(Decoded(0, SIZE, 0, gets=1, received_bytes=5000, retries=2))
    counted = world.service.metrics()
    assert (counted.gets, counted.received_bytes, counted.retries) == (1, 5000, 2)
    assert not reader.answers


def test_every_metric_has_a_name_of_its_own() -> None:
    members = vars(Metrics).items()
    properties = {name for name, it in members if isinstance(it, property)}
    derived = properties - {"evictions"}  # it is published by reason
    assert {"hit_ratio", "saved_gets", "saved_bytes", "prefetched_unread"} <= derived
    assert {spec.name for spec in fields(Metrics)} | derived == METRICS.keys()
    assert len({metric.name for metric in METRICS.values()}) == len(METRICS)
    of_histograms = {s.name for s in fields(Metrics) if s.type == "Histogram"}
    distributions = {n for n, m in METRICS.items() if m.kind is Kind.DISTRIBUTION}
    assert of_histograms == distributions
    units = [METRICS[name].unit for name in ("runs", "held_bytes", "load_s")]
    assert units == ["1", "By", "s"]


def test_what_a_node_holds_ends_with_it() -> None:
    held = {name for name, metric in METRICS.items() if metric.is_held}
    assert {"runs", "held_bytes", "in_flight", "prefetched_unread"} < held
    assert not held & {"requests", "peak_bytes", "hit_ratio", "saved_gets", "load_s"}


def test_metrics_add_up() -> None:
    world = world_of()
    by_ttl(world)
    once = world.service.metrics()
    assert (once + once) - once == once
    assert (once + once).evicted_age_s.count == 6
