"""Requests that are out of order, and what a node reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkcache.demand import Consumer
from sparkcache.demand import ReaderIdentity as ScanReader
from sparkcache.fetch import Scan
from sparkcache.model import ReadToken, Run
from sparkcache.node.events import TaskMessage
from sparkcache.node.messages import (
    GetMetrics,
    GetTopicMetrics,
    MetricsReply,
    Open,
    Refused,
    Take,
    TopicMetricsReply,
)
from sparkcache.node.reader_session import ReaderSession
from tests.unit.node.node_world import (
    CONFIG,
    RUNS,
    SIZE,
    TOPIC,
    FakePeer,
    World,
    run_slice,
)


def test_a_task_of_another_version_is_refused() -> None:
    world, peer = World(), FakePeer()
    session = ReaderSession(peer)
    scan = Scan("memory://bucket", CONFIG.storage, CONFIG.scan, ())
    reader = ScanReader(ReadToken(0, 0), "scan", Consumer(TOPIC), 0)
    world.service.handle(
        TaskMessage(session, Open(0, scan, reader, 0, CONFIG.node, ()))
    )
    [(answer, _)] = peer.sent
    assert isinstance(answer, Refused)
    assert session.scan is None


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param([(0, 9)], id="a run it did not say it would read"),
        pytest.param([(1, 0)], id="an unknown slice"),
        pytest.param([(-1, 0)], id="a slice before the first"),
        pytest.param([(0, 1), (0, 2)], id="another run before it has got one"),
    ],
)
def test_a_request_out_of_order_ends_the_connection(
    asked: list[tuple[int, int]],
) -> None:
    world = World()
    reader = world.of(0, 9)
    for place in asked:
        reader.send_node(Take(*place))
    assert reader.is_closed


def test_nobody_reads_backwards() -> None:
    world = World()
    world.loader()
    reader = world.of(0, 9)
    reader.ask()
    reader.ask() if reader.wants_more else None
    world.settle()
    reader.send_node(Take(0, 0))
    assert reader.is_closed


def test_metrics_are_reported() -> None:
    world, peer = World(), FakePeer()
    world.request(GetMetrics(), peer)
    assert peer.sent == [(MetricsReply(world.service.metrics()), None)]
    world.request(GetTopicMetrics(), peer)
    assert peer.sent[1:] == [(TopicMetricsReply(world.service.topic_metrics()), None)]


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
    world.configure(replace(CONFIG, max_bytes=SIZE))
    (topic,) = world.service.topic_metrics()
    assert (topic.runs, topic.kept_bytes, topic.evictions) == (1, SIZE, 2)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([(0, 0), (0, 0), (1, 1)], id="one comes twice"),
        pytest.param([(1, 1), (0, 0)], id="backwards"),
        pytest.param([(0, 5), (5, 9)], id="they overlap"),
    ],
)
def test_opening_runs_that_do_not_follow_each_other_ends_the_connection(
    entries: list[tuple[int, int]],
) -> None:
    runs = tuple(Run(first, last) for first, last in entries)
    world = World()
    reader = world.reader(replace(run_slice(0, 0, 1), runs=runs))
    assert reader.is_closed
    assert reader.session.scan is None


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (5, 3), (-1, 3), (0, RUNS + 1)])
def test_opening_runs_that_do_not_exist_ends_the_connection(
    start: int, stop: int
) -> None:
    world = World()
    reader = world.of(start, stop)
    assert reader.is_closed
    assert reader.session.scan is None
