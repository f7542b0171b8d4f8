"""Write queues like a broker's tiered store, for tests and demos only.

The writer shares no code with the reader, so that each checks the other. It takes
messages, puts objects into any mapping of names to bytes, and returns the rows that a
reader must return.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from functools import cache
from hashlib import md5
from ipaddress import ip_address
from typing import TYPE_CHECKING

import cramjam
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping

Row = dict[str, object]

MAX_SEGMENT_BYTES = 1 << 30
MAX_CONSUME_QUEUE_BYTES = 100 << 20
ITEM_BYTES = 20
CODA_BYTES = 16

V1, V2 = 0xDAA320A7, 0xDAA320AB

_COMPRESSED = 0x1
_BORN_IPV6, _STORE_IPV6 = 0x10, 0x20
_INNER_BATCH = 0xC0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SLAB_BYTES = 4 << 20


class Codec(IntEnum):
    """How a body is compressed, as bits of the system flag."""

    NONE = 0
    ZLIB_OF_OLD_CLIENTS = 0x1
    LZ4 = 0x101
    ZSTD = 0x201
    ZLIB = 0x301

    def compress(self, data: bytes) -> bytes:
        """Compress like RocketMQ's client."""
        match self:
            case Codec.NONE:
                return data
            case Codec.LZ4:
                return bytes(cramjam.lz4.compress(data))
            case Codec.ZSTD:
                return bytes(cramjam.zstd.compress(data, level=3))
            case _:
                return zlib.compress(data, 5)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as sent by a producer, with the fields that the broker adds.

    Attributes:
        properties: Stored after those of `keys`, `tags` and `unique_key`.
        sys_flag: Bits in addition to those for codec, hosts and `inner`.
        born_host: `ip:port`, or `[ip]:port` for IPv6.
        inner: The messages of an inner batch, each of which takes one offset; only
            their flags, bodies and properties are used.
        has_last_separator: Whether the last property ends with a separator too.
        version: The magic number; None for the one that the topic's length requires.
        stored_properties: Bytes to store instead of all properties; the rows ignore
            them.

    """

    body: bytes = b""
    tags: str | None = None
    keys: str | None = None
    unique_key: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    flag: int = 0
    sys_flag: int = 0
    codec: Codec = Codec.NONE
    born_time_ms: int = 1_700_000_000_000
    store_time_ms: int = 1_700_000_000_500
    born_host: str = "127.0.0.1:10911"
    store_host: str = "10.1.2.3:10911"
    reconsume_times: int = 0
    prepared_offset: int = 0
    inner: tuple[Message, ...] = ()
    has_last_separator: bool = True
    version: int | None = None
    stored_properties: bytes | None = None

    @property
    def offsets(self) -> int:
        """Number of queue offsets that the message takes."""
        return max(1, len(self.inner))

    def encode(
        self, topic: str, queue_id: int, queue_offset: int, log_offset: int
    ) -> bytes:
        """Return the message's record, for this offset in the commit log."""
        content = b"".join(map(_in_batch, self.inner)) if self.inner else self.body
        body, name = self.codec.compress(content), topic.encode()
        born, store = _stored_host(self.born_host), _stored_host(self.store_host)
        sys_flag = self.sys_flag | self.codec | (_INNER_BATCH if self.inner else 0)
        sys_flag |= _BORN_IPV6 * (len(born) > 8) | _STORE_IPV6 * (len(store) > 8)
        version = self.version or (V2 if len(name) > 127 else V1)
        properties = self._stored_properties(queue_offset)
        tail = b"".join(
            [
                struct.pack(">q", self.born_time_ms),
                born,
                struct.pack(">q", self.store_time_ms),
                store,
                struct.pack(">iq", self.reconsume_times, self.prepared_offset),
                struct.pack(">i", len(body)),
                body,
                len(name).to_bytes(2 if version == V2 else 1, "big"),
                name,
                struct.pack(">h", len(properties)),
                properties,
            ]
        )
        head = (
            _HEAD.size + len(tail),
            version,
            zlib.crc32(body) & 0x7FFFFFFF,
            queue_id,
            self.flag,
            queue_offset,
            log_offset,
            sys_flag,
        )
        return _HEAD.pack(*head) + tail

    def rows(self, topic: str, broker: str, queue_id: int, offset: int) -> list[Row]:
        """Return the rows that a reader must return for the message."""
        common: Row = {
            "__topic": topic,
            "__broker": broker,
            "__queueId": queue_id,
            "__bornTimestamp": _EPOCH + timedelta(milliseconds=self.born_time_ms),
            "__storeTimestamp": _EPOCH + timedelta(milliseconds=self.store_time_ms),
            "__bornHost": self.born_host,
            "__storeHost": self.store_host,
            "__reconsumeTimes": self.reconsume_times,
        }
        return [
            {
                **common,
                "__queueOffset": number,
                "__flag": message.flag,
                "__tags": message.tags or None,
                "__keys": message.keys or None,
                "__uniqKey": message.unique_key or None,
                "__properties": {k: v for k, v in message._pairs() if k and v},
                "value": message.body,
            }
            for number, message in enumerate(self.inner or (self,), offset)
        ]

    def tag_code(self) -> int:
        """Return the tags as a consume queue stores them: their hash in Java."""
        return java_hash(self.tags) if self.tags else 0

    def _pairs(self, queue_offset: int = 0) -> Iterator[tuple[str, str]]:
        named = {"KEYS": self.keys, "TAGS": self.tags, "UNIQ_KEY": self.unique_key}
        for name, value in named.items():
            if value is not None:
                yield name, value
        if self.inner:
            yield "INNER_NUM", str(len(self.inner))
            yield "INNER_BASE", str(queue_offset)
        yield from self.properties

    def _stored_properties(self, queue_offset: int = 0) -> bytes:
        if self.stored_properties is not None:
            return self.stored_properties
        stored = "".join(
            f"{name}\1{value}\2" for name, value in self._pairs(queue_offset)
        )
        return stored.encode()[: None if self.has_last_separator else -1]


