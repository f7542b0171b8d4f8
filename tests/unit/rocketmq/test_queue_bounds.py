"""Which offsets of a queue can be read, whatever is missing or expired."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sparkcache.demand import Consumer
from sparkcache.model import UNKNOWN_END, Position
from sparkcache.source.batch.partitions import wanted
from sparkcache.testing import MemoryStorage
from sparkcache_rocketmq.discovery import Catalog
from sparkcache_rocketmq.testing import Layout, Message

from .stores import (
    FOLDER,
    RECORD_BYTES,
    SEGMENT_BYTES,
    TOPIC,
    Store,
    check_places,
    extents,
    log_bases,
    messages,
    offsets,
    spans,
)


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
    assert re.fullmatch(r"generation [0-9a-f]{16}\n", ledgers[0].decoding)


@pytest.mark.parametrize(
    ("start", "found"),
    [
        pytest.param(0, range(100, 146), id="too small: from the first one"),
        pytest.param(99, range(100, 146), id="just too small"),
        pytest.param(100, range(100, 146), id="the first"),
        pytest.param(101, range(101, 146), id="in the middle"),
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


def test_items_without_a_commit_log_are_lost(store: Store) -> None:
    store.remove("COMMIT_LOG")
    snapshot = store.snapshot()
    assert snapshot.ledgers == ()
    (loss,) = snapshot.losses
    assert (loss.ledger, loss.first, loss.last) == (0, 100, 145)
    (name,) = store.named("CONSUME_QUEUE")
    assert (loss.uri, loss.offset) == (f"memory://bucket/{name}", 0)
    assert loss.found == "no object of a commit log"


def test_items_without_a_commit_log_are_lost_from_the_first_that_is_whole() -> None:
    """The last item is not whole either, so it is not committed."""
    store = Store()
    writer = store.writer(layout=Layout.CHUNKS)
    writer.append(messages(6))
    writer.append_partial_item()
    store.remove("COMMIT_LOG")
    (name,) = (name for name in store.named("CONSUME_QUEUE") if "chunk-0" in name)
    cut = name.replace("chunk-0", "chunk-30")
    store.objects[cut] = store.objects.pop(name)[30:]
    (loss,) = store.snapshot().losses
    assert (loss.first, loss.last, loss.offset) == (2, 5, 10)


def test_an_empty_commit_log_is_none(store: Store) -> None:
    store.objects |= dict.fromkeys(store.named("COMMIT_LOG"), b"")
    (loss,) = store.snapshot().losses
    assert (loss.first, loss.last) == (100, 145)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda storage, name: storage.put(name, b""), id="emptied"),
        pytest.param(lambda storage, name: storage.remove(name), id="removed"),
    ],
)
def test_a_queue_that_expires_while_it_is_listed_is_no_loss(
    store: Store, change: Callable[[MemoryStorage, str], object]
) -> None:
    storage = store.storage()
    for name in store.named("COMMIT_LOG"):
        storage.remove(name)
    catalog = Catalog(storage, {}, "")
    for name in store.named("CONSUME_QUEUE"):
        change(storage, name)
    snapshot = catalog.snapshot(TOPIC)
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
    check_places(snapshot, writer.record_ranges, log_bases(store.named("COMMIT_LOG")))


@pytest.mark.parametrize("hole", [1, 2, 3])
@pytest.mark.parametrize("has_coda", [False, True])
def test_a_missing_segment_in_the_middle(hole: int, has_coda: bool) -> None:
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
    check_places(snapshot, writer.record_ranges, log_bases(store.named("COMMIT_LOG")))


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
    """In the middle the commit log shows it; at the beginning it may have expired."""
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
    check_places(snapshot, writer.record_ranges, log_bases(store.named("COMMIT_LOG")))


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
    assert (loss.first, loss.last) == (33, UNKNOWN_END)
    assert loss.offset == 3 * RECORD_BYTES


@pytest.mark.parametrize("hole", [1, 2, 3])
def test_without_a_consume_queue_a_missing_segment_is_lost(
    store: Store, hole: int
) -> None:
    store.remove("CONSUME_QUEUE")
    del store.objects[store.named("COMMIT_LOG")[hole]]
    rows, losses = store.read_each(1 << 20, 500)
    lost = range(100 + 10 * hole, 110 + 10 * hole)
    read = [row["__queueOffset"] for row in rows]
    assert read == [n for n in range(100, 146) if n not in lost]
    assert [n for loss in losses for n in range(loss.first, loss.last + 1)] == [*lost]


@pytest.mark.parametrize("at", [0, 4, 12, 28])
@pytest.mark.parametrize("record", [0, 1, 7])
@pytest.mark.parametrize("segments", [1, 2])
def test_without_a_consume_queue_damage_costs_one_record(
    segments: int, record: int, at: int
) -> None:
    """In the last object, whose records show where the queue ends, or before it."""
    store = Store()
    writer = store.writer(max_segment_bytes=SEGMENT_BYTES)
    rows = writer.append(messages(10 * segments))
    store.remove("CONSUME_QUEUE")
    for name in store.named("COMMIT_LOG"):
        data = bytearray(store.objects[name])
        data[record * RECORD_BYTES + at] ^= 0x55
        store.objects[name] = bytes(data)
    found, losses = store.read_each(1 << 20, 1 << 20)
    lost = [record + 10 * n for n in range(segments)]
    assert found == [row for row in rows if row["__queueOffset"] not in lost]
    assert [n for loss in losses for n in range(loss.first, loss.last + 1)] == lost


def test_without_a_consume_queue_one_wrong_offset_costs_one_record() -> None:
    """Also if the records after it are too few to show it by themselves."""
    store = Store()
    rows = store.writer(first_offset=5).append(messages(10))
    store.remove("CONSUME_QUEUE")
    (name,) = store.named("COMMIT_LOG")
    at = 8 * RECORD_BYTES + 20
    data = store.objects[name]
    store.objects[name] = data[:at] + (1 << 40).to_bytes(8, "big") + data[at + 8 :]
    found, losses = store.read_each(1 << 20, 1 << 20)
    assert found == [*rows[:8], rows[9]]
    assert [(loss.first, loss.last) for loss in losses] == [(13, 13)]


def test_what_is_not_committed_is_not_lost() -> None:
    """A segment is cut off where the consume queue has no items yet."""
    store = Store()
    writer = store.writer(max_segment_bytes=SEGMENT_BYTES)
    writer.append(messages(12))
    writer.append_uncommitted(messages(18))
    name = store.named("COMMIT_LOG")[1]
    store.objects[name] = store.objects[name][: 5 * RECORD_BYTES]
    snapshot = store.snapshot()
    assert offsets(snapshot) == list(range(12))
    assert snapshot.losses == ()


@pytest.mark.parametrize("offset", [0, 50, 1 << 40])
def test_without_a_consume_queue_the_last_offset_is_not_believed_alone(
    offset: int,
) -> None:
    store = Store()
    rows = store.writer(first_offset=5).append(messages(10))
    store.remove("CONSUME_QUEUE")
    (name,) = store.named("COMMIT_LOG")
    at = 9 * RECORD_BYTES + 20
    data = store.objects[name]
    store.objects[name] = data[:at] + offset.to_bytes(8, "big") + data[at + 8 :]
    found, losses = store.read_each(1 << 20, 1 << 20)
    assert found == rows[:9]
    ends = [(loss.first, loss.last) for loss in losses]
    assert ends == ([(14, UNKNOWN_END)] if offset else [])


def test_a_segment_that_nothing_tells_the_offsets_of_follows_the_one_before() -> None:
    """Its first record is damaged, and the items around it are missing."""
    store = Store()
    writer = store.writer(max_segment_bytes=SEGMENT_BYTES, max_consume_queue_bytes=200)
    rows = writer.append(messages(40))
    name = store.named("COMMIT_LOG")[2]
    store.objects[name] = bytes(50) + store.objects[name][50:]
    for name in store.named("CONSUME_QUEUE")[1:3]:
        del store.objects[name]
    found, losses = store.read_each(1 << 20, 1 << 20)
    assert found == rows[:20] + rows[21:]
    assert [(loss.first, loss.last) for loss in losses] == [(20, 20)]


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
    """Some versions count what they write after a segment to the next record."""
    store = Store()
    writer = store.writer(max_segment_bytes=SEGMENT_BYTES + 16, has_coda=True)
    writer.append(messages(25))
    (name,) = store.named("CONSUME_QUEUE")
    items = bytearray(store.objects[name])
    for offset in (10, 20):
        place = writer.record_ranges[offset][0] - 16
        items[20 * offset : 20 * offset + 8] = place.to_bytes(8, "big")
    store.objects[name] = bytes(items)
    snapshot = store.snapshot()
    assert spans(snapshot) == [(0, 9), (10, 19), (20, 24)]
    assert snapshot.losses == ()
    check_places(snapshot, writer.record_ranges, log_bases(store.named("COMMIT_LOG")))


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
