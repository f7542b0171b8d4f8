"""The extent index of a topic, which is shipped with tasks."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import pytest

from sparkcache import connector as connectors
from sparkcache.config import StorageConfig
from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.model import Extent, Ledger, Loss, ObjectId
from sparkcache.source.batch.extent_index import ExtentIndex
from sparkcache.source.batch.partitions import extent_offsets
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.storage import Traffic, open_storage
from sparkcache_pulsar.records import OneRun
from sparkcache_pulsar.testing import Entry, Message, ledger_objects, write_directory
from sparkcache_rocketmq.testing import Message as QueueMessage
from sparkcache_rocketmq.testing import QueueWriter
from tests.unit.source.stream_world import ALL, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_all_extents_of_a_topic(tmp_path: Path) -> None:
    ledgers = tuple(_ledgers(tmp_path))
    loss = Loss("s3://bucket", 0, 4, 0, 9, "entries", "nothing")
    snapshot = Snapshot(ledgers, (loss,))
    index = ExtentIndex.for_tasks(connectors.find("pulsar"), snapshot)
    index = pickle.loads(pickle.dumps(index))
    assert index.losses() == (loss,)
    extents = index.extents()
    assert extents == list(extent_offsets(ledgers))
    assert len(extents) > 3 * len(ledgers)


def _ledgers(directory: Path) -> Iterator[LedgerMap]:
    entries = [Entry((Message(b"x" * size),)).encode() for size in range(1000, 9000, 9)]
    for ledger in (3, 5):
        found = ledger_objects(TOPIC, ledger, entries, max_block_bytes=128 << 10)
        write_directory(directory, found)
    storage = open_storage(directory.as_uri(), StorageConfig(), Traffic())
    yield from connectors.find("pulsar").catalog(storage, {}).snapshot(TOPIC).ledgers


def test_extents_of_every_kind() -> None:
    object_ = ObjectId("s3://bucket/a", 0, "")
    extents: list[tuple[Extent, ...]] = [
        (Extent(4, 9, 128, 40), Extent(10, 10, 168, 1 << 40), OneRun(11, 12, 7, 9)),
        (),
        (Extent(1 << 62, 1 << 62, 0, 0), Extent(0, 1, 50, 9, ((50, 4), (58, 1)))),
        (OneRun(5, 5, 5, 5),),
    ]
    ledgers = [
        LedgerMap(Ledger("pulsar", "bucket#t", number, object_), ledger_extents)
        for number, ledger_extents in enumerate(extents)
    ]
    assert ExtentIndex(ledgers).extents() == list(extent_offsets(ledgers))
    assert ExtentIndex([]).extents() == []


def test_an_extent_takes_a_few_bytes() -> None:
    rng = random.Random(7)
    first, offset, extents = 0, 128, []
    for _ in range(4096):
        count, size = rng.randrange(60_000, 66_000), (64 << 20) - rng.randrange(1000)
        extents.append(Extent(first, first + count - 1, offset, size))
        first, offset = first + count, offset + size
    ledger = Ledger("pulsar", "bucket#t", 3, ObjectId("s3://bucket/a", offset, "1"))
    index = ExtentIndex([LedgerMap(ledger, tuple(extents))])
    assert len(pickle.dumps(index)) < 5 * len(extents)


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_no_index_of_a_queue_is_shipped_where_nobody_looks(
    tmp_path: Path, kind: str
) -> None:
    objects: dict[str, bytes] = {}
    queue = QueueWriter(objects, max_segment_bytes=10_000)
    sizes = []
    for _ in range(2):
        queue.append(QueueMessage(b"x" * 1000) for _ in range(200))
        for name, data in objects.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
        sizes.append(_shipped_bytes(tmp_path, kind))
    (few, before), (many, after) = sizes
    assert many > 1.9 * few
    assert after < 1.05 * before


def _shipped_bytes(directory: Path, kind: str) -> tuple[int, int]:
    """Return the number of partitions, and the bytes shipped with a task of one."""
    options = {"path": str(directory), "connector": "rocketmq", "topic": "TopicA"}
    source = SparkCacheSource({**options, "partitionBytes": "10k", "runBytes": "1k"})
    if kind == "batch":
        reader = source.reader(source.schema())
        parts = reader.partitions()
        return len(parts), len(pickle.dumps((reader, parts[0])))
    stream = source.streamReader(source.schema())
    start = stream.initialOffset()
    parts = stream.partitions(start, stream.latestOffset(start, ALL))
    return len(parts), len(pickle.dumps(parts[0]))
