"""A broker's own list of segments: the same answer with it and without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sparkcache.errors import ConfigError, SourceError
from sparkcache_rocketmq.discovery import Catalog

from .stores import RECORD_BYTES, TOPIC, Store, messages, offsets

if TYPE_CHECKING:
    from pathlib import Path

NEW, SEALED, DELETED = 0, 1, 2
PATH = "broker-a/TopicA/0"


@pytest.fixture
def store() -> Store:
    """Three segments of 10 messages."""
    found = Store()
    found.writer(max_segment_bytes=10 * RECORD_BYTES).append(messages(30))
    return found


def metadata(statuses: list[int], path: str = PATH) -> str:
    """What a broker writes: keys that are numbers have no quotes."""
    segments = ",".join(
        f'{base}:{{"baseOffset":{base},"path":"{path}","size":{10 * RECORD_BYTES},'
        f'"beginTimestamp":9223372036854775807,"status":{status},"type":0}}'
        for base, status in zip(
            range(0, 1 << 30, 10 * RECORD_BYTES), statuses, strict=False
        )
    )
    return (
        '{"topicSerialNumber":7,'
        '"topicMetadataTable":{"a {1:2, 3: 4}":{"topicId":1,"status":2}},'
        f'"queueMetadataTable":{{"TopicA":{{0:{{"minOffset":0 , "maxOffset":30}}}}}},'
        f'"commitLogFileSegmentTable":{{"{path}":{{{segments}}}}},\n'
        f'"consumeQueueFileSegmentTable":{{"{path}":{{ 0 :{{"status":0}}}}}},'
        '"indexFileSegmentTable":{}}'
    )


def read(
    store: Store, text: str, name: str = "config/tieredStoreMetadata.json"
) -> list[int]:
    storage = store.storage()
    storage.put(name, text.encode())
    option = {"metadata": name.removesuffix(".bak")}
    return offsets(Catalog(storage, option, "").snapshot(TOPIC))


@pytest.mark.parametrize(
    ("statuses", "first"),
    [
        ([NEW, NEW, NEW], 0),
        ([SEALED, SEALED, NEW], 0),
        ([], 0),
        ([DELETED, NEW, NEW], 10),
        ([DELETED, DELETED, NEW], 20),
    ],
)
def test_what_is_marked_as_deleted_is_not_read(
    store: Store, statuses: list[int], first: int
) -> None:
    assert read(store, metadata(statuses)) == list(range(first, 30))
    strict = json.dumps(
        {
            "commitLogFileSegmentTable": {
                PATH: {
                    str(10 * RECORD_BYTES * n): {"status": status}
                    for n, status in enumerate(statuses)
                }
            }
        }
    )
    assert read(store, strict) == list(range(first, 30))


def test_other_queues_are_not_meant(store: Store) -> None:
    text = metadata([DELETED], "broker-b/TopicA/0")
    assert read(store, text) == list(range(30))


def test_a_backup_will_do(store: Store, tmp_path: Path) -> None:
    text = metadata([DELETED])
    assert read(store, text, "metadata.json.bak") == list(range(10, 30))
    (tmp_path / "m.json.bak").write_text(text)
    for place in (f"{tmp_path}/m.json", f"file://{tmp_path}/m.json"):
        assert offsets(store.snapshot(metadata=place)) == list(range(10, 30))


@pytest.mark.parametrize("place", ["/no/such/file", "file:///no/such/file", "no"])
def test_a_missing_list(store: Store, place: str) -> None:
    with pytest.raises(SourceError) as caught:
        store.snapshot(metadata=place)
    assert caught.value.uri.endswith(place)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '{"commitLogFileSegmentTable":[1]}',
        "[" * 100000,
        '{"commitLogFileSegmentTable":{"p":{"x":{"status":2}}}}',
    ],
    ids=range(8),
)
def test_invalid_lists_of_segments(store: Store, text: str) -> None:
    with pytest.raises(ConfigError, match=r"option metadata='m.*tieredStoreMetadata"):
        read(store, text, "m")
