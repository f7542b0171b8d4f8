"""Segments that RocketMQ's own brokers tiered, and what their tiered store read.

`tests/golden/rocketmq/` has `posix/`, as it lay on the disk, `expected/`, one message a
line for each queue, and `metadata/`, the brokers' lists of segments.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections import Counter
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.connector import Selection
from sparkcache.testing import MemoryStorage, read_topic
from sparkcache_rocketmq import RocketMQConnector, metadata
from sparkcache_rocketmq.discovery import Catalog
from sparkcache_rocketmq.names import COMMIT_LOG, CONSUME_QUEUE, Key, Queue
from sparkcache_rocketmq.records import CODA_BYTES, chain, is_coda

from .stores import base, read_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = dict[str, Any]

CONNECTOR = RocketMQConnector()
GOLDEN = Path(__file__).parents[2] / "golden" / "rocketmq"
CLUSTER = "GoldenCluster"
EXPECTED = sorted(path.stem for path in (GOLDEN / "expected").glob("*.jsonl"))
BROKERS = ("broker-a", "broker-b", "broker-c")
INNER = "broker-a.Inner.0"
MESSAGES_ALONE = sorted(set(EXPECTED) - {INNER})
ITEM_BYTES = 20


@cache
def objects() -> dict[str, bytes]:
    tree = GOLDEN / "posix"
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }


def stored(found: dict[str, bytes]) -> MemoryStorage:
    storage = MemoryStorage()
    for name, data in found.items():
        storage.put(name, data)
    return storage


def messages(name: str) -> list[Row]:
    """Return what RocketMQ read, each message once."""
    lines = (GOLDEN / "expected" / f"{name}.jsonl").read_text().splitlines()
    by_offset = {row["queueOffset"]: row for row in map(json.loads, lines)}
    return list(by_offset.values())


def queue(name: str) -> Queue:
    first = messages(name)[0]
    return Queue(CLUSTER, first["broker"], first["topic"], first["queueId"])


def flat_file(of: Queue, kind: str) -> list[bytes]:
    """Return the segments of a queue, in order."""
    parts = f"/{of.path}/{kind}/"
    return [objects()[name] for name in sorted(objects(), key=base) if parts in name]


def records(of: Queue) -> Iterator[bytes]:
    for data in flat_file(of, COMMIT_LOG):
        starts = chain(data, 0, len(data))
        for start in starts:
            yield data[start : start + int.from_bytes(data[start : start + 4], "big")]


def host(text: str) -> str:
    """Bring a host that Java wrote into our form."""
    address, _, port = text.partition(" ")
    ip = ip_address(address)
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"


def as_read(message: Row) -> Row:
    """Bring what RocketMQ read into the form of our rows."""
    properties = message["properties"]
    return {
        "__topic": message["topic"],
        "__broker": message["broker"],
        "__queueId": message["queueId"],
        "__queueOffset": message["queueOffset"],
        "__tags": properties.get("TAGS"),
        "__keys": properties.get("KEYS"),
        "__uniqKey": properties.get("UNIQ_KEY"),
        "__properties": properties,
        "__flag": message["flag"],
        "__bornTimestamp": message["bornTimestamp"],
        "__storeTimestamp": message["storeTimestamp"],
        "__bornHost": host(message["bornHost"]),
        "__storeHost": host(message["storeHost"]),
        "__reconsumeTimes": message["reconsumeTimes"],
        "value": b64decode(message["value"]),
    }


def plain(row: Row) -> Row:
    """Return a row with its times in milliseconds, and its properties by name."""

    def value(name: str, of: Any) -> Any:
        if name.endswith("Timestamp"):
            return round(of.timestamp() * 1000)
        return dict(of) if name == "__properties" else of

    return {name: value(name, of) for name, of in row.items()}


def require_as_read(rows: list[Row], expected: list[Row]) -> None:
    assert [row["__queueOffset"] for row in rows] == [
        message["queueOffset"] for message in expected
    ]
    for row, message in zip(rows, expected, strict=True):
        assert plain(row) == as_read(message)


@pytest.mark.parametrize("run_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("name", MESSAGES_ALONE)
def test_what_rocketmq_reads_we_read(name: str, run_bytes: int) -> None:
    topic = str(queue(name))
    rows, losses = read_topic(CONNECTOR, stored(objects()), topic, run_bytes=run_bytes)
    assert not losses
    require_as_read(rows, messages(name))


@pytest.mark.parametrize("run_bytes", [1, 1000, 1500, 3000, 1 << 20])
def test_each_message_of_an_inner_batch_is_read_once(run_bytes: int) -> None:
    """The brokers tiered each batch once for each of its messages."""
    topic = str(queue(INNER))
    rows, losses = read_topic(CONNECTOR, stored(objects()), topic, run_bytes=run_bytes)
    assert not losses
    assert len(list(records(queue(INNER)))) == len(rows)
    require_as_read(rows, messages(INNER))


@pytest.mark.parametrize("run_bytes", [1, 700, 1000, 1500, 3000])
@pytest.mark.parametrize("extent_bytes", [1, 1000, 2000, 1 << 20])
def test_each_run_of_inner_batches_can_be_read_alone(
    run_bytes: int, extent_bytes: int
) -> None:
    storage = stored(objects())
    snapshot = Catalog(storage, {}, "", extent_bytes).snapshot(str(queue(INNER)))
    rows, losses = read_each(storage, snapshot, run_bytes)
    assert not losses
    require_as_read(rows, messages(INNER))


@pytest.mark.parametrize("name", EXPECTED)
def test_rocketmq_read_them_from_the_tier(name: str) -> None:
    """Where it says they lie, they do, which they did not in the broker's own log."""
    of = queue(name)
    places = {
        int.from_bytes(record[28:36], "big"): int.from_bytes(record[20:28], "big")
        for record in records(of)
    }
    for message in messages(name):
        assert places[message["physicalOffset"]] <= message["queueOffset"]


