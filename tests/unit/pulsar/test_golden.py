"""What Pulsar's own broker offloaded is read as Pulsar's own client read it."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.testing import (
    MemoryStorage,
    decoded_runs,
    discover,
    read_topic,
    resolved_rows,
)
from sparkcache_pulsar import PulsarConnector, mapfile, uploads
from sparkcache_pulsar.frames import Walk
from sparkcache_pulsar.testing import ledger_objects

from .golden import GOLDEN, PRIVATE_KEY, bucket
from .topics import Row, at_ms

if TYPE_CHECKING:
    from sparkcache.model import Loss

CONNECTOR = PulsarConnector()
TOPICS = sorted(path.stem for path in (GOLDEN / "expected").glob("*.jsonl"))
OFFLOADED_BY_BROKER = sorted(
    path.name.removesuffix(".stats.json")
    for path in (GOLDEN / "internal").glob("*.stats.json")
)
NEWEST = sorted(
    path.stem
    for path in (GOLDEN / "expected-newest").glob("*.jsonl")
    if not path.name.startswith(("chunked-", "encrypted-", "txn-"))
)
OVER_RUNS = [
    ("later", "chunked-none"),
    ("later", "chunked-zstd"),
    ("later", "transactions"),
    ("newest", "chunked-across"),
    ("newest", "chunked-incomplete"),
    ("newest", "chunked-lz4"),
    ("newest", "chunked-none"),
    ("newest", "chunked-short-ledgers"),
    ("newest", "chunked-zstd"),
    ("newest", "txn-across"),
    ("newest", "txn-chunked"),
    ("newest", "txn-mixed"),
]


def as_client(row: Row) -> dict[str, Any]:
    """Bring a row into the form in which the client's messages were written down."""

    def millis(name: str) -> int | None:
        time = row[name]
        return None if time is None else round((time - at_ms(0)).total_seconds() * 1e3)

    def text(name: str) -> str | None:
        return None if row[name] is None else b64encode(row[name]).decode()

    return {
        "topic": row["__topic"],
        "ledgerId": row["__ledgerId"],
        "entryId": row["__entryId"],
        "batchIndex": -1 if row["__batchIndex"] is None else row["__batchIndex"],
        "partition": -1 if row["__partition"] is None else row["__partition"],
        "publishTime": millis("__publishTime"),
        "eventTime": millis("__eventTime"),
        "brokerPublishTime": millis("__brokerPublishTime"),
        "index": row["__index"],
        "key": text("__key"),
        "orderingKey": text("__orderingKey"),
        "sequenceId": row["__sequenceId"],
        "producerName": row["__producerName"],
        "properties": row["__properties"],
        "schemaVersion": text("__schemaVersion"),
        "value": text("value"),
        "messageId": text("__messageId"),
    }


