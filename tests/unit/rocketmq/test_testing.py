"""What the writer of queues writes is what RocketMQ does."""

from __future__ import annotations

import struct

import pytest

from sparkcache_rocketmq.testing import Layout, Message, QueueWriter, coda, java_hash

from .golden_record import GOLDEN, GOLDEN_ITEMS, GOLDEN_MESSAGE

FOLDER = "212d6b50_DefaultCluster/broker-a/TopicA/3"


def golden_queue(objects: dict[str, bytes]) -> QueueWriter:
    return QueueWriter(objects, queue_id=3, first_offset=100)


def test_a_record_and_its_items_are_those_of_rocketmq() -> None:
    objects: dict[str, bytes] = {}
    golden_queue(objects).append(
        [GOLDEN_MESSAGE, Message(b"v" * 200, tags="T1", keys="k101", flag=7)]
    )
    log, items = objects.values()
    assert len(GOLDEN) == 315
    assert log[:315] == GOLDEN
    assert items == GOLDEN_ITEMS
    assert list(objects) == [
        f"{FOLDER}/COMMIT_LOG/cfcd208400000000000000000000",
        f"{FOLDER}/CONSUME_QUEUE/08f90c1a00000000000000002000",
    ]


@pytest.mark.parametrize(
    ("base", "hash_"),
    [
        (0, "cfcd2084"),
        (2000, "08f90c1a"),
        (1 << 30, "952eb029"),
        (104857600, "40d473e3"),
    ],
)
def test_names_of_segments(base: int, hash_: str) -> None:
    assert Layout.POSIX.object_name(base, 0) == f"{hash_}{base:020}"


def test_a_segment_ends_before_the_message_that_does_not_fit() -> None:
    objects: dict[str, bytes] = {}
    writer = QueueWriter(objects, max_segment_bytes=1000)
    writer.append([Message(bytes(300))] * 5)
    sizes = [len(data) for name, data in objects.items() if "COMMIT" in name]
    assert sizes == [2 * 397, 2 * 397, 397]
    assert writer.record_ranges[2] == (2 * 397, 397)


def test_a_coda_is_part_of_its_segment() -> None:
    objects: dict[str, bytes] = {}
    writer = QueueWriter(objects, max_segment_bytes=1000, has_coda=True)
    writer.append([Message(bytes(300), store_time_ms=5)] * 3)
    first, *_ = objects.values()
    assert first.endswith(coda(5))
    assert coda(5) == struct.pack(">iiq", 16, -875286124, 5)
    assert writer.record_ranges[2] == (2 * 397 + 16, 397)


def test_chunks_and_what_they_are_merged_to() -> None:
    objects: dict[str, bytes] = {}
    writer = QueueWriter(objects, layout=Layout.CHUNKS, cluster="c")
    writer.append([Message(b"a")])
    writer.append([Message(b"b")])
    folder = "99/c/broker-a/TopicA/0"
    logs = [f"{folder}/COMMIT_LOG/seg-0/chunk/chunk-{start}" for start in (0, 98)]
    assert [name for name in objects if "COMMIT" in name] == logs
    both = objects[logs[0]] + objects[logs[1]]
    writer.commit_log.merge()
    assert objects[f"{folder}/COMMIT_LOG/seg-0/segment/segment-0"] == both
    assert not objects.keys() & set(logs)


def test_what_is_not_committed_is_written_again() -> None:
    objects: dict[str, bytes] = {}
    writer = QueueWriter(objects)
    writer.append_uncommitted([Message(b"a")])
    (row,) = writer.append([Message(b"a")])
    assert row["__queueOffset"] == 0
    assert writer.record_ranges == {0: (98, 98)}


@pytest.mark.parametrize(
    ("text", "hash_"),
    [("", 0), ("T0", 2652), ("TagB", 2598920), ("polygenelubricants", -(1 << 31))],
)
def test_hashes_are_those_of_java(text: str, hash_: int) -> None:
    assert java_hash(text) == hash_
