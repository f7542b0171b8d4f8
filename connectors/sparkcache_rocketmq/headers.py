"""The fixed part of a record, which gives its size, its offsets and its store time.

    size int32, magic int32, crc of the body int32, queue int32, flag int32,
    queue offset int64, offset in the commit log int64, system flag int32,
    born time int64, born host, store time int64, ...

A host is an address of 4 or 16 bytes, depending on the system flag, and a port, int32.

Source: MessageDecoder and MessageExtEncoder of Apache RocketMQ. Different here: its
tiered store assumes a born host of 4 bytes to find the store time; this module reads
the system flag.
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
"""Enough for a coda and the header of the record that follows it."""

_HEADER = struct.Struct(">iIIiiqqI8x")
_TIME = struct.Struct(">q")
_HEADER_BYTES = 88  # up to the body, with two IPv4 hosts
_LEAST_BYTES = _HEADER_BYTES + 3
_BORN_IPV6 = 0x10
_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """The fixed part of a record.

    Attributes:
        size_bytes: Length of the whole record.
        queue: Number of its queue.
        offset: Its queue offset.
        log_offset: Its start in the commit log, as the record states.
        store_time_ms: When a broker stored it.

    """

    size_bytes: int
    queue: int
    offset: int
    log_offset: int
    store_time_ms: int

    @classmethod
    def parse(cls, data: bytes | bytearray, position: int = 0) -> Header | None:
        """Read a header; None if the bytes are not one, or it is cut off."""
        if len(data) < position + _HEADER_BYTES:
            return None
        size, magic, _, queue, _, offset, log_offset, flag = _HEADER.unpack_from(
            data, position
        )
        if magic not in MAGICS or size < _LEAST_BYTES or offset < 0:
            return None
        time_position = position + (68 if flag & _BORN_IPV6 else 56)
        return cls(
            size, queue, offset, log_offset, _TIME.unpack_from(data, time_position)[0]
        )


def coda_bytes(data: bytes | bytearray, position: int = 0) -> int:
    """Return the length of the coda at this position; 0 if there is no coda."""
    is_coda = data[position + 4 : position + 8] == CODA_MAGIC.to_bytes(4, "big")
    return CODA_BYTES if is_coda else 0


def read_beginning(
    storage: Storage, object_id: ObjectId, offset: int, size_bytes: int
) -> bytes:
    """Return the first bytes of a range, enough for a header. Raises SourceError."""
    return read_range(storage, object_id, offset, min(PROBE_BYTES, size_bytes))


@dataclass(frozen=True, slots=True)
class End:
    """The end of a sequence of records.

    Attributes:
        last: Queue offset of the last record; None if there is no record.
        damage: Byte offset of the first bytes that are not a record; None if all are.

    """

    last: int | None
    damage: int | None


def walk(stream: ByteStream) -> End:
    """Read records up to the last complete one. Raises SourceError."""
    last, position, data = None, 0, bytearray()
    passed = 0
    while chunk := stream.read(_READ_BYTES):
        data += chunk
        position, chunk_last = _walk(data, position)
        last = last if chunk_last is None else chunk_last
        consumed = min(position, len(data))
        del data[:consumed]
        passed, position = passed + consumed, position - consumed
        is_record = Header.parse(data, coda_bytes(data)) is not None
        if len(data) >= PROBE_BYTES and not is_record:
            return End(last, passed)
    return End(last, None)


def _walk(data: bytearray, position: int) -> tuple[int, int | None]:
    """Return the start of the next record, and the offset of the last complete one."""
    last = None
    while position < len(data):
        position += coda_bytes(data, position)
        header = Header.parse(data, position)
        if header is None or position + header.size_bytes > len(data):
            break
        last = header.offset + _offsets_taken(data, position) - 1
        position += header.size_bytes
    return position, last


def _offsets_taken(data: bytearray, position: int) -> int:
    """Return how many offsets a complete record takes; one if it does not say."""
    flag = int.from_bytes(data[position + 36 : position + 40], "big")
    if flag & INNER_BATCH != INNER_BATCH:
        return 1
    records = read(np.frombuffer(data, np.uint8), np.array([position]))
    return max(1, int(records.offsets_taken()[0]))
