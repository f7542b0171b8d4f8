"""What Pulsar's own broker offloaded is read as Pulsar's own client read it."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.testing import decoded_runs, discover, read_topic, resolved_rows
from sparkcache_pulsar import PulsarConnector, mapfile, uploads
from sparkcache_pulsar.frames import Walk
from sparkcache_pulsar.testing import ledger_objects

from .golden import (
    DEPENDENT,
    FILE_SYSTEM,
    GOLDEN,
    PRIVATE_KEY,
    PULSAR_4_0,
    PULSAR_4_2,
    STREAMING,
    GoldenSet,
)
from .topics import Row, at_ms

if TYPE_CHECKING:
    from sparkcache.model import Loss

CONNECTOR = PulsarConnector()
TOPICS = sorted(path.stem for path in (PULSAR_4_0.folder / "expected").glob("*.jsonl"))
OFFLOADED_BY_BROKER = sorted(
    path.name.removesuffix(".stats.json")
    for path in (PULSAR_4_0.folder / "internal").glob("*.stats.json")
)
NOT_DEPENDENT = sorted(
    path.stem
    for path in (PULSAR_4_2.folder / "expected").glob("*.jsonl")
    if not path.name.startswith(("chunked-", "encrypted-", "txn-"))
)
OVER_RUNS = [
    (DEPENDENT, "chunked-none"),
    (DEPENDENT, "chunked-zstd"),
    (DEPENDENT, "transactions"),
    (PULSAR_4_2, "chunked-across"),
    (PULSAR_4_2, "chunked-incomplete"),
    (PULSAR_4_2, "chunked-lz4"),
    (PULSAR_4_2, "chunked-none"),
    (PULSAR_4_2, "chunked-short-ledgers"),
    (PULSAR_4_2, "chunked-zstd"),
    (PULSAR_4_2, "txn-across"),
    (PULSAR_4_2, "txn-chunked"),
    (PULSAR_4_2, "txn-mixed"),
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
    topic = PULSAR_4_0.messages(name)[0]["topic"]
    rows, losses = read_topic(CONNECTOR, PULSAR_4_0.storage, topic, run_bytes=run_bytes)
    require_as_read_by_pulsar(rows, losses, PULSAR_4_0.messages(name))


@pytest.mark.parametrize("run_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("name", NOT_DEPENDENT)
def test_what_the_client_of_4_2_reads_we_read(name: str, run_bytes: int) -> None:
    topic = PULSAR_4_2.topic(name)
    manifests = [PULSAR_4_2.manifest(name, form) for form in ("info", "stats")]
    for options in ({}, *({"manifest": manifest} for manifest in manifests)):
        rows, losses = read_topic(
            CONNECTOR, PULSAR_4_2.storage, topic, options, run_bytes=run_bytes
        )
        require_as_read_by_pulsar(rows, losses, PULSAR_4_2.messages(name))


def require_as_read_by_pulsar(
    rows: list[Row], losses: list[Loss], expected: list[dict[str, Any]]
) -> None:
    assert not losses
    assert len(rows) == len(expected)
    for row, message in zip(map(as_client, rows), expected, strict=True):
        for field in row.keys() & message.keys():
            assert (field, row[field]) == (field, message[field])


@pytest.mark.parametrize("run_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("manifest", ["info", "stats"])
def test_segments_of_the_streaming_format(manifest: str, run_bytes: int) -> None:
    """They do not say whose they are; what the broker reports of the topic does."""
    topic, storage = STREAMING.topic("streaming"), STREAMING.storage
    options = {"manifest": STREAMING.manifest("streaming", manifest)}
    rows, losses = read_topic(CONNECTOR, storage, topic, options, run_bytes=run_bytes)
    require_as_read_by_pulsar(rows, losses, STREAMING.messages("streaming"))


FILES = sorted(path.stem for path in (FILE_SYSTEM.folder / "expected").glob("*.jsonl"))


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


@pytest.mark.parametrize("run_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("name", FILES)
def test_files_of_the_file_system_offloader(name: str, run_bytes: int) -> None:
    topic, storage = FILE_SYSTEM.topic(name), FILE_SYSTEM.storage
    for options in ({}, {"manifest": FILE_SYSTEM.manifest(name, "info")}):
        rows, losses = read_topic(
            CONNECTOR, storage, topic, options, run_bytes=run_bytes
        )
        require_as_read_by_pulsar(rows, losses, FILE_SYSTEM.messages(name))


@pytest.mark.parametrize("name", FILES)
def test_places_that_hadoop_has_indexed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begins an extent here; it takes more bytes than these files have."""
    monkeypatch.setattr(mapfile, "EXTENT_BYTES", 1)
    monkeypatch.setattr(mapfile, "RUN_BYTES", 1)
    monkeypatch.setattr(uploads, "_files", {})
    topic, storage = FILE_SYSTEM.topic(name), FILE_SYSTEM.storage
    snapshot = discover(CONNECTOR, storage, topic, {})
    extents = [len(of.extents) for of in snapshot.ledgers]
    assert extents == PLACES[name]
    rows, losses = read_topic(CONNECTOR, storage, topic)
    require_as_read_by_pulsar(rows, losses, FILE_SYSTEM.messages(name))