@pytest.mark.parametrize("run_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("name", TOPICS)
def test_what_pulsar_reads_we_read(name: str, run_bytes: int) -> None:
    first_line = (GOLDEN / "expected" / f"{name}.jsonl").read_text().splitlines()[0]
    topic = json.loads(first_line)["topic"]
    rows, losses = read_topic(CONNECTOR, bucket(), topic, run_bytes=run_bytes)
    require_as_read_by_pulsar(rows, losses, f"expected/{name}")


@pytest.mark.parametrize("run_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("name", NEWEST)
def test_what_the_newest_client_reads_we_read(name: str, run_bytes: int) -> None:
    topic = f"persistent://public/newest/{name}"
    for options in ({}, *manifests("-newest", name)):
        rows, losses = read_topic(
            CONNECTOR, bucket("-newest"), topic, options, run_bytes=run_bytes
        )
        require_as_read_by_pulsar(rows, losses, f"expected-newest/{name}")


def manifests(suffix: str, name: str) -> list[dict[str, str]]:
    """What the broker tells of a topic, in both of its forms."""
    folder = GOLDEN / f"internal{suffix}"
    return [
        {"manifest": (folder / f"{name}.{form}.json").read_text()}
        for form in ("info", "stats")
    ]


def messages(name: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def require_as_read_by_pulsar(rows: list[Row], losses: list[Loss], name: str) -> None:
    expected = messages(name)
    assert not losses
    assert len(rows) == len(expected)
    for row, message in zip(map(as_client, rows), expected, strict=True):
        for field in row.keys() & message.keys():
            assert (field, row[field]) == (field, message[field])


STREAMING = "persistent://public/streaming/streaming"


@pytest.mark.parametrize("run_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("manifest", ["info", "stats"])
def test_segments_of_the_streaming_format(manifest: str, run_bytes: int) -> None:
    """They do not say whose they are; what the broker tells of the topic does."""
    folder = GOLDEN / "internal-streaming"
    options = {"manifest": (folder / f"streaming.{manifest}.json").read_text()}
    rows, losses = read_topic(
        CONNECTOR, bucket("-streaming"), STREAMING, options, run_bytes=run_bytes
    )
    require_as_read_by_pulsar(rows, losses, "expected-streaming/streaming")


FILES = sorted(path.stem for path in (GOLDEN / "expected-filesystem").glob("*.jsonl"))


PLACES = {  # entries, and the one of metadata, by the index's interval; or blocks
    "default": [1, 1],
    "repeated": [1],
    "none": [8],
    "record": [8],
    "block-1": [3],
    "block-7": [3],
    "block-128": [1],
} | {
    f"{codec}-{kind}": [extents]
    for codec in ("bzip2", "gzip", "lz4", "snappy")
    for kind, extents in (("record", 6), ("block", 3))
}


@cache
def folders() -> MemoryStorage:
    """What lies in the folder of the file system offloader."""
    storage = MemoryStorage()
    top = GOLDEN / "objects-filesystem"
    for path in top.rglob("*"):
        if path.is_file():
            storage.put(str(path.relative_to(top)), path.read_bytes())
    return storage


@pytest.mark.parametrize("run_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("name", FILES)
def test_files_of_the_file_system_offloader(name: str, run_bytes: int) -> None:
    topic = f"persistent://public/filesystem/{name}"
    told = (GOLDEN / "internal-filesystem" / f"{name}.info.json").read_text()
    for options in ({}, {"manifest": told}):
        rows, losses = read_topic(
            CONNECTOR, folders(), topic, options, run_bytes=run_bytes
        )
        require_as_read_by_pulsar(rows, losses, f"expected-filesystem/{name}")


@pytest.mark.parametrize("name", FILES)
def test_places_that_hadoop_has_indexed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begins an extent here; it takes more bytes than these files have."""
    monkeypatch.setattr(mapfile, "EXTENT_BYTES", 1)
    monkeypatch.setattr(mapfile, "RUN_BYTES", 1)
    monkeypatch.setattr(uploads, "_indexes", {})
    topic = f"persistent://public/filesystem/{name}"
    snapshot = discover(CONNECTOR, folders(), topic, {})
    extents = [len(of.extents) for of in snapshot.ledgers]
    assert extents == PLACES[name]
    rows, losses = read_topic(CONNECTOR, folders(), topic)
    require_as_read_by_pulsar(rows, losses, f"expected-filesystem/{name}")


@pytest.mark.parametrize("name", TOPICS)
def test_our_writer_makes_what_the_broker_does(name: str) -> None:
    """So what is tested with it is worth something."""
    first_line = (GOLDEN / "expected" / f"{name}.jsonl").read_text().splitlines()[0]
    topic = json.loads(first_line)["topic"]
    connector, storage = CONNECTOR, bucket()
    for found in discover(connector, storage, topic, {}).ledgers:
        entries: list[bytes] = []
        for extent in found.extents:
            stream = storage.open(found.ledger.object, extent.offset, extent.size_bytes)
            runs = connector.runs(extent, 1)
            for raw in connector.split(found.ledger, extent, runs, stream):
                walk = Walk(raw.run.first)
                walk.advance(raw.data, raw.run.last, len(raw.data))
                bounds = zip(walk.starts, [*walk.starts[1:], walk.offset], strict=True)
                entries += (bytes(raw.data[at + 12 : end]) for at, end in bounds)
        block_bytes = found.extents[0].size_bytes
        data, _ = ledger_objects(topic, 1, entries, max_block_bytes=block_bytes)
        assert data.data == storage.get(found.ledger.object.uri).data


@pytest.mark.parametrize("run_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize(
    "private_key",
    [
        pytest.param(str(PRIVATE_KEY), id="a path"),
        pytest.param(PRIVATE_KEY.as_uri(), id="a URI"),
        pytest.param(json.dumps({"golden-key": str(PRIVATE_KEY)}), id="by name"),
    ],
)
def test_messages_that_were_encrypted(private_key: str, run_bytes: int) -> None:
    topic, storage = "persistent://public/later/encrypted", bucket("-later")
    options = {"privateKey": private_key}
    rows, losses = read_topic(CONNECTOR, storage, topic, options, run_bytes=run_bytes)
    require_as_read_by_pulsar(rows, losses, "expected-later/encrypted")


KEYS = {
    f"golden-{kind}": str(GOLDEN / "keys" / f"test-only-{kind}-private.pem")
    for kind in ("rsa", "ec", "ec-explicit")
}
ENCRYPTED = sorted(
    path.stem for path in (GOLDEN / "expected-newest").glob("*encrypted*.jsonl")
)


@pytest.mark.parametrize("run_bytes", [1, 1 << 20])
@pytest.mark.parametrize("name", ENCRYPTED)
def test_encrypted_by_the_newest_client(name: str, run_bytes: int) -> None:
    """Chunks, too; and for keys of each kind."""
    topic, storage = f"persistent://public/newest/{name}", bucket("-newest")
    options = {"privateKey": json.dumps(KEYS)}
    rows, losses = read_topic(CONNECTOR, storage, topic, options, run_bytes=run_bytes)
    require_as_read_by_pulsar(rows, losses, f"expected-newest/{name}")


@pytest.mark.parametrize("parts", [1, 2, 3, 1000])
@pytest.mark.parametrize("run_bytes", [1, 20_000, 1 << 20])
@pytest.mark.parametrize(("namespace", "name"), OVER_RUNS)
def test_rows_that_depend_on_other_runs(
    namespace: str, name: str, run_bytes: int, parts: int
) -> None:
    """Whatever the runs are, and however many tasks read them."""
    topic = f"persistent://public/{namespace}/{name}"
    storage = bucket(f"-{namespace}")
    runs = list(decoded_runs(CONNECTOR, storage, topic, run_bytes=run_bytes))
    rows, losses = resolved_rows(CONNECTOR, runs, "", parts=parts)
    require_as_read_by_pulsar(rows, losses, f"expected-{namespace}/{name}")


@pytest.mark.parametrize("parts", [1, 2, 3, 1000])
@pytest.mark.parametrize("name", ["txn-across", "txn-mixed", "txn-undecided"])
def test_what_became_of_each_transaction(name: str, parts: int) -> None:
    topic = f"persistent://public/newest/{name}"
    options = {"isolation": "read_uncommitted"}
    storage = bucket("-newest")
    runs = list(decoded_runs(CONNECTOR, storage, topic, options, run_bytes=1))
    decoding = CONNECTOR.decoding(options)
    rows, losses = resolved_rows(CONNECTOR, runs, decoding, parts=parts)
    assert not losses
    expected = messages(f"expected-newest/{name}.all")
    assert [(row["__txn"], row["__txnState"]) for row in rows] == [
        (message["txn"], message["outcome"]) for message in expected
    ]
    require_as_read_by_pulsar(rows, [], f"expected-newest/{name}.all")


def test_what_follows_an_undecided_transaction_is_read() -> None:
    """By Pulsar's reader it is not, so what it read is where we begin."""
    topic = "persistent://public/newest/txn-undecided"
    rows, losses = read_topic(CONNECTOR, bucket("-newest"), topic)
    by_pulsar = messages("expected-newest/txn-undecided")
    require_as_read_by_pulsar(
        rows[: len(by_pulsar)], losses, "expected-newest/txn-undecided"
    )
    assert [as_client(row)["messageId"] for row in rows] == [
        message["messageId"]
        for message in messages("expected-newest/txn-undecided.all")
        if message["outcome"] in (None, "committed")
    ]


@pytest.mark.parametrize("name", OFFLOADED_BY_BROKER)
def test_the_bucket_says_what_the_broker_said(name: str) -> None:
    """Behind the broker's list is only its last ledger, which is open and empty."""
    first_line = (GOLDEN / "expected" / f"{name}.jsonl").read_text().splitlines()[0]
    internal = json.loads((GOLDEN / "internal" / f"{name}.stats.json").read_text())
    topic = json.loads(first_line)["topic"]
    snapshot = discover(CONNECTOR, bucket(), topic, {})
    for form in ("info", "stats"):
        told = (GOLDEN / "internal" / f"{name}.{form}.json").read_text()
        options = {"manifest": told}
        assert discover(CONNECTOR, bucket(), topic, options) == snapshot
    found = [(of.ledger.id, of.extents[-1].last + 1) for of in snapshot.ledgers]
    assert found == [
        (ledger["ledgerId"], ledger["entries"])
        for ledger in internal["ledgers"]
        if ledger["offloaded"]
    ]
