"""Messages of several chunks: rows where the last one is."""

from __future__ import annotations

import pytest

from sparkcache.testing import MemoryStorage
from sparkcache_pulsar import chunks, codecs
from sparkcache_pulsar.testing import Codec, Entry, Message, bytes_field, varint_field

from .resolving import read, single, values
from .streaming import manifest
from .topics import expected_rows, store

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
        pytest.param([0, 1, 0], 0, id="no end, begun again"),
    ],
)
def test_chunks_sent_again(order: list[int], messages: int, parts: int) -> None:
    rows, losses = read(store([THREE[number] for number in order]), parts=parts)
    assert values(rows) == [VALUE] * messages
    assert not losses


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(
    ("order", "missing"), [([0, 2], 1), ([0, 1, 0, 2], 1), ([1, 0, 2], 1)]
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


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("left", [1, 2])
def test_a_message_that_began_before_the_topic_does_is_trimmed(
    left: int, parts: int
) -> None:
    storage = MemoryStorage()
    ledgers = range(7 - left, 7)
    for ledger, chunk in zip(ledgers, THREE[-left:], strict=True):
        store([chunk], ledger=ledger, storage=storage)
    store([THREE[2], single(b"x").encode()], ledger=7, storage=storage)
    for options in ({}, manifest(*ledgers, 7, isOffloaded=True)):
        rows, losses = read(storage, options, parts=parts)
        assert (values(rows), losses) == ([b"x"], [])


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_first_chunk_in_a_lost_ledger(parts: int) -> None:
    storage = MemoryStorage()
    store([single(b"x").encode()], ledger=7, storage=storage)
    store(THREE[1:], ledger=9, storage=storage)
    options = manifest(7, 8, 9, isOffloaded=True) | {"failOnDataLoss": "false"}
    rows, (loss,) = read(storage, options, parts=parts)
    assert values(rows) == [b"x"]
    assert (loss.ledger, loss.first) == (9, 1)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_first_chunk_that_a_lost_entry_may_have_been(parts: int) -> None:
    written = [damaged(single(b"x").encode()), *THREE[1:]]
    rows, losses = read(store(written), parts=parts)
    assert not rows
    assert [loss.first for loss in losses] == [0, 2]
    assert "no chunk 0" in str(losses[1])


def test_a_damaged_chunk_is_a_loss_and_so_is_its_message() -> None:
    rows, losses = read(store([THREE[0], damaged(THREE[1]), THREE[2]]))
    assert not rows
    assert [(loss.first, loss.last) for loss in losses] == [(1, 1), (2, 2)]


def damaged(entry: bytes) -> bytes:
    return entry[:-1] + bytes([entry[-1] ^ 1])


def sent_at(*times_ms: int) -> list[bytes]:
    """The three chunks of a message, each with its time."""
    return [
        single(VALUE, publish_time_ms=time).encode_chunks(400, "m")[number]
        for number, time in enumerate(times_ms)
    ]


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("times_ms", [(5, 5, 5), (5, 6, 7)])
def test_a_first_chunk_of_an_earlier_message_with_the_same_uuid(
    times_ms: tuple[int, int, int], parts: int
) -> None:
    """Its producer died, and began again with the same name and sequence ids."""
    unfinished = single(b"old" * 300, publish_time_ms=1).encode_chunks(400, "m")[0]
    first, second, last = sent_at(*times_ms)
    rows, losses = read(store([unfinished, damaged(first), second, last]), parts=parts)
    assert not rows
    assert [loss.first for loss in losses] == [1, 3]
    rows, losses = read(store([unfinished, first, second, last]), parts=parts)
    assert (values(rows), losses) == ([VALUE], [])


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("times_ms", [(5, 5, 5), (5, 6, 7)])
def test_a_message_without_its_first_chunk_is_no_repetition_of_an_earlier_one(
    times_ms: tuple[int, int, int], parts: int
) -> None:
    first, second, last = sent_at(*times_ms)
    written = [*sent_at(1, 1, 1), damaged(first), second, last, second, last]
    rows, losses = read(store(written), parts=parts)
    assert values(rows) == [VALUE]
    assert [loss.first for loss in losses] == [3, 5]
    assert "no chunk 0" in str(losses[1])


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_clients_that_send_each_chunk_with_its_own_time(parts: int) -> None:
    """As those for Java did up to version 2.7."""
    first, second, last = sent_at(5, 6, 7)
    other = damaged(single(b"x").encode())
    for written in (
        [other, first, second, last],
        [first, second, second, last],
        [first, second, last, other, second, last],
    ):
        rows, losses = read(store(written), parts=parts)
        assert values(rows) == [VALUE]
        assert len(losses) == written.count(other)
    rows, losses = read(store([first, other, second, last]), parts=parts)
    assert not rows
    assert [loss.first for loss in losses] == [1, 3]


@pytest.mark.parametrize("parts", range(1, 9))
def test_repetitions_with_times_of_their_own_and_damage(parts: int) -> None:
    """They are repetitions however few of the earlier chunks a task reads."""
    entry = [
        single(VALUE, publish_time_ms=number).encode_chunks(250, "m")[number]
        for number in range(4)
    ]
    written = [*entry, entry[2], damaged(entry[3]), *entry[1:]]
    rows, losses = read(store(written), parts=parts)
    assert values(rows) == [VALUE]
    assert [loss.first for loss in losses] == [5]


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


@pytest.mark.parametrize("parts", [1, 2])
def test_a_message_of_chunks_without_a_value(parts: int) -> None:
    no_value = varint_field(25, 1)
    chunks = [chunk_of(b"", number, no_value) for number in (0, 1)]
    rows, losses = read(store(chunks), parts=parts)
    assert (values(rows), losses) == ([None], [])
    rows, losses = read(store(chunks), {"valueSchema": "INT32"}, parts=parts)
    assert (values(rows), losses) == ([None], [])


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