_HEAD = struct.Struct(">IIIiiqqI")


@cache
def _stored_host(host: str) -> bytes:
    address, _, port = host.rpartition(":")
    return ip_address(address.strip("[]")).packed + struct.pack(">i", int(port))


def _in_batch(message: Message) -> bytes:
    properties = message._stored_properties()
    size = 22 + len(message.body) + len(properties)
    return b"".join(
        [
            struct.pack(">iiiii", size, 0, 0, message.flag, len(message.body)),
            message.body,
            struct.pack(">h", len(properties)),
            properties,
        ]
    )


def java_hash(text: str) -> int:
    """Return the result of Java's `String.hashCode`."""
    value = 0
    units = text.encode("utf-16-be")
    for start in range(0, len(units), 2):
        unit = int.from_bytes(units[start : start + 2], "big")
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def item(log_offset: int, size_bytes: int, tag_code: int) -> bytes:
    """Return an item of a consume queue."""
    return struct.pack(">qiq", log_offset, size_bytes, tag_code)


def coda(last_store_time_ms: int) -> bytes:
    """Return the coda that versions 5.1 and 5.2 append to a full commit log."""
    return struct.pack(">iIq", CODA_BYTES, 0xCBD43194, last_store_time_ms)


class Layout(Enum):
    """How a store names its objects."""

    POSIX = "one object per segment"
    CHUNKS = "one object per commit"

    def folder(self, cluster: str, broker: str, topic: str, queue_id: int) -> str:
        """Return the prefix of the names of a queue's objects."""
        rest = f"{broker}/{topic}/{queue_id}"
        if self is Layout.CHUNKS:
            return f"{java_hash(cluster)}/{cluster}/{rest}"
        return f"{_hash(cluster)}_{cluster}/{rest}"

    def object_name(self, base: int, start: int) -> str:
        """Return the name of the object that starts at this offset in a segment."""
        if self is Layout.CHUNKS:
            return f"seg-{base}/chunk/chunk-{start}"
        return f"{_hash(str(base))}{base:020}"


