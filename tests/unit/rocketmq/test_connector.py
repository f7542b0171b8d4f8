"""Topics are read through the connector as they were written."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sparkcache.connector import Selection
from sparkcache.errors import ConfigError
from sparkcache.testing import MemoryStorage, decoded_runs, read_topic
from sparkcache_rocketmq import RocketMQConnector
from sparkcache_rocketmq.testing import (
    Codec,
    Layout,
    Message,
    QueueWriter,
    Row,
    synthetic_messages,
)

from .stores import TOPIC, Store

CONNECTOR = RocketMQConnector()
TAGS = ["TagA", "TagB", "tagA", None, "TagA || TagB"]


def tagged(**options: str) -> list[dict[str, Any]]:
    store = Store()
    store.writer().append(
        Message(bytes([number]), tags=TAGS[number % len(TAGS)]) for number in range(20)
    )
    rows, losses = read_topic(CONNECTOR, store.storage(), TOPIC, options, run_bytes=300)
    assert not losses
    return rows


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("*", TAGS),
        (" * ", TAGS),
        ("TagA", ["TagA"]),
        ("TagA||TagB", ["TagA", "TagB"]),
        ("  TagB || TagA || ", ["TagA", "TagB"]),
        ("TagC", []),
    ],
)
def test_tags_are_compared_as_a_whole(tags: str, wanted: list[str | None]) -> None:
    expected = [number for number in range(20) if TAGS[number % len(TAGS)] in wanted]
    assert [row["__queueOffset"] for row in tagged(tags=tags)] == expected


@pytest.mark.parametrize("tags", ["", "||", "* || TagA"])
def test_tags_that_mean_nothing_are_refused(tags: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"option tags={tags.strip()!r}")):
        CONNECTOR.decoding({"tags": tags})


def test_tags_do_not_change_what_is_cached() -> None:
    store = Store()
    store.writer().append(synthetic_messages(20_000))
    storage = store.storage()
    one, other = (
        list(decoded_runs(CONNECTOR, storage, TOPIC, options, run_bytes=5000))
        for options in ({"tags": "TagA"}, {})
    )
    assert [key for key, _ in one] == [key for key, _ in other]
    assert [run.batches for _, run in one] == [run.batches for _, run in other]


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("has_coda", [False, True])
@pytest.mark.parametrize("run_bytes", [1, 3000, 1 << 20])
def test_a_topic_of_many_segments(
    layout: Layout, has_coda: bool, run_bytes: int
) -> None:
    store, rows = Store(), list[Row]()
    writer = store.writer(
        layout=layout, max_segment_bytes=5000, first_offset=90, has_coda=has_coda
    )
    for seed, codec in enumerate(Codec):
        rows += writer.append(synthetic_messages(9_000, value_bytes=300, seed=seed))
        rows += writer.append(synthetic_messages(3_000, codec=codec, seed=seed))
    found, losses = read_topic(
        CONNECTOR, store.storage(), TOPIC, run_bytes=run_bytes, batch_bytes=2000
    )
    assert found == rows
    assert not losses


def test_a_topic_that_grows_keeps_its_runs() -> None:
    store = Store()
    writer = store.writer()
    rows = writer.append(synthetic_messages(50_000))
    before = dict(decoded_runs(CONNECTOR, store.storage(), TOPIC, run_bytes=4000))
    rows += writer.append(synthetic_messages(50_000, seed=1))
    after = dict(decoded_runs(CONNECTOR, store.storage(), TOPIC, run_bytes=4000))
    kept = before.keys() & after.keys()
    assert len(kept) >= len(before) - 1
    assert all(before[key].batches == after[key].batches for key in kept)


def test_inner_batches_come_through_the_connector() -> None:
    store = Store()
    rows = store.writer().append(
        [Message(b"a"), Message(inner=(Message(b"b"), Message(b"c"))), Message(b"d")]
    )
    found, losses = read_topic(CONNECTOR, store.storage(), TOPIC)
    assert found == rows
    assert not losses


def test_topics_with_names_of_groups() -> None:
    objects: dict[str, bytes] = {}
    rows = QueueWriter(objects, topic="%RETRY%group").append([Message(b"a")])
    storage = MemoryStorage()
    for name, data in objects.items():
        storage.put(name, data)
    (name,) = CONNECTOR.catalog(storage, {}).select(Selection(("%RETRY%group",)))
    assert read_topic(CONNECTOR, storage, name)[0] == rows


def test_the_schema_is_that_of_the_rows() -> None:
    schema = CONNECTOR.schema("")
    assert CONNECTOR.time_column() in schema.names
    assert set(CONNECTOR.entry_columns()) <= set(schema.names)
    assert set(tagged()[0]) == set(schema.names)