def test_there_are_all_forms_of_records() -> None:
    """A release that writes golden files again may do without some of them."""
    forms = Counter(
        (record[7], int.from_bytes(record[36:40], "big"))
        for name in EXPECTED
        for record in records(queue(name))
    )
    flags = {flag for _, flag in forms}
    assert {magic for magic, _ in forms} == {0xA7, 0xAB}
    assert {flag & 0x30 for flag in flags} == {0, 0x10, 0x20, 0x30}
    assert {flag & 0x701 for flag in flags if flag & 1} == {1, 0x101, 0x201, 0x301}
    assert {flag & 0x0C for flag in flags} == {0, 0x08}
    assert {0x02, 0xC0} < flags


@pytest.mark.parametrize("queue_id", [0, 1])
def test_full_segments_of_old_releases_end_with_a_coda(queue_id: int) -> None:
    of = Queue(CLUSTER, "broker-c", "Codas", queue_id)
    *full, last = flat_file(of, COMMIT_LOG)
    assert full
    assert all(is_coda(data, len(data) - CODA_BYTES) for data in full)
    assert not is_coda(last, len(last) - CODA_BYTES)


def test_every_object_but_those_of_indexes_is_one_of_a_queue() -> None:
    unknown = [name for name in objects() if Key.parse(name) is None]
    assert unknown
    assert all("/rmq_sys_INDEX/0/INDEX/" in name for name in unknown)


def test_every_queue_is_found() -> None:
    catalog = CONNECTOR.catalog(stored(objects()), {})
    found = catalog.select(Selection((), re.compile(".*")))
    assert sorted(found) == sorted(str(queue(name)) for name in EXPECTED)


def test_what_has_no_item_yet_is_not_read() -> None:
    of = Queue(CLUSTER, "broker-a", "Tail", 0)
    (items,) = flat_file(of, CONSUME_QUEUE)
    assert (len(list(records(of))), len(items)) == (7, 6 * ITEM_BYTES)


@pytest.mark.parametrize("cut", [1, 7, 19])
@pytest.mark.parametrize("name", ["broker-a.Tail.0", "broker-a.Segments.0"])
def test_the_last_item_may_be_there_in_part(name: str, cut: int) -> None:
    of = queue(name)
    found = dict(objects())
    parts = f"/{of.path}/{CONSUME_QUEUE}/"
    last = max((key for key in found if parts in key), key=base)
    found[last] = found[last][: cut - ITEM_BYTES]
    rows, losses = read_topic(CONNECTOR, stored(found), str(of))
    assert not losses
    require_as_read(rows, messages(name)[:-1])


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("ending", ["", ".bak"])
def test_brokers_write_numbers_that_are_keys_without_quotes(
    broker: str, ending: str
) -> None:
    text = (GOLDEN / "metadata" / f"{broker}.json{ending}").read_text()
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


@pytest.mark.parametrize("ending", ["", ".bak"])
@pytest.mark.parametrize("name", EXPECTED)
def test_with_the_list_of_segments_the_same_is_read(name: str, ending: str) -> None:
    of = queue(name)
    options = {metadata.OPTION: str(GOLDEN / "metadata" / f"{of.broker}.json{ending}")}
    rows, losses = read_topic(CONNECTOR, stored(objects()), str(of), options)
    assert not losses
    require_as_read(rows, messages(name))
