"""Entries that cannot be delivered, and how much a run becomes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkcache.connector import DecodedRun, RawRun
from sparkcache.model import Ledger, Loss, ObjectId, Run
from sparkcache.testing import decoded_runs
from sparkcache_pulsar import codecs
from sparkcache_pulsar.testing import Codec, Message, bytes_field, varint_field

from .decoding import CONNECTOR, batch, odd, read, single
from .topics import TOPIC, store

GOOD = single(Message(b"good"))
UUID = bytes_field(26, b"u")
PLAIN = single(Message(b"x"), checksum=False).encode()


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        pytest.param(
            GOOD.encode()[:-1] + b"?", "bytes of crc32c 0x", id="payload changed"
        ),
        pytest.param(b"", "message metadata, found the end", id="an entry of 0 bytes"),
        pytest.param(b"x", "message metadata, found the end", id="an entry of 1 byte"),
        pytest.param(b"\x0e\x01", "found the end", id="a magic number alone"),
        pytest.param(
            b"\x0e\x02\x00\x00\x00\x63abc",
            "broker metadata",
            id="short broker metadata",
        ),
        pytest.param(
            b"\x0e\x02\x00\x00\x00\x01\x08" + PLAIN,
            "broker metadata",
            id="bad broker metadata",
        ),
        pytest.param(
            b"\xff\xff\xff\xff" + PLAIN,
            "found the end of the entry",
            id="size of metadata",
        ),
        pytest.param(b"\0\0\0\x01\xff", "bytes that do not parse", id="bad metadata"),
        pytest.param(
            b"\0\0\0\x02\x10\x00", "bytes that do not parse", id="no producer name"
        ),
        pytest.param(
            odd(b"x", varint_field(8, 7)),
            "a codec of 0 to 4, found 7",
            id="unknown codec",
        ),
        pytest.param(
            odd(b"x", varint_field(8, 1)),
            "bytes of LZ4 that decompress to 1",
            id="not compressed at all",
        ),
        pytest.param(
            single(
                Message(b"xyz"), codec=Codec.ZSTD, extra_metadata=varint_field(9, 2)
            ).encode(),
            "bytes of ZSTD that decompress to 2",
            id="uncompressed size",
        ),
        pytest.param(
            single(
                Message(b"x"),
                codec=Codec.ZLIB,
                extra_metadata=varint_field(9, codecs.MAX_PAYLOAD_BYTES + 1),
            ).encode(),
            "a payload of up to 134217728 bytes",
            id="decompression bomb",
        ),
        pytest.param(
            batch(Message(b"x"), extra_metadata=varint_field(11, 2)).encode(),
            "a batch of 2 messages",
            id="more messages announced",
        ),
        pytest.param(
            batch(Message(b"x"), extra_metadata=varint_field(11, 0)).encode(),
            "a batch of 0 messages",
            id="less messages announced",
        ),
        pytest.param(
            batch(Message(b"x"), extra_metadata=varint_field(11, -1)).encode(),
            "a batch of -1 messages",
            id="negative number of messages",
        ),
        pytest.param(
            odd(b"", varint_field(11, 5)), "a batch of 5 messages", id="empty batch"
        ),
        pytest.param(
            odd(b"", varint_field(11, 2**31)),
            "a batch of 2147483648 messages",
            id="a batch of very many messages",
        ),
        pytest.param(
            batch(*[Message()] * 3000, producer_name="p" * 50_000).encode(),
            "messages of a batch, found 50000 bytes for each of 3000 messages",
            id="a name that would be much more than all stored bytes",
        ),
        pytest.param(
            odd(b"no batch", varint_field(11, 1)),
            "lengths that do not add up to that",
            id="no batch",
        ),
        pytest.param(
            odd(b"\0\0\0\x01\x18", varint_field(11, 1)),
            "metadata of each message",
            id="a message's metadata without a size",
        ),
        pytest.param(
            odd(b"\0\0\0\x04\x18\x00\x20\x80", varint_field(11, 1)),
            "metadata of each message",
            id="a message's bad metadata",
        ),
        pytest.param(
            odd(b"\0\0\0\x04\x18\x00\x18\x01", varint_field(11, 1)),
            "metadata of each message",
            id="a message of two sizes",
        ),
        pytest.param(
            odd(b"x", bytes_field(4, b"\x0a\x01k")),
            "properties, each with key and value",
            id="a property without a value",
        ),
        pytest.param(
            odd(b"x", bytes_field(4, b"\xff")),
            "properties, each with key and value",
            id="a bad property",
        ),
        pytest.param(
            single(Message(b"x", key="?"), extra_metadata=varint_field(17, 1)).encode(),
            "a key in base64",
            id="a key that is not base64",
        ),
        pytest.param(
            odd(b"x", bytes_field(13, b"")),
            "encryption_keys, each with key and value",
            id="encrypted for nobody",
        ),
        pytest.param(
            odd(b"x", varint_field(27, 2) + varint_field(29, 0)),
            "a chunk of a message",
            id="a chunk without the message's id",
        ),
        pytest.param(
            odd(b"x", b"".join((UUID, varint_field(27, 2), varint_field(29, 2)))),
            "chunk 2 of 2",
            id="a chunk after the last one",
        ),
        pytest.param(
            odd(b"x", b"".join((UUID, varint_field(27, 2), varint_field(28, 2**31)))),
            "of 2147483648 bytes",
            id="a chunk of too large a message",
        ),
    ],
)
def test_what_cannot_be_delivered_is_a_loss(lost: bytes, message: str) -> None:
    two, one = batch(Message(b"a"), Message(b"b")), batch(Message(b"c"))
    found, losses = read(GOOD, two, lost, one, GOOD)
    assert [row["__entryId"] for row in found] == [0, 1, 1, 3, 4]
    assert [row["value"] for row in found] == [b"good", b"a", b"b", b"c", b"good"]
    (loss,) = losses
    assert (loss.ledger, loss.first, loss.last) == (7, 2, 2)
    assert message in str(loss)
    before = sum(12 + len(entry.encode()) for entry in (GOOD, two))
    assert loss.offset == 128 + before


def test_a_chunk_count_of_1_is_a_whole_message() -> None:
    found, losses = read(odd(b"x", varint_field(27, 1)))
    assert not losses
    assert len(found) == 1


def test_neighbours_that_are_lost_for_one_reason_are_one_loss() -> None:
    encrypted = odd(b"x", bytes_field(13, b""))
    _, losses = read(GOOD, encrypted, encrypted, encrypted, GOOD, encrypted, b"")
    assert [(loss.first, loss.last) for loss in losses] == [(1, 3), (5, 5), (6, 6)]


def decode(data: bytes, run: Run, losses: tuple[Loss, ...] = ()) -> DecodedRun:
    ledger = Ledger("pulsar", f"b#{TOPIC}", 7, ObjectId("u", 10_000, "1"))
    return CONNECTOR.decode(ledger, RawRun(run, 1000, data, losses), 1 << 20)


def test_losses_of_the_raw_run_are_passed_on() -> None:
    loss = Loss("u", 1, 7, 0, 4, "a", "b")
    assert decode(b"", Run(0, 4), (loss,)) == DecodedRun([], (loss,))


def test_frames_that_are_not_there_are_lost() -> None:
    """A raw run may come from anywhere; nobody must rely on who cut it."""
    decoded = decode(b"", Run(3, 4))
    assert [(loss.first, loss.last) for loss in decoded.losses] == [(3, 4)]
    assert "expected entry 3, found the end of the data" in str(decoded.losses[0])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_have_about_the_size_that_is_asked_for(codec: Codec) -> None:
    entries = [batch(*[Message(b"x" * 100)] * 10, codec=codec)] * 100
    for batch_bytes in (2_000, 10_000, 1 << 30):
        ((_, decoded),) = decoded_runs(
            CONNECTOR, store(entries), TOPIC, run_bytes=1 << 30, batch_bytes=batch_bytes
        )
        sizes = [one.column("value").nbytes for one in decoded.batches]
        assert sum(map(len, decoded.batches)) == 1000
        assert max(sizes) <= batch_bytes * 1.1
        assert len(sizes) <= 2 * 110_000 // batch_bytes + 1


def test_an_entry_that_is_larger_than_a_batch_is_cut() -> None:
    entries = [batch(*[Message(b"x" * 100)] * 100)]
    ((_, decoded),) = decoded_runs(CONNECTOR, store(entries), TOPIC, batch_bytes=2_000)
    assert [len(one) for one in decoded.batches] == [20] * 5
    assert pa.Table.from_batches(decoded.batches).num_rows == 100


def test_what_a_run_becomes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry may become much; all of them together would not fit."""
    monkeypatch.setattr(codecs, "MAX_RUN_BYTES", 1 << 20)
    monkeypatch.setattr(codecs, "MAX_RUN_RATIO", 1)
    monkeypatch.setattr("sparkcache_pulsar.decode._LEAST_GROUP_BYTES", 0)
    entries = [single(Message(bytes(300_000)), codec=Codec.ZSTD)] * 10
    found, losses = read(*entries)
    assert [row["__entryId"] for row in found] == [0, 1, 2, 3, 4, 5]  # by threes
    assert [(loss.first, loss.last) for loss in losses] == [(6, 9)]
    assert "expected a run that fits into memory" in str(losses[0])
