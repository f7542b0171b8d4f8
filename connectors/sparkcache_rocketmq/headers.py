"""The fixed part of a record: enough to walk from one to the next, and for its time.

    size int32, magic int32, crc of the body int32, queue int32, flag int32,
    queue offset int64, place in the commit log int64, system flag int32,
    born time int64, born host, store time int64, ...

A host is an address of 4 or 16 bytes, as the system flag says, and a port, int32.

Source: MessageDecoder and MessageExtEncoder of Apache RocketMQ. Its tiered store looks
for the store time where it is if the born host has an address of 4 bytes; we ask.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparkcache_rocketmq.flat_files import read_range
from sparkcache_rocketmq.records import INNER_BATCH, read

if TYPE_CHECKING:
    from sparkcache.connector import ByteStream, Storage
    from sparkcache.model import ObjectId

MAGICS = frozenset({0xDAA320A7, 0xDAA320AB})
CODA_MAGIC = 0xCBD43194
CODA_BYTES = 16
PROBE_BYTES = 128
"""Enough for a coda, and the header of the record behind it."""

_HEADER = struct.Struct(">iIIiiqqI8x")
_TIME = struct.Struct(">q")
_HEADER_BYTES = 88  # with the shorter hosts, up to the body
_LEAST_BYTES = _HEADER_BYTES + 3
_BORN_IPV6 = 0x10
_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """What the fixed part of a record says.

    Attributes:
        size_bytes: Length of the whole record.
        queue: Number of its queue.
        offset: Its queue offset.
        place: Where in the commit log it says it begins.
        store_time_ms: When a broker stored it.

    """

    size_bytes: int
    queue: int
    offset: int
    place: int
    store_time_ms: int

    @classmethod
    def parse(cls, data: bytes | bytearray, at: int = 0) -> Header | None:
        """Read a header; None if there is none, or it is cut off."""
        if len(data) < at + _HEADER_BYTES:
            return None
        size, magic, _, queue, _, offset, place, flag = _HEADER.unpack_from(data, at)
        if magic not in MAGICS or size < _LEAST_BYTES or offset < 0:
            return None
        time_at = at + (68 if flag & _BORN_IPV6 else 56)
        return cls(size, queue, offset, place, _TIME.unpack_from(data, time_at)[0])


def coda_bytes(data: bytes | bytearray, at: int = 0) -> int:
    """Return the length of the coda that may be at a place."""
    is_coda = data[at + 4 : at + 8] == CODA_MAGIC.to_bytes(4, "big")
    return CODA_BYTES if is_coda else 0


def read_beginning(
    storage: Storage, object_id: ObjectId, offset: int, size_bytes: int
) -> bytes:
    """Return the first bytes of a range, enough for a header. Raises SourceError."""
    return read_range(storage, object_id, offset, min(PROBE_BYTES, size_bytes))


@dataclass(frozen=True, slots=True)
class End:
    """Where records end that follow each other.

    Attributes:
        last: Queue offset of the last one; None if there is none.
        damage: Where something begins that is no record; None if nothing does.

    """

    last: int | None
    damage: int | None


def walk(stream: ByteStream) -> End:
    """Pass over records, up to the last whole one. Raises SourceError."""
    last, at, data = None, 0, bytearray()
    passed = 0
    while chunk := stream.read(_READ_BYTES):
        data += chunk
        at, found = _walk(data, at)
        last = last if found is None else found
        gone = min(at, len(data))
        del data[:gone]
        passed, at = passed + gone, at - gone
        is_record = Header.parse(data, coda_bytes(data)) is not None
        if len(data) >= PROBE_BYTES and not is_record:
            return End(last, passed)
    return End(last, None)


def _walk(data: bytearray, at: int) -> tuple[int, int | None]:
    """Return where the next record begins, and the offset of the last whole one."""
    last = None
    while at < len(data):
        at += coda_bytes(data, at)
        header = Header.parse(data, at)
        if header is None or at + header.size_bytes > len(data):
            break
        last = header.offset + _offsets_taken(data, at) - 1
        at += header.size_bytes
    return at, last


def _offsets_taken(data: bytearray, at: int) -> int:
    """Return how many offsets a whole record takes; one if it does not say."""
    flag = int.from_bytes(data[at + 36 : at + 40], "big")
    if flag & INNER_BATCH != INNER_BATCH:
        return 1
    found = read(np.frombuffer(data, np.uint8), np.array([at]))
    return max(1, int(found.offsets_taken()[0]))