@pytest.mark.parametrize("name", TOPICS)
def test_our_writer_makes_what_the_broker_does(name: str) -> None:
    """So what is tested with it is worth something."""
    topic = PULSAR_4_0.messages(name)[0]["topic"]
    connector, storage = CONNECTOR, PULSAR_4_0.storage
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
    topic, storage = DEPENDENT.topic("encrypted"), DEPENDENT.storage
    options = {"privateKey": private_key}
    rows, losses = read_topic(CONNECTOR, storage, topic, options, run_bytes=run_bytes)
    require_as_read_by_pulsar(rows, losses, DEPENDENT.messages("encrypted"))


KEYS = {
    f"golden-{kind}": str(GOLDEN / "keys" / f"test-only-{kind}-private.pem")
    for kind in ("rsa", "ec", "ec-explicit")
}
ENCRYPTED = sorted(
    path.stem for path in (PULSAR_4_2.folder / "expected").glob("*encrypted*.jsonl")
)


@pytest.mark.parametrize("run_bytes", [1, 1 << 20])
@pytest.mark.parametrize("name", ENCRYPTED)
def test_encrypted_by_the_client_of_4_2(name: str, run_bytes: int) -> None:
    """Chunks, too; and for keys of each kind."""
    topic, storage = PULSAR_4_2.topic(name), PULSAR_4_2.storage
    options = {"privateKey": json.dumps(KEYS)}
    rows, losses = read_topic(CONNECTOR, storage, topic, options, run_bytes=run_bytes)
    require_as_read_by_pulsar(rows, losses, PULSAR_4_2.messages(name))


@pytest.mark.parametrize("parts", [1, 2, 3, 1000])
@pytest.mark.parametrize("run_bytes", [1, 20_000, 1 << 20])
@pytest.mark.parametrize(("golden", "name"), OVER_RUNS, ids=str)
def test_rows_that_depend_on_other_runs(
    golden: GoldenSet, name: str, run_bytes: int, parts: int
) -> None:
    """Whatever the runs are, and however many tasks read them."""
    topic, storage = golden.topic(name), golden.storage
    runs = list(decoded_runs(CONNECTOR, storage, topic, run_bytes=run_bytes))
    rows, losses = resolved_rows(CONNECTOR, runs, "", parts=parts)
    require_as_read_by_pulsar(rows, losses, golden.messages(name))


@pytest.mark.parametrize("parts", [1, 2, 3, 1000])
@pytest.mark.parametrize("name", ["txn-across", "txn-mixed", "txn-undecided"])
def test_what_became_of_each_transaction(name: str, parts: int) -> None:
    topic, storage = PULSAR_4_2.topic(name), PULSAR_4_2.storage
    options = {"isolation": "read_uncommitted"}
    runs = list(decoded_runs(CONNECTOR, storage, topic, options, run_bytes=1))
    decoding = CONNECTOR.decoding(options)
    rows, losses = resolved_rows(CONNECTOR, runs, decoding, parts=parts)
    assert not losses
    expected = PULSAR_4_2.messages(f"{name}.all")
    assert [(row["__txn"], row["__txnState"]) for row in rows] == [
        (message["txn"], message["outcome"]) for message in expected
    ]
    require_as_read_by_pulsar(rows, [], expected)


def test_what_follows_an_undecided_transaction_is_read() -> None:
    """By Pulsar's reader it is not, so what it read is where we begin."""
    topic = PULSAR_4_2.topic("txn-undecided")
    rows, losses = read_topic(CONNECTOR, PULSAR_4_2.storage, topic)
    by_pulsar = PULSAR_4_2.messages("txn-undecided")
    require_as_read_by_pulsar(rows[: len(by_pulsar)], losses, by_pulsar)
    assert [as_client(row)["messageId"] for row in rows] == [
        message["messageId"]
        for message in PULSAR_4_2.messages("txn-undecided.all")
        if message["outcome"] in (None, "committed")
    ]


@pytest.mark.parametrize("name", OFFLOADED_BY_BROKER)
def test_the_bucket_says_what_the_broker_reports(name: str) -> None:
    """What follows the broker's list is only its last ledger, open and empty."""
    internal = json.loads(PULSAR_4_0.manifest(name, "stats"))
    topic = PULSAR_4_0.messages(name)[0]["topic"]
    storage = PULSAR_4_0.storage
    snapshot = discover(CONNECTOR, storage, topic, {})
    for form in ("info", "stats"):
        options = {"manifest": PULSAR_4_0.manifest(name, form)}
        assert discover(CONNECTOR, storage, topic, options) == snapshot
    found = [(of.ledger.id, of.extents[-1].last + 1) for of in snapshot.ledgers]
    assert found == [
        (ledger["ledgerId"], ledger["entries"])
        for ledger in internal["ledgers"]
        if ledger["offloaded"]
    ]
