"""What a node reports of itself, as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sparkcache.metrics import METRICS, Metrics, TopicMetrics
from sparkcache.model import UNKNOWN_END, Loss
from sparkcache.node import status
from sparkcache.node.messages import (
    GetLosses,
    GetStatus,
    LossesReply,
    ReportLosses,
    StatusReply,
)
from sparkcache.node.plan_progress import PlanProgress
from sparkcache.reported_loss import ReportedLoss
from tests.unit.node.node_world import CONFIG, STORED, TOPIC, FakePeer, World, plan

NAMES = {field: metric.name for field, metric in METRICS.items()}


def status_of(world: World) -> dict[str, Any]:
    peer = FakePeer()
    world.request(GetStatus(), peer)
    ((message, _),) = peer.sent
    assert isinstance(message, StatusReply)
    content: dict[str, Any] = json.loads(message.json)
    return content


def test_a_node_reports_its_metrics_topics_and_plans() -> None:
    world = World()
    world.loader()
    planned = plan("p", None, None)
    world.read(world.of(0, 3, plans=(planned,), group="shop/eu"))
    found = status_of(world)
    assert found["metrics"]["cache.gets"] == 3
    assert found["metrics"]["cache.limit.bytes"] == CONFIG.max_bytes
    assert found["metrics"]["cache.load.duration.count"] == 1
    (topic,) = found["topics"]
    assert (topic["topic"], topic["group"], topic["requests"]) == (TOPIC, "shop/eu", 3)
    (progress,) = found["plans"]
    assert (progress["plan"], progress["consumers"]) == ("p", 2)
    assert progress["is_over"] is False


def test_a_node_keeps_the_losses_that_tasks_report() -> None:
    world = World()
    loss = Loss("mem://a", 7, 3, 2, UNKNOWN_END, "an index", "nothing")
    others = [
        ReportedLoss(TOPIC, Loss("mem://b", 0, 4, n, n, "a", "b", 1), 3.0 + n)
        for n in range(status.MAX_LOSSES - 1)
    ]
    first = ReportedLoss(TOPIC, loss, 2.5)
    world.request(ReportLosses((first, *others)), FakePeer())
    world.request(ReportLosses((first,), not_listed=4), FakePeer())
    peer = FakePeer()
    world.request(GetLosses(), peer)
    ((message, _),) = peer.sent
    assert message == LossesReply((first, *others), 4)
    shown = status_of(world)["losses"]
    assert len(shown) == status.MAX_LOSSES
    assert shown[0] == {
        "topic": TOPIC,
        "object": "mem://a",
        "entries": "all entries from 3:2 on",
        "rows": None,
        "reason": "expected an index, found nothing",
        "time_ms": 2500.0,
    }
    last = ReportedLoss(TOPIC, Loss("mem://c", 0, 5, 0, 0, "a", "b"), 900.0)
    world.request(ReportLosses((last,)), FakePeer())
    shown = status_of(world)["losses"]
    assert len(shown) == status.MAX_LOSSES
    assert shown[-1]["object"] == "mem://c"
    assert shown[0]["object"] == "mem://b"


def test_every_metric_is_published() -> None:
    names = {name for name in NAMES.values() if "duration" not in name}
    histograms = {"cache.eviction.age", "cache.eviction.idle", "cache.eviction.reads"}
    found = status.published(Metrics()).keys()
    assert names - histograms <= found
    for name in (NAMES["load_s"], *histograms):
        assert {f"{name}.{part}" for part in ("count", "mean", "p50", "p99")} <= found


def test_the_most_served_of_many_topics_are_reported_one_by_one() -> None:
    topics = [
        TopicMetrics(topic=f"t{number}", group="g", served_bytes=number, runs=1)
        for number in range(status.MAX_TOPICS + 5)
    ]
    topics.append(TopicMetrics(served_bytes=1 << 40, runs=10))
    *one_by_one, others = status.most_served(topics)
    assert len(one_by_one) == status.MAX_TOPICS
    assert one_by_one[0].served_bytes == status.MAX_TOPICS + 4
    assert (others.topic, others.group, others.runs) == ("", "", 5 + 10)
    assert others.served_bytes == sum(range(5)) + (1 << 40)
    assert len(status.most_served(topics[:3])) == 3


def test_a_plan_progresses_with_what_is_read_and_not_by_reading_it_again() -> None:
    world = World()
    world.loader()
    planned = plan("p", None, None)
    for stage in (0, 0, 1):  # the first task is tried twice
        reader = world.of(0, 4, plans=(planned,), stage=stage)
        world.read(reader)
        reader.finish()
    (progress,) = status_of(world)["plans"]
    assert progress["read_bytes"] == 2 * 4 * STORED
    world.end_plans("p")
    (progress,) = status_of(world)["plans"]
    assert progress["is_over"] is True
    assert progress["read_bytes"] == 2 * 4 * STORED


def test_a_stream_progresses_from_batch_to_batch_until_its_query_ends() -> None:
    world = World()
    world.loader()
    for batch, first in enumerate((0, 4), start=1):
        stream = replace(plan("run/1", None), batch=batch)
        reader = world.of(first, first + 4, plans=(stream,))
        world.read(reader)
        reader.finish()
    (progress,) = status_of(world)["plans"]
    assert progress["read_bytes"] == 2 * 4 * STORED
    assert progress["is_over"] is False
    world.end_plans("run")
    (progress,) = status_of(world)["plans"]
    assert progress["is_over"] is True


def test_a_late_task_of_a_run_does_not_end_the_run_that_came_after_it() -> None:
    world = World()
    world.loader()
    first, second = (
        replace(plan(f"run{number}/query/{number}", None), batch=1) for number in (1, 2)
    )
    world.read(world.of(0, 4, plans=(second,), epoch=7))
    world.read(world.of(0, 4, plans=(first,), epoch=3))
    (progress,) = status_of(world)["plans"]
    assert (progress["plan"], progress["is_over"]) == (second.id, False)
    world.read(world.of(4, 8, plans=(replace(second, batch=3),), epoch=8))
    (progress,) = status_of(world)["plans"]
    assert progress["read_bytes"] > 4 * STORED


def test_a_run_of_a_query_is_over_with_the_next() -> None:
    world = World()
    world.loader()
    for number in (1, 2):
        stream = replace(plan(f"run{number}/query/{number}", None), batch=1)
        world.read(world.of(0, 4, plans=(stream,), epoch=number))
    before, after = status_of(world)["plans"]
    assert (before["is_over"], after["is_over"]) == (True, False)


def test_the_plans_met_last_are_remembered() -> None:
    plans = PlanProgress()
    for number in range(60):
        plans.begin([plan(f"p{number}", None)])
        if number != 3:
            plans.end([f"p{number}"])
    names = [record.plan for record in plans.records()]
    assert len(names) == 50
    assert "p3" in names
    assert names[-1] == "p59"