def _hash(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()[:8]


class FlatFile:
    """A commit log or a consume queue: a sequence of segments.

    Attributes:
        end: Position of the next byte.
        base: Start of the last segment.

    """

    def __init__(
        self,
        objects: MutableMapping[str, bytes],
        folder: str,
        layout: Layout,
        base: int,
        max_bytes: int,
    ) -> None:
        self.base = self.end = base
        self._objects = objects
        self._folder = folder
        self._layout = layout
        self._max_bytes = max_bytes
        self._pending = bytearray()

    def __repr__(self) -> str:
        return f"FlatFile({self._folder}, {self.end} bytes)"

    def is_full(self, size_bytes: int) -> bool:
        """Return whether so many bytes no longer fit into the last segment."""
        return self.end + size_bytes - self.base > self._max_bytes

    def append(self, data: bytes) -> None:
        """Append bytes; they are stored in an object when they are committed."""
        self._pending += data
        self.end += len(data)

    def commit(self) -> None:
        """Store the appended bytes in objects."""
        if not self._pending:
            return
        start = self.end - len(self._pending) - self.base
        name = f"{self._folder}/{self._layout.object_name(self.base, start)}"
        self._objects[name] = self._objects.get(name, b"") + bytes(self._pending)
        self._pending.clear()

    def roll(self) -> None:
        """Begin a new segment."""
        self.commit()
        self.base = self.end

    def merge(self, *, leave_chunks: bool = False) -> None:
        """Merge the chunks of the last segment into one object."""
        self.commit()
        prefix = f"{self._folder}/seg-{self.base}/chunk/chunk-"
        names = [name for name in self._objects if name.startswith(prefix)]
        names.sort(key=lambda name: int(name.removeprefix(prefix)))
        data = b"".join(self._objects[name] for name in names)
        self._objects[f"{self._folder}/seg-{self.base}/segment/segment-0"] = data
        for name in () if leave_chunks else names:
            del self._objects[name]


class QueueWriter:
    """Writes one queue of a topic.

    An inner batch is written once for each of its messages, like in the tiered store,
    which looks up one offset at a time; unless `repeats_batches` is false.

    Attributes:
        commit_log: The flat file of the records.
        consume_queue: The flat file of the items that point to them.
        next_offset: The queue offset of the next message.
        record_ranges: Start in the commit log and size of each offset's record.

    """

    def __init__(
        self,
        objects: MutableMapping[str, bytes],
        *,
        topic: str = "TopicA",
        queue_id: int = 0,
        broker: str = "broker-a",
        cluster: str = "DefaultCluster",
        layout: Layout = Layout.POSIX,
        first_offset: int = 0,
        max_segment_bytes: int = MAX_SEGMENT_BYTES,
        max_consume_queue_bytes: int = MAX_CONSUME_QUEUE_BYTES,
        has_coda: bool = False,
        repeats_batches: bool = True,
    ) -> None:
        folder = layout.folder(cluster, broker, topic, queue_id)
        self.commit_log = FlatFile(
            objects, f"{folder}/COMMIT_LOG", layout, 0, max_segment_bytes
        )
        self.consume_queue = FlatFile(
            objects,
            f"{folder}/CONSUME_QUEUE",
            layout,
            first_offset * ITEM_BYTES,
            max_consume_queue_bytes,
        )
        self.next_offset = first_offset
        self.record_ranges: dict[int, tuple[int, int]] = {}
        self._broker = broker
        self._topic = topic
        self._queue_id = queue_id
        self._has_coda = has_coda
        self._repeats_batches = repeats_batches
        self._last_store_time_ms = 0

    def __repr__(self) -> str:
        return f"QueueWriter({self._topic}/{self._queue_id} up to {self.next_offset})"

    def append(self, messages: Iterable[Message]) -> list[Row]:
        """Write messages and commit them; return the rows."""
        rows: list[Row] = []
        for message in messages:
            first = self.next_offset
            added = message.rows(self._topic, self._broker, self._queue_id, first)
            for index in range(len(added)):
                if index == 0 or self._repeats_batches:
                    start, size = self._append_record(message, first)
                self._append_item(item(start, size, message.tag_code()))
                self.record_ranges[self.next_offset] = start, size
                self.next_offset += 1
            rows += added
        self.commit_log.commit()
        self.consume_queue.commit()
        return rows

    def append_uncommitted(self, messages: Iterable[Message]) -> None:
        """Write messages to the commit log only, like a broker that stops then.

        Messages that the broker appends after its restart get the same queue offsets.
        """
        offset = self.next_offset
        for message in messages:
            for _ in range(message.offsets if self._repeats_batches else 1):
                self._append_record(message, offset)
            offset += message.offsets
        self.commit_log.commit()

    def append_partial_item(self, size_bytes: int = ITEM_BYTES // 2) -> None:
        """Write the beginning of an item; nothing can be appended after it."""
        start, size = self.commit_log.end, 91
        self.consume_queue.append(item(start, size, 0)[:size_bytes])
        self.consume_queue.commit()

    def roll(self) -> None:
        """Begin a new segment of the commit log."""
        if self._has_coda:
            self.commit_log.append(coda(self._last_store_time_ms))
        self.commit_log.roll()

    def _append_record(self, message: Message, offset: int) -> tuple[int, int]:
        """Append a record, to a new segment if needed; return its start and size."""
        topic, queue_id = self._topic, self._queue_id
        size = len(message.encode(topic, queue_id, offset, 0))
        log = self.commit_log
        if log.end > log.base and log.is_full(size + CODA_BYTES * self._has_coda):
            self.roll()
        start = log.end
        log.append(message.encode(topic, queue_id, offset, start))
        self._last_store_time_ms = message.store_time_ms
        return start, size

    def _append_item(self, data: bytes) -> None:
        if self.consume_queue.is_full(len(data)):
            self.consume_queue.roll()
        self.consume_queue.append(data)


def values(size_bytes: int, *, seed: int = 0) -> Iterator[bytes]:
    """Yield distinct, incompressible values without end."""
    random = np.random.default_rng(seed)
    count = max(1, _SLAB_BYTES // max(1, size_bytes))
    while True:
        data = random.bytes(count * size_bytes)
        for start in range(0, len(data), size_bytes):
            yield data[start : start + size_bytes]


def synthetic_messages(
    size_bytes: int,
    *,
    value_bytes: int = 1024,
    codec: Codec = Codec.NONE,
    tags: tuple[str, ...] = ("TagA", "TagB", "TagC"),
    seed: int = 0,
) -> Iterator[Message]:
    """Yield messages of `size_bytes` of values in total, one millisecond apart."""
    source = values(value_bytes, seed=seed)
    for number in range(max(1, size_bytes // value_bytes)):
        yield Message(
            next(source),
            tags=tags[number % len(tags)] if tags else None,
            keys=f"key-{number}",
            unique_key=f"7F000001{seed:08X}{number:016X}",
            codec=codec,
            born_time_ms=1_700_000_000_000 + number,
            store_time_ms=1_700_000_000_000 + number,
        )
