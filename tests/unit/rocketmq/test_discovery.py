"""Which queues there are, and what of them changes."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import StorageConfig
from sparkcache.connector import Selection
from sparkcache.errors import ConfigError
from sparkcache.progress import Step, reporting_to
from sparkcache.storage import Traffic, open_storage
from sparkcache.testing import MemoryStorage
from sparkcache.testing.s3_server import S3Server
from sparkcache_rocketmq.discovery import Catalog
from sparkcache_rocketmq.testing import Layout, Message

from .stores import (
    FOLDER,
    RECORD_BYTES,
    SEGMENT_BYTES,
    TOPIC,
    Store,
    extents,
    messages,
    offsets,
    spans,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.model import ObjectId


# Which queues


@pytest.fixture
def several() -> Store:
    found = Store()
    for broker in ("broker-a", "broker-b"):
        for queue_id in (10, 9):
            for topic in ("TopicA", "TopicB"):
                writer = found.writer(broker=broker, queue_id=queue_id, topic=topic)
                writer.append(messages(queue_id))
    found.objects[FOLDER.replace("TopicA", "rmq_sys_INDEX") + "/INDEX/x"] = b"x"
    found.writer(topic="rmq_sys_INDEX").append(messages(1))
    return found


ALL_A = [
    f"DefaultCluster/{broker}/TopicA/{n}"
    for broker in ("broker-a", "broker-b")
    for n in (9, 10)
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("TopicA", ALL_A),
        ("TopicA/9", ALL_A[::2]),
        ("broker-b/TopicA", ALL_A[2:]),
        ("broker-b/TopicA/10", ALL_A[3:]),
        (ALL_A[1], ALL_A[1:2]),
    ],
)
def test_queues_by_name(several: Store, name: str, found: list[str]) -> None:
    assert several.select(name) == found


def test_each_queue_once(several: Store) -> None:
    assert several.select(ALL_A[3], "TopicA") == [ALL_A[3], *ALL_A[:3]]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [(".*/TopicA/.*", ALL_A), (r".*/broker-a/TopicA/\d", ALL_A[:1])],
)
def test_queues_by_pattern(several: Store, pattern: str, found: list[str]) -> None:
    assert several.select(pattern=re.compile(pattern)) == found


def test_pseudo_topics_are_not_topics(several: Store) -> None:
    assert len(several.select(pattern=re.compile(".*"))) == 8
    with pytest.raises(ConfigError, match=r"matches no tiered queue.*TopicB.*"):
        several.select("rmq_sys_INDEX")


@pytest.mark.parametrize("name", ["TopicC", "broker-c/TopicA", "TopicA/11"])
def test_missing_queues(several: Store, name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"topic='{name}'.*tiered queues: Default.*Topic"
    ):
        several.select(name)
    with pytest.raises(ConfigError, match="no queue is tiered"):
        Store().select(name)
    with pytest.raises(ConfigError, match="topicsPattern='TopicA'"):
        several.select(pattern=re.compile("TopicA"))


def test_queues_of_brokers_are_apart(several: Store) -> None:
    catalog = several.catalog()
    ledgers = set()
    for name in ALL_A:
        (found,) = catalog.snapshot(name).ledgers
        assert found.ledger.topic == f"memory://bucket#{name}"
        assert offsets(catalog.snapshot(name)) == list(range(found.ledger.id))
        ledgers.add(found.ledger)
    assert len(ledgers) == 4


def test_a_tree_may_begin_at_the_broker() -> None:
    store = Store()
    store.writer().append(messages(3))
    store.objects = {
        name.partition("/")[2]: data for name, data in store.objects.items()
    }
    assert store.select("TopicA") == ["broker-a/TopicA/0"]
    assert offsets(store.catalog().snapshot("broker-a/TopicA/0")) == [0, 1, 2]


def test_all_pages_of_a_listing_are_read() -> None:
    store = Store()
    writer = store.writer(layout=Layout.CHUNKS)
    for _ in range(60):
        writer.append(messages(1))
    assert len(store.objects) == 120
    with S3Server() as server, server.as_environment():
        server.create_bucket("store")
        for name, data in store.objects.items():
            server.put("store", name, data)
        server.behave(page_keys=50)
        server.forget()
        traffic = Traffic()
        storage = open_storage("s3://store", StorageConfig(), traffic)
        snapshot = Catalog(storage, {}, "").snapshot(TOPIC)
        assert server.counts()["store/"].gets == 3
    assert offsets(snapshot) == list(range(60))
    assert snapshot.losses == ()


def test_a_recreated_topic_has_other_ledgers() -> None:
    stores = [Store(), Store()]
    for time, store in enumerate(stores):
        writer = store.writer(max_segment_bytes=SEGMENT_BYTES)
        writer.append([Message(store_time_ms=time)] * 25)
    before, after = (
        {ledger for ledger, _ in extents(store.snapshot())} for store in stores
    )
    assert len(before) == len(after) == 3
    assert not before & after
    assert {ledger.object.uri for ledger in before} == {
        ledger.object.uri for ledger in after
    }


class Growing(MemoryStorage):
    """A storage to which something is appended while it is listed."""

    def __init__(self, stages: list[Store]) -> None:
        super().__init__()
        self._stages = stages

    def list(self, cuts: Sequence[str] = ()) -> Iterator[ObjectId]:
        first = self._stages.pop(0)
        for name in [uri.removeprefix(f"{self.root}/") for uri in self._objects]:
            self.remove(name)
        self._store(first, "")
        yield from list(super().list())
        if self._stages:
            self._store(self._stages[0], "")

    def _store(self, store: Store, part: str) -> None:
        for name, data in store.objects.items():
            if part in name:
                self.put(name, data)


def stage(count: int, *, log: int | None = None) -> Store:
    """A queue of which one file was listed later than the other."""
    store, other = Store(), Store()
    store.writer(max_segment_bytes=SEGMENT_BYTES).append(messages(count))
    if log is not None:
        other.writer(max_segment_bytes=SEGMENT_BYTES).append(messages(log))
        for name in store.named("COMMIT_LOG"):
            del store.objects[name]
        store.objects |= {name: other.objects[name] for name in other.named("COMMIT")}
    return store


@pytest.mark.parametrize("log", [13, 17, 20])
def test_a_consume_queue_that_was_listed_later_is_no_loss(log: int) -> None:
    storage = Growing([stage(25, log=log), stage(38, log=33)])
    snapshot = Catalog(storage, {}, "").snapshot(TOPIC)
    assert offsets(snapshot) == list(range(25))
    assert snapshot.losses == ()


def test_a_snapshot_is_as_the_objects_were_listed() -> None:
    """Of one that is appended to meanwhile, later bytes are not in the way."""
    storage = Growing([stage(25), stage(29)])
    catalog = Catalog(storage, {}, "")
    snapshot = catalog.snapshot(TOPIC)
    assert offsets(snapshot) == list(range(25))
    assert storage.requests["list"] == 1


def test_the_objects_are_listed_once(several: Store) -> None:
    storage = several.storage()
    catalog = Catalog(storage, {}, "")
    assert storage.requests == {"list": 1}
    for name in catalog.select(Selection(("TopicA",))):
        catalog.snapshot(name)
    assert storage.requests["list"] == 1
    assert storage.requests["get"] == 0


def test_few_requests_for_a_snapshot() -> None:
    """Of a queue that is cut into 32 extents: two for each, at most."""
    store = Store()
    store.writer().append(messages(4096))
    storage, threads = store.storage(), threading.active_count()
    snapshot = Catalog(storage, {}, "", 128 * RECORD_BYTES).snapshot(TOPIC)
    assert len(spans(snapshot)) == 32
    assert storage.requests["open"] == 1 + 2 + 31
    assert storage.bytes_opened < 2000
    assert threading.active_count() == threads


def test_says_what_it_is(store: Store) -> None:
    assert repr(store.catalog()) == "Catalog(memory://bucket, 1 queues)"


def test_progress_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Step] = []

    class Screen:
        def show(self, step: Step) -> None:
            shown.append(step)

        def close(self) -> None:
            shown.append(Step("closed", "", 0, None))

    monkeypatch.setattr("sparkcache.progress.FIRST_S", 0.0)
    monkeypatch.setattr("sparkcache.progress.PAUSE_S", 0.0)
    with reporting_to(Screen):
        store.snapshot()
    listed = [step for step in shown if step.doing.startswith("Listing")]
    assert [step.done for step in listed] == [*range(1, len(store.objects) + 1)]
    looked = [step for step in shown if step.doing.startswith("Reading")]
    assert [(step.done, step.total) for step in looked] == [(n, 5) for n in range(1, 6)]
    assert shown[-1].doing == "closed"
