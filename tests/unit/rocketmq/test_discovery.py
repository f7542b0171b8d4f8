"""Which queues there are, and which of their offsets can be read."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import CacheConfig
from sparkcache.connector import Selection
from sparkcache.consumers import Consumer
from sparkcache.errors import ConfigError
from sparkcache.model import Position
from sparkcache.progress import Step, told_to
from sparkcache.source.partitions import wanted
from sparkcache.storage import Traffic, open_storage
from sparkcache.testing import MemoryStorage
from sparkcache.testing.s3_server import S3Server
from sparkcache_rocketmq.discovery import Catalog
from sparkcache_rocketmq.generation import without_generation
from sparkcache_rocketmq.testing import Layout, Message

from .stores import (
    FOLDER,
    RECORD_BYTES,
    TOPIC,
    Store,
    check_places,
    extents,
    log_bases,
    messages,
    offsets,
    spans,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.model import ObjectId

SEGMENT_BYTES = 10 * RECORD_BYTES


@pytest.fixture
def store() -> Store:
    """Offsets 100 to 145, in 5 segments of the commit log."""
    found = Store()
    found.writer(first_offset=100, max_segment_bytes=SEGMENT_BYTES).append(messages(46))
    return found


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


def test_pseudo_topics_are_none(several: Store) -> None:
    assert len(several.select(pattern=re.compile(".*"))) == 8
    with pytest.raises(ConfigError, match=r"no tiered queue of it.*TopicB.*"):
        several.select("rmq_sys_INDEX")


@pytest.mark.parametrize("name", ["TopicC", "broker-c/TopicA", "TopicA/11"])
def test_what_is_not_there(several: Store, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"topic='{name}'.*there is Default.*Topic"):
        several.select(name)
    with pytest.raises(ConfigError, match="there is none at all"):
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
        storage = open_storage("s3://store", CacheConfig(), traffic)
        snapshot = Catalog(storage, {}, "").snapshot(TOPIC)
        assert server.counts()["store/"].gets == 3
    assert offsets(snapshot) == list(range(60))
    assert snapshot.losses == ()


# Where a queue begins and ends


def test_a_queue_in_several_segments(store: Store) -> None:
    snapshot = store.snapshot()
    assert spans(snapshot) == [
        (100, 109),
        (110, 119),
        (120, 129),
        (130, 139),
        (140, 145),
    ]
    assert snapshot.losses == ()
    ledgers = [ledger for ledger, _ in extents(snapshot)]
    assert {ledger.id for ledger in ledgers} == {0}
    assert [ledger.object.version == "" for ledger in ledgers] == [False] * 4 + [True]
    assert without_generation(ledgers[0].decoding) == ""
    assert without_generation("as given") == "as given"


@pytest.mark.parametrize(
    ("start", "found"),
    [
        pytest.param(0, range(100, 146), id="too small: from the first one"),
        pytest.param(99, range(100, 146), id="just too small"),
        pytest.param(100, range(100, 146), id="the first"),
        pytest.param(101, range(101, 146), id="in the midst"),
        pytest.param(145, range(145, 146), id="the last"),
        pytest.param(146, range(0), id="one too large: nothing yet"),
        pytest.param(147, range(0), id="too large"),
        pytest.param(1 << 62, range(0), id="far too large"),
    ],
)
def test_where_a_scan_begins(store: Store, start: int, found: range) -> None:
    snapshot = store.snapshot()
    consumer = Consumer("t", Position(0, start), None)
    chosen = wanted(snapshot.ledgers, consumer)
    read = [
        offset
        for _, extent, _ in chosen
        for offset in range(max(extent.first, start), extent.last + 1)
    ]
    assert read == list(found)
    assert snapshot.losses == ()


def test_an_empty_queue() -> None:
    store = Store()
    store.objects |= {
        f"{FOLDER}/COMMIT_LOG/cfcd2084{0:020}": b"",
        f"{FOLDER}/CONSUME_QUEUE/cfcd2084{0:020}": b"",
    }
    assert store.select("TopicA") == [TOPIC]
    assert store.snapshot().ledgers == ()


def test_a_consume_queue_that_outlives_its_commit_log(store: Store) -> None:
    for name in store.named("COMMIT_LOG"):
        del store.objects[name]
    snapshot = store.snapshot()
    assert (snapshot.ledgers, snapshot.losses) == ((), ())


def test_the_beginning_of_the_commit_log_has_expired(store: Store) -> None:
    for name in store.named("COMMIT_LOG")[:2]:
        del store.objects[name]
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(120, 146))
    assert snapshot.losses == ()


def test_the_beginning_of_the_consume_queue_has_expired() -> None:
    store = Store()
    writer = store.writer(max_consume_queue_bytes=200, max_segment_bytes=SEGMENT_BYTES)
    writer.append(messages(35))
    for name in store.named("CONSUME_QUEUE")[:2]:
        del store.objects[name]
    for name in store.named("COMMIT_LOG")[:1]:
        del store.objects[name]
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(20, 35))
    assert snapshot.losses == ()
    check_places(snapshot, writer.places, log_bases(store.named("COMMIT_LOG")))


@pytest.mark.parametrize("hole", [1, 2, 3])
@pytest.mark.parametrize("has_coda", [False, True])
def test_a_segment_that_is_missing_in_the_midst(hole: int, has_coda: bool) -> None:
    store = Store()
    writer = store.writer(max_segment_bytes=SEGMENT_BYTES + 16, has_coda=has_coda)
    writer.append(messages(45))
    del store.objects[store.named("COMMIT_LOG")[hole]]
    snapshot = store.snapshot(4 * RECORD_BYTES)
    lost = range(10 * hole, 10 * hole + 10)
    assert offsets(snapshot) == [n for n in range(45) if n not in lost]
    (loss,) = snapshot.losses
    assert (loss.ledger, loss.first, loss.last) == (0, lost[0], lost[-1])
    before = store.named("COMMIT_LOG")[hole - 1]
    assert loss.uri == f"memory://bucket/{before}"
    assert loss.offset == len(store.objects[before])
    check_places(snapshot, writer.places, log_bases(store.named("COMMIT_LOG")))


def test_the_last_segment_is_missing(store: Store) -> None:
    del store.objects[store.named("COMMIT_LOG")[-1]]
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(100, 140))
    (loss,) = snapshot.losses
    assert (loss.first, loss.last, loss.found) == (140, 145, "its end")


def test_the_end_of_a_segment_is_cut_off(store: Store) -> None:
    name = store.named("COMMIT_LOG")[-1]
    store.objects[name] = store.objects[name][: 3 * RECORD_BYTES + 5]
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(100, 143))
    assert [(loss.first, loss.last) for loss in snapshot.losses] == [(143, 145)]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_an_object_of_the_consume_queue_is_missing(gone: int) -> None:
    """In the midst the commit log tells; at the beginning it may have expired."""
    store = Store()
    writer = store.writer(max_consume_queue_bytes=200, max_segment_bytes=700)
    writer.append(messages(30))
    del store.objects[store.named("CONSUME_QUEUE")[gone]]
    snapshot = store.snapshot(300)
    assert snapshot.losses == ()
    found = range(10, 30) if gone == 0 else range(20 if gone == 2 else 30)
    assert offsets(snapshot) == list(found)


def test_an_item_that_is_not_whole() -> None:
    store = Store()
    writer = store.writer()
    writer.append(messages(7))
    writer.append_partial_item()
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(7))
    assert snapshot.losses == ()


def test_what_is_not_committed_is_not_read() -> None:
    store = Store()
    writer = store.writer(max_segment_bytes=SEGMENT_BYTES)
    writer.append(messages(7))
    writer.append_uncommitted(messages(8))
    assert len(store.named("COMMIT_LOG")) == 2
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(7))
    assert [extent.size_bytes for _, extent in extents(snapshot)] == [7 * RECORD_BYTES]
    writer.append(messages(20))
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(27))
    assert snapshot.losses == ()
    check_places(snapshot, writer.places, log_bases(store.named("COMMIT_LOG")))


@pytest.mark.parametrize("has_coda", [False, True])
def test_without_a_consume_queue_records_tell(has_coda: bool) -> None:
    store = Store()
    writer = store.writer(max_segment_bytes=SEGMENT_BYTES + 16, has_coda=has_coda)
    writer.append(messages(36))
    for name in store.named("CONSUME_QUEUE"):
        del store.objects[name]
    snapshot = store.snapshot()
    assert spans(snapshot) == [(0, 9), (10, 19), (20, 29), (30, 35)]
    assert snapshot.losses == ()
    last = store.named("COMMIT_LOG")[-1]
    store.objects[last] = store.objects[last][: 3 * RECORD_BYTES] + bytes(
        RECORD_BYTES * 3
    )
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(33))
    (loss,) = snapshot.losses
    assert (loss.first, loss.last, loss.offset) == (33, 33, 3 * RECORD_BYTES)


def test_without_a_consume_queue_large_records_are_passed_over() -> None:
    store = Store()
    sizes = [5 << 20, 10, 3 << 20, (4 << 20) - RECORD_BYTES, 0, 9 << 20, 77]
    store.writer(first_offset=5).append([Message(bytes(size)) for size in sizes])
    del store.objects[store.named("CONSUME_QUEUE")[0]]
    assert spans(store.snapshot()) == [(5, 11)]


@pytest.mark.parametrize("damaged", [0, 2, 4])
@pytest.mark.parametrize("at", [4, 12, 20, 27])
def test_a_segment_that_begins_with_damage(store: Store, damaged: int, at: int) -> None:
    """In its magic, its queue, or its offset, which no checksum covers."""
    name = store.named("COMMIT_LOG")[damaged]
    data = bytearray(store.objects[name])
    data[at] ^= 0x11
    store.objects[name] = bytes(data)
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(100, 146))


def test_items_that_point_at_a_coda() -> None:
    """Some versions count what they write behind a segment to the next record."""
    store = Store()
    writer = store.writer(max_segment_bytes=SEGMENT_BYTES + 16, has_coda=True)
    writer.append(messages(25))
    (name,) = store.named("CONSUME_QUEUE")
    items = bytearray(store.objects[name])
    for offset in (10, 20):
        place = writer.places[offset][0] - 16
        items[20 * offset : 20 * offset + 8] = place.to_bytes(8, "big")
    store.objects[name] = bytes(items)
    snapshot = store.snapshot()
    assert spans(snapshot) == [(0, 9), (10, 19), (20, 24)]
    assert snapshot.losses == ()
    check_places(snapshot, writer.places, log_bases(store.named("COMMIT_LOG")))


@pytest.mark.parametrize("seed", range(20))
def test_a_consume_queue_of_nonsense_loses_nothing_that_is_in_order(seed: int) -> None:
    """Whatever it says, extents are within their objects, each offset at most once."""
    import random

    random_ = random.Random(seed)
    store = Store()
    writer = store.writer(max_segment_bytes=SEGMENT_BYTES)
    writer.append(messages(46))
    (name,) = store.named("CONSUME_QUEUE")
    items = bytearray(store.objects[name])
    for _ in range(random_.randrange(1, 40)):
        items[random_.randrange(len(items))] ^= 1 << random_.randrange(8)
    store.objects[name] = bytes(items)
    snapshot = store.snapshot(3 * RECORD_BYTES)
    sizes = {f"memory://bucket/{key}": len(data) for key, data in store.objects.items()}
    for ledger, extent in extents(snapshot):
        assert extent.size_bytes > 0
        assert extent.offset + extent.size_bytes <= sizes[ledger.object.uri]
    lost = {n for loss in snapshot.losses for n in range(loss.first, loss.last + 1)}
    read = offsets(snapshot)
    assert len(set(read)) == len(read)
    assert lost | set(read) == set(range(46))


# What changes, and what does not


def test_a_topic_that_was_created_anew_has_other_ledgers() -> None:
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

    def list(self) -> Iterator[ObjectId]:
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


# Chunks


@pytest.fixture
def chunks() -> Store:
    found = Store()
    writer = found.writer(layout=Layout.CHUNKS, max_segment_bytes=SEGMENT_BYTES)
    for _ in range(7):
        writer.append(messages(4))
    return found


def test_chunks_are_ledgers(chunks: Store) -> None:
    snapshot = chunks.snapshot()
    assert offsets(snapshot) == list(range(28))
    assert spans(snapshot)[:4] == [(0, 3), (4, 7), (8, 9), (10, 11)]
    assert all(ledger.object.version for ledger, _ in extents(snapshot))
    assert snapshot.losses == ()


@pytest.mark.parametrize("leave_chunks", [False, True])
def test_chunks_that_were_merged(leave_chunks: bool) -> None:
    store = Store()
    writer = store.writer(layout=Layout.CHUNKS)
    for _ in range(5):
        writer.append(messages(4))
    writer.commit_log.merge(leave_chunks=leave_chunks)
    writer.roll()
    writer.append(messages(3))
    snapshot = store.snapshot()
    assert spans(snapshot) == [(0, 19), (20, 22)]
    assert all(ledger.object.version for ledger, _ in extents(snapshot))
    assert snapshot.ledgers[0].ledger.object.uri.endswith("/segment/segment-0")
    assert snapshot.losses == ()


def test_a_chunk_that_is_missing(chunks: Store) -> None:
    folder = Layout.CHUNKS.folder("DefaultCluster", "broker-a", "TopicA", 0)
    del chunks.objects[f"{folder}/COMMIT_LOG/seg-0/chunk/chunk-{4 * RECORD_BYTES}"]
    snapshot = chunks.snapshot()
    assert offsets(snapshot) == [*range(4), *range(8, 28)]
    assert [(loss.first, loss.last) for loss in snapshot.losses] == [(4, 7)]


# Requests


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


def test_how_far_it_has_come_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Step] = []

    class Screen:
        def show(self, step: Step) -> None:
            shown.append(step)

        def close(self) -> None:
            shown.append(Step("closed", "", 0, None))

    monkeypatch.setattr("sparkcache.progress.FIRST_S", 0.0)
    monkeypatch.setattr("sparkcache.progress.PAUSE_S", 0.0)
    with told_to(Screen):
        store.snapshot()
    listed = [step for step in shown if step.doing.startswith("Listing")]
    assert [step.done for step in listed] == [*range(1, len(store.objects) + 1)]
    looked = [step for step in shown if step.doing.startswith("Looking")]
    assert [(step.done, step.total) for step in looked] == [(n, 5) for n in range(1, 6)]
    assert shown[-1].doing == "closed"
