"""Chunked messages and transactions: rows that depend on other runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from effort import tries
from hypothesis import given, settings

from sparkcache.errors import ConfigError
from sparkcache.testing import MemoryStorage, decoded_runs, resolved_rows
from sparkcache_pulsar import PulsarConnector, chunks, codecs
from sparkcache_pulsar.testing import (
    Codec,
    Entry,
    Message,
    bytes_field,
    varint_field,
)

from .topics import TOPIC, TXN_ABORT, TXN_COMMIT, expected_rows, store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.connector import DecodedRun
    from sparkcache.model import Loss, RunKey

    from .topics import Row

CONNECTOR = PulsarConnector()
UNCOMMITTED = {"isolation": "read_uncommitted"}


def read(
    storage: MemoryStorage,
    options: dict[str, str] | None = None,
    *,
    run_bytes: int = 1,
    parts: int = 1,
) -> tuple[list[Row], list[Loss]]:
    options = options or {}
    runs = list(decoded_runs(CONNECTOR, storage, TOPIC, options, run_bytes=run_bytes))
    return resolved_rows(CONNECTOR, runs, CONNECTOR.decoding(options), parts=parts)


def single(value: bytes, **fields: Any) -> Entry:
    return Entry((Message(value),), batched=False, **fields)


def values(rows: Sequence[Row]) -> list[bytes]:
    return [row["value"] for row in rows]


def marker(txn: tuple[int, int], kind: int) -> Entry:
    return single(b"", txn=txn, marker=kind)


# Chunks


VALUE = bytes(range(250)) * 4
THREE = single(VALUE).encode_chunks(400, "m")


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("codec", Codec)
def test_a_message_of_chunks_is_one_row_where_its_last_chunk_is(
    codec: Codec, parts: int
) -> None:
    message = Message(VALUE, key="k", properties=(("a", "b"),), event_time_ms=5)
    entry = Entry((message,), batched=False, codec=codec, broker=(9, 100))
    written = entry.encode_chunks(150, "m")
    before, between = single(b"before"), single(b"between")
    in_order = [before.encode(), *written[:-1], between.encode(), written[-1]]
    rows, losses = read(store(in_order), parts=parts)
    assert not losses
    assert values(rows) == [b"before", b"between", VALUE]
    last = len(in_order) - 1
    (expected,) = expected_rows([entry])
    first_id, last_id = b"\x08\x07\x10\x010\0", b"\x08\x07\x10" + bytes([last]) + b"0\0"
    assert rows[-1] == expected | {
        "__entryId": last,
        "__messageId": last_id + b"\x3a" + bytes([len(first_id)]) + first_id,
    }


def test_a_message_of_chunks_in_several_ledgers() -> None:
    storage = MemoryStorage()
    for ledger, chunk in enumerate(THREE, start=7):
        store([chunk], ledger=ledger, storage=storage)
    for parts in (1, 2, 3):
        rows, losses = read(storage, parts=parts)
        assert (values(rows), losses) == ([VALUE], [])
        assert (rows[0]["__ledgerId"], rows[0]["__entryId"]) == (9, 0)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("order", "messages"),
    [
        pytest.param([0, 0, 1, 2], 1, id="the first again"),
        pytest.param([0, 1, 0, 1, 2], 1, id="all again, before the last"),
        pytest.param([0, 1, 1, 2], 1, id="one again"),
        pytest.param([0, 1, 2, 2], 1, id="the last again"),
        pytest.param([0, 1, 2, 1, 2], 1, id="some again, after the last"),
        pytest.param([0, 1, 2, 0, 1, 2], 2, id="all again: another message"),
        pytest.param([0, 1], 0, id="no end"),
        pytest.param([0, 1, 0], 0, id="no end, begun anew"),
    ],
)
def test_chunks_sent_again(order: list[int], messages: int, parts: int) -> None:
    rows, losses = read(store([THREE[number] for number in order]), parts=parts)
    assert values(rows) == [VALUE] * messages
    assert not losses


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(
    ("order", "missing"), [([1, 2], 0), ([0, 2], 1), ([2], 0), ([1, 0, 2], 1)]
)
def test_a_missing_chunk_is_a_loss_of_the_last_one(
    order: list[int], missing: int, parts: int
) -> None:
    written = [THREE[number] for number in order]
    rows, (loss,) = read(store([*written, single(b"x").encode()]), parts=parts)
    assert values(rows) == [b"x"]
    assert (loss.first, loss.last) == (len(order) - 1, len(order) - 1)
    assert f"no chunk {missing}" in str(loss)
    assert loss.offset == 128 + sum(12 + len(entry) for entry in written[:-1])


def test_a_damaged_chunk_is_a_loss_and_so_is_its_message() -> None:
    damaged = bytearray(THREE[1])
    damaged[-1] ^= 1
    rows, losses = read(store([THREE[0], bytes(damaged), THREE[2]]))
    assert not rows
    assert [(loss.first, loss.last) for loss in losses] == [(1, 1), (2, 2)]


def test_chunks_that_do_not_decompress_are_a_loss() -> None:
    written = single(VALUE, codec=Codec.ZSTD).encode_chunks(100, "m")
    other = single(VALUE * 2, codec=Codec.ZSTD).encode_chunks(100, "m")
    assert len(other) == len(written)
    rows, (loss,) = read(store([*written[:-1], other[-1]]))
    assert not rows
    assert "ZSTD" in loss.expected


def chunk_of(data: bytes, number: int, fields: bytes = b"") -> Entry:
    """One of two, of a message that says it has 6 bytes."""
    chunk = varint_field(27, 2) + varint_field(28, 6) + varint_field(29, number)
    return single(data, extra_metadata=bytes_field(26, b"m") + chunk + fields)


def test_a_size_beyond_int64_says_nothing_of_chunks_that_are_plain() -> None:
    size = varint_field(9, 2**64 - 1)
    rows, losses = read(store([chunk_of(b"x", 0, size), chunk_of(b"y", 1, size)]))
    assert (values(rows), losses) == ([b"xy"], [])


def test_chunks_that_are_more_than_they_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "MAX_PAYLOAD_BYTES", 100)
    good = [chunk_of(b"x" * 50, number) for number in (0, 1)]
    bad = [chunk_of(b"y" * 51, number) for number in (0, 1)]
    rows, (loss,) = read(store([*good, *bad]))
    assert values(rows) == [b"x" * 100]
    assert (loss.first, loss.expected) == (3, "a message of up to 100 bytes")


@pytest.mark.parametrize("run_bytes", [1, 1 << 20])
def test_what_the_messages_of_a_run_become_is_bounded(
    run_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codecs, "MAX_RUN_BYTES", 1 << 20)
    monkeypatch.setattr(codecs, "MAX_RUN_RATIO", 1)
    entry = single(bytes(300_000), codec=Codec.ZSTD)
    written = [
        chunk for number in range(10) for chunk in entry.encode_chunks(20, f"m{number}")
    ]
    ends = [len(written) * (number + 1) // 10 - 1 for number in range(10)]
    rows, losses = read(store(written), run_bytes=run_bytes)
    whole = 10 if run_bytes == 1 else 3
    assert [row["__entryId"] for row in rows] == ends[:whole]
    assert [loss.first for loss in losses] == ends[whole:]
    assert all("a run that fits into memory" in str(loss) for loss in losses)


def test_how_far_back_a_beginning_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    between = [single(b"x" * 1000).encode()] * 10
    storage = store([*THREE[:2], *between, THREE[2]])
    assert len(read(storage, parts=2)[0]) == 11
    monkeypatch.setattr(chunks, "MAX_BYTES_BACK", 2_000)
    rows, (loss,) = read(storage, parts=13)
    assert len(rows) == 10
    assert "no chunk 0" in loss.found


def test_chunks_have_a_schema_too() -> None:
    good = single(b"h\xc3\xa9llo").encode_chunks(2, "a")
    bad = single(b"h\xc3llo").encode_chunks(2, "b")
    storage = store([*good, *bad])
    rows, (loss,) = read(storage, {"valueSchema": "STRING"})
    assert values(rows) == ["héllo"]
    assert "utf-8" in str(loss)
    rows, losses = read(storage, {"valueSchema": "STRING", "mode": "PERMISSIVE"})
    assert [(row["value"], row["__corruptValue"]) for row in rows] == [
        ("héllo", None),
        (None, b"h\xc3llo"),
    ]
    assert not losses


# Transactions

ONE, TWO, THIRD = (1, 1), (1, 2), (1, 3)
MIXED = [
    single(b"plain"),
    single(b"one", txn=ONE),
    single(b"two", txn=TWO),
    single(b"third", txn=THIRD),
    marker(ONE, TXN_COMMIT),
    Entry((Message(b"two, too"), Message(b"and again")), txn=TWO),
    single(b"more"),
    marker(TWO, TXN_ABORT),
]
ENCODED = [entry.encode() for entry in MIXED]


@pytest.mark.parametrize("parts", range(1, 9))
def test_what_was_committed_is_read(parts: int) -> None:
    rows, losses = read(store(ENCODED), parts=parts)
    assert values(rows) == [b"plain", b"one", b"more"]
    assert not losses


@pytest.mark.parametrize("parts", range(1, 9))
def test_what_was_not_can_be_read_with_its_state(parts: int) -> None:
    rows, _ = read(store(ENCODED), UNCOMMITTED, parts=parts)
    assert [(row["value"], row["__txnState"]) for row in rows] == [
        (b"plain", None),
        (b"one", "committed"),
        (b"two", "aborted"),
        (b"third", "undecided"),
        (b"two, too", "aborted"),
        (b"and again", "aborted"),
        (b"more", None),
    ]


@pytest.mark.parametrize("parts", range(1, 6))
def test_what_a_damaged_end_leaves_undecided_is_a_loss(parts: int) -> None:
    """As it may have been committed. Only what is lost behind it can be its end."""
    damaged = bytearray(marker(ONE, TXN_COMMIT).encode())
    damaged[-1] ^= 1
    earlier = bytes(damaged)
    written = [single(b"one", txn=ONE), single(b"plain"), single(b"two", txn=TWO)]
    encoded = [entry.encode() for entry in written]
    rows, losses = read(store([*encoded, bytes(damaged)]), parts=parts)
    assert values(rows) == [b"plain"]
    assert [loss.first for loss in losses] == [0, 2, 3]
    assert "the end of the transaction" in str(losses[0])
    assert "entries 7:3-3 are lost" in str(losses[0])
    rows, losses = read(store([earlier, *encoded]), parts=parts)
    assert values(rows) == [b"plain"]
    assert [loss.first for loss in losses] == [0]
    rows, losses = read(store([*encoded, bytes(damaged)]), UNCOMMITTED, parts=parts)
    assert [row["__txnState"] for row in rows] == ["undecided", None, "undecided"]
    assert [loss.first for loss in losses] == [3]


def test_what_is_undecided_is_told(caplog: pytest.LogCaptureFixture) -> None:
    read(store(ENCODED))
    (record,) = caplog.records
    assert "isolation=read_uncommitted" in record.message


def test_an_end_in_a_later_ledger() -> None:
    storage = store(ENCODED[:4])
    store([b"", *ENCODED[4:]], ledger=9, storage=storage)
    rows, _ = read(storage, parts=2)
    assert values(rows) == [b"plain", b"one", b"more"]


class Ahead:
    """Neighbours of runs; knows how often they were looked at, and who still does."""

    def __init__(self, runs: Sequence[tuple[RunKey, DecodedRun]]) -> None:
        self._runs = runs
        self.begun = self.open = 0

    def before(self) -> Iterator[Iterator[DecodedRun]]:
        return iter(())

    def behind(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        self.begun += 1
        self.open += 1
        try:
            yield from (found for found in self._runs if found[0].run > key.run)
        finally:
            self.open -= 1


def test_who_looks_ahead_goes_on_from_there_until_overtaken() -> None:
    """Each run has a message of a transaction that ends in the next one."""
    written = [single(b"plain")]
    for number in range(9):
        txn = (0, number)
        written += [single(b"x", txn=txn), marker(txn, TXN_COMMIT)]
    written += [single(b"plain")] * 6
    encoded = [entry.encode() for entry in written]
    size = sum(map(len, encoded)) // len(encoded) + 12  # of one, with its frame
    runs = list(decoded_runs(CONNECTOR, store(encoded), TOPIC, run_bytes=2 * size))
    assert {key.run.last - key.run.first for key, _ in runs[:-1]} == {1}
    ahead = Ahead(runs)
    resolver = CONNECTOR.resolver("", {}, ahead)
    found = [
        (sum(map(len, resolver.resolve(key, run).batches)), ahead.open)
        for key, run in runs
    ]
    assert found == [(2, 1), *[(1, 1)] * 9, (2, 0), (2, 0), (1, 0)]
    assert ahead.begun == 1


def test_runs_without_transactions_have_the_column_all_the_same() -> None:
    rows, _ = read(store([single(b"x").encode()]), UNCOMMITTED)
    assert rows[0]["__txnState"] is None
    assert CONNECTOR.schema(CONNECTOR.decoding(UNCOMMITTED)).names[-2:] == [
        "__txnState",
        "value",
    ]


def test_the_isolation_must_be_one_there_is() -> None:
    with pytest.raises(ConfigError, match="read_committed or read_uncommitted"):
        CONNECTOR.decoding({"isolation": "serializable"})


def test_runs_of_neither_are_as_they_were_without() -> None:
    plain = single(b"x").encode()
    (_, decoded), *_ = decoded_runs(CONNECTOR, store([plain]), TOPIC)
    assert decoded.batches[0].schema == CONNECTOR.schema("")


# All together


@st.composite
def topics(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """Draw what producers send, interleaved, and the values that are to be read."""
    sent: list[list[tuple[bytes, bytes | None]]] = []
    ends = {txn: draw(st.sampled_from([None, TXN_COMMIT, TXN_ABORT])) for txn in (1, 2)}
    for producer in range(draw(st.integers(1, 4))):
        mine: list[tuple[bytes, bytes | None]] = []
        for number in range(draw(st.integers(0, 4))):
            value = bytes([producer, number]) * draw(st.integers(1, 40))
            txn = draw(st.sampled_from([None, None, 1, 2]))
            entry = single(value, codec=draw(st.sampled_from(Codec)))
            is_read = True
            if txn:
                entry = replace(entry, txn=(0, txn))
                is_read = ends[txn] == TXN_COMMIT
            size = draw(st.integers(1, 60))
            encoded = entry.encode_chunks(size, f"{producer}:{number}")
            if len(encoded) == 1:
                encoded = [entry.encode()]
            mine += [(chunk, None) for chunk in encoded[:-1]]
            mine.append((encoded[-1], value if is_read else None))
        sent.append(mine)
    order = draw(st.permutations([n for n, mine in enumerate(sent) for _ in mine]))
    merged = [sent[producer].pop(0) for producer in order]
    merged += [
        (marker((0, txn), kind).encode(), None) for txn, kind in ends.items() if kind
    ]
    return [entry for entry, _ in merged], [value for _, value in merged if value]


@settings(max_examples=tries(75))
@given(topics(), st.integers(1, 6), st.integers(1, 500), st.data())
def test_however_a_topic_is_cut(
    topic: tuple[list[bytes], list[bytes]],
    parts: int,
    run_bytes: int,
    data: st.DataObject,
) -> None:
    written, expected = topic
    storage = MemoryStorage()
    start = 0
    sizes = data.draw(st.lists(st.integers(1, 10), min_size=1, max_size=4))
    for ledger, stop in enumerate(accumulate([*sizes, len(written)])):
        if written[start:stop]:
            store(written[start:stop], ledger=ledger, storage=storage)
        start = stop
    if not written:
        return
    rows, losses = read(storage, run_bytes=run_bytes, parts=parts)
    assert not losses
    assert values(rows) == expected
    places = [(row["__ledgerId"], row["__entryId"]) for row in rows]
    assert places == sorted(places)
