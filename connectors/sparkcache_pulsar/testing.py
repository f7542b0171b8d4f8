"""Write topics as a broker's offloader would, for tests and demos only.

Shares no code with the reader, so that one can be checked against the other. Takes
messages and returns objects: keys, user metadata and bytes, for any storage.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from base64 import b64encode
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import cramjam
import google_crc32c
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

MAX_BLOCK_BYTES = 64 << 20

_SLAB_BYTES = 4 << 20


class Codec(IntEnum):
    """How a payload is compressed."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4

    def compress(self, data: bytes) -> bytes:
        """Compress as Pulsar's client does."""
        return _COMPRESS[self](data)


def _zlib_without_end(data: bytes) -> bytes:
    """Flush, but do not finish, as Pulsar's Java client does."""
    stream = zlib.compressobj()
    return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)


_COMPRESS: Mapping[Codec, Callable[[bytes], bytes]] = {
    Codec.NONE: bytes,
    Codec.LZ4: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    Codec.ZLIB: _zlib_without_end,
    Codec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data, level=3)),
    Codec.SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a producer sends.

    Attributes:
        value: None for a tombstone.
        key: Text, or bytes, which are stored as base64.
        null_key: Whether it has the null key of a key-value schema.
        compacted_out: Whether compaction has emptied it; only in a batch.

    """

    value: bytes | None = b""
    key: str | bytes | None = None
    null_key: bool = False
    ordering_key: bytes | None = None
    properties: tuple[tuple[str, str], ...] = ()
    event_time_ms: int | None = None
    sequence_id: int | None = None
    compacted_out: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that a broker stores: one message, or a batch of messages.

    Attributes:
        messages: One message or, in a batch, any number.
        batched: Whether they are a batch, even of one message.
        broker: Time and index that the broker prepends; None if it does not.
        extra_metadata: Encoded fields to append to MessageMetadata.
        seal: Applied to the payload last, such as encryption.

    """

    messages: tuple[Message, ...]
    batched: bool = True
    codec: Codec = Codec.NONE
    publish_time_ms: int = 1_700_000_000_000
    producer_name: str = "producer"
    sequence_id: int = 0
    broker: tuple[int, int] | None = None
    checksum: bool = True
    schema_version: bytes | None = None
    replicated_from: str | None = None
    deliver_at_ms: int | None = None
    txn: tuple[int, int] | None = None
    marker: int | None = None
    extra_metadata: bytes = b""
    seal: Callable[[bytes], bytes] = bytes

    def encode(self) -> bytes:
        """Return the entry's bytes."""
        if self.batched:
            payload = b"".join(map(_in_batch, self.messages))
        else:
            payload = self.messages[0].value or b""
        return self._stored(self._metadata(len(payload)), self.codec.compress(payload))

    def encode_chunks(self, chunk_bytes: int, uuid_: str) -> list[bytes]:
        """Return this single message as the entries of its chunks."""
        value = self.messages[0].value or b""
        payload = self.codec.compress(value)
        count = -(-len(payload) // chunk_bytes)
        return [
            self._stored(
                self._metadata(len(value))
                + bytes_field(26, uuid_.encode())
                + varint_field(27, count)
                + varint_field(28, len(payload))
                + varint_field(29, number),
                payload[number * chunk_bytes : (number + 1) * chunk_bytes],
            )
            for number in range(count)
        ]

    def _stored(self, metadata: bytes, payload: bytes) -> bytes:
        payload = self.seal(payload)
        body = b"".join((len(metadata).to_bytes(4, "big"), metadata, payload))
        head = b""
        if self.broker is not None:
            time_ms, index = self.broker
            broker = varint_field(1, time_ms) + varint_field(2, index)
            head = b"\x0e\x02" + len(broker).to_bytes(4, "big") + broker
        if self.checksum:
            head += b"\x0e\x01" + google_crc32c.value(body).to_bytes(4, "big")
        return head + body

    def _metadata(self, uncompressed_bytes: int) -> bytes:
        first = self.messages[0] if self.messages else Message()
        sequence_id = self.sequence_id if self.batched else first.sequence_id
        parts = [
            bytes_field(1, self.producer_name.encode()),
            varint_field(2, sequence_id or 0),
            varint_field(3, self.publish_time_ms),
        ]
        if not self.batched:
            parts += [_property(4, pair) for pair in first.properties]
        if self.replicated_from is not None:
            parts.append(bytes_field(5, self.replicated_from.encode()))
        if first.key is not None:  # in a batch too: brokers use the first message's
            parts.append(bytes_field(6, _stored_key(first.key)))
        if self.codec is not Codec.NONE:
            parts.append(varint_field(8, self.codec))
        parts.append(varint_field(9, uncompressed_bytes))
        if self.batched:
            parts.append(varint_field(11, len(self.messages)))
        elif first.event_time_ms is not None:
            parts.append(varint_field(12, first.event_time_ms))
        if self.schema_version is not None:
            parts.append(bytes_field(16, self.schema_version))
        if isinstance(first.key, bytes):
            parts.append(varint_field(17, 1))
        if first.ordering_key is not None:
            parts.append(bytes_field(18, first.ordering_key))
        if self.deliver_at_ms is not None:
            parts.append(varint_field(19, self.deliver_at_ms))
        if self.marker is not None:
            parts.append(varint_field(20, self.marker))
        if self.txn is not None:
            most, least = self.txn
            parts += [varint_field(22, least), varint_field(23, most)]
        if not self.batched and first.value is None:
            parts.append(varint_field(25, 1))
        if not self.batched and first.null_key:
            parts.append(varint_field(30, 1))
        return b"".join([*parts, self.extra_metadata])


def _in_batch(message: Message) -> bytes:
    value = message.value or b""
    parts = [_property(1, pair) for pair in message.properties]
    if message.key is not None:
        parts.append(bytes_field(2, _stored_key(message.key)))
    parts.append(varint_field(3, len(value)))
    if message.compacted_out:
        parts.append(b"\x20\x01")
    if message.event_time_ms is not None:
        parts.append(varint_field(5, message.event_time_ms))
    if isinstance(message.key, bytes):
        parts.append(b"\x30\x01")
    if message.ordering_key is not None:
        parts.append(bytes_field(7, message.ordering_key))
    if message.sequence_id is not None:
        parts.append(varint_field(8, message.sequence_id))
    if message.value is None:
        parts.append(b"\x48\x01")
    if message.null_key:
        parts.append(b"\x50\x01")
    metadata = b"".join(parts)
    return b"".join((len(metadata).to_bytes(4, "big"), metadata, value))


def _stored_key(key: str | bytes) -> bytes:
    return b64encode(key) if isinstance(key, bytes) else key.encode()


def _property(number: int, pair: tuple[str, str]) -> bytes:
    key, value = pair
    return bytes_field(
        number, bytes_field(1, key.encode()) + bytes_field(2, value.encode())
    )


def varint(value: int) -> bytes:
    """Encode an integer; a negative one takes ten bytes."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint_field(number: int, value: int) -> bytes:
    """Encode a numeric protobuf field."""
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a protobuf field of bytes, a string or a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object for a bucket."""

    key: str
    metadata: Mapping[str, str]
    data: bytes


def managed_ledger(topic: str) -> str:
    """Return the name of a topic's managed ledger."""
    tenant, namespace, name = topic.removeprefix("persistent://").split("/")
    return f"{tenant}/{namespace}/persistent/{quote_plus(name)}"


def ledger_objects(
    topic: str,
    ledger_id: int,
    entries: Sequence[bytes],
    *,
    max_block_bytes: int = MAX_BLOCK_BYTES,
    seed: int = 0,
) -> tuple[StoredObject, StoredObject]:
    """Return the data object and the index object of an offloaded ledger."""
    blocks, data = _blocks(entries, max_block_bytes)
    attempt = uuid.uuid5(uuid.NAMESPACE_URL, f"{topic}/{ledger_id}/{seed}")
    key = f"{attempt}-ledger-{ledger_id}"
    metadata = {
        "s3managedledgeroffloaderformatversion": "1",
        "managedledgername": managed_ledger(topic),
    }
    return (
        StoredObject(key, {**metadata, "role": "data"}, data),
        StoredObject(
            f"{key}-index",
            {**metadata, "role": "index"},
            index_object(len(data), blocks, ledger_metadata(topic, entries)),
        ),
    )


def _blocks(
    entries: Sequence[bytes], max_block_bytes: int
) -> tuple[list[tuple[int, int]], bytes]:
    """Write entries to blocks; return first entry and offset of each, and all bytes."""
    remaining_bytes = sum(12 + len(entry) for entry in entries)
    blocks: list[tuple[int, int]] = []
    parts: list[bytes] = []
    entry_id = offset = 0
    while entry_id < len(entries):
        size = min(max_block_bytes, 128 + remaining_bytes)
        parts.append(struct.pack(">Iqqq100x", 0xFBDBABCB, 128, size, entry_id))
        blocks.append((entry_id, offset))
        used = 128
        while entry_id < len(entries) and used + 12 + len(entries[entry_id]) <= size:
            entry = entries[entry_id]
            parts += (struct.pack(">iq", len(entry), entry_id), entry)
            used += 12 + len(entry)
            entry_id += 1
        if blocks[-1][0] == entry_id:
            raise ValueError(
                f"entry {entry_id} of {len(entries[entry_id])} bytes does not fit into "
                f"a block of {max_block_bytes}"
            )
        padding = size - used
        parts.append((b"\xfe\xdc\xde\xad" * (padding // 4 + 1))[:padding])
        remaining_bytes -= used - 128
        offset += size
    return blocks, b"".join(parts)


def ledger_metadata(
    topic: str, entries: Sequence[bytes], name_key: str = "pulsar/managed-ledger"
) -> bytes:
    """Encode BookKeeper's metadata of a closed ledger."""
    custom = {
        "application": b"pulsar",
        "component": b"managed-ledger",
        name_key: managed_ledger(topic).encode(),
    }
    parts = [
        varint_field(1, 1),
        varint_field(2, 1),
        varint_field(3, sum(map(len, entries))),
        varint_field(4, len(entries) - 1),
        varint_field(5, 3),
        bytes_field(6, bytes_field(1, b"bookie:3181") + varint_field(2, 0)),
        varint_field(7, 3),
        varint_field(9, 1),
        varint_field(10, 1_700_000_000_000),
    ]
    parts += [
        bytes_field(11, bytes_field(1, key.encode()) + bytes_field(2, value))
        for key, value in custom.items()
    ]
    return b"".join(parts)


def index_object(
    data_bytes: int, blocks: Sequence[tuple[int, int]], metadata: bytes
) -> bytes:
    """Encode an index object."""
    size = 32 + len(metadata) + 20 * len(blocks)
    head = struct.pack(
        ">IiqqII", 0xDE47DE47, size, data_bytes, 128, len(blocks), len(metadata)
    )
    parts = [
        struct.pack(">qiq", first, part, offset)
        for part, (first, offset) in enumerate(blocks, start=1)
    ]
    return b"".join([head, metadata, *parts])


def values(size_bytes: int, *, seed: int = 0) -> Iterator[bytes]:
    """Yield endless values, all different, that compress to about half their size.

    Words of a small vocabulary alternate with random bytes, 2 to 1.
    """
    random = np.random.default_rng(seed)
    vocabulary = random.integers(0, 256, (256, 16), np.uint8)
    pieces = -(-size_bytes // 24)
    count = max(1, _SLAB_BYTES // size_bytes)
    while True:
        words = vocabulary[random.integers(0, len(vocabulary), (count, pieces))]
        noise = random.integers(0, 256, (count, pieces, 8), np.uint8)
        lines = np.concatenate([noise, words], axis=2).reshape(count, -1)
        data = lines[:, :size_bytes].tobytes()
        for start in range(0, len(data), size_bytes):
            yield data[start : start + size_bytes]


def synthetic_entries(
    size_bytes: int,
    *,
    value_bytes: int = 1024,
    batch_bytes: int = 128 << 10,
    codec: Codec = Codec.LZ4,
    keyed: bool = False,
    seed: int = 0,
) -> Iterator[bytes]:
    """Yield entries whose values have `size_bytes` in total.

    Each batch has `batch_bytes` of values; with 0 no message is in a batch.
    """
    per_entry = max(1, batch_bytes // value_bytes)
    properties = (("source", "synthetic"),) if keyed else ()
    source = values(value_bytes, seed=seed)
    for first in range(0, max(1, size_bytes // value_bytes), per_entry):
        messages = tuple(
            Message(
                value,
                sequence_id=number,
                key=f"user-{number % 1000}" if keyed else None,
                properties=properties,
            )
            for number, value in enumerate(islice(source, per_entry), first)
        )
        yield Entry(
            messages,
            batched=batch_bytes > 0,
            codec=codec,
            publish_time_ms=1_700_000_000_000 + first,
            sequence_id=first,
        ).encode()


def synthetic_topic(
    topic: str,
    size_bytes: int,
    *,
    ledgers: int = 1,
    value_bytes: int = 1024,
    batch_bytes: int = 128 << 10,
    codec: Codec = Codec.LZ4,
    max_block_bytes: int = MAX_BLOCK_BYTES,
    seed: int = 0,
) -> Iterator[StoredObject]:
    """Yield the objects of a topic whose values have `size_bytes` in total."""
    for ledger in range(1, ledgers + 1):
        entries = synthetic_entries(
            size_bytes // ledgers,
            value_bytes=value_bytes,
            batch_bytes=batch_bytes,
            codec=codec,
            seed=seed + ledger,
        )
        yield from ledger_objects(
            topic, ledger, list(entries), max_block_bytes=max_block_bytes, seed=seed
        )


def write_directory(directory: Path, objects: Iterable[StoredObject]) -> None:
    """Write objects as files, without their user metadata."""
    directory.mkdir(parents=True, exist_ok=True)
    for stored in objects:
        (directory / stored.key).write_bytes(stored.data)
