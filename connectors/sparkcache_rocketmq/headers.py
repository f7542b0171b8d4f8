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
_MAGIC_PREFIX, _MAGIC_START = b"\xda\xa3\x20", 4
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


@dataclass(slots=True)
class Found:
    """The records of an object that could be read, and what follows them.

    Attributes:
        first: Queue offset of the first record; None if there is no record.
        last: Queue offset of the last record.
        damage: Byte offset of the bytes after the last record that are not one, nor the
            beginning of one; None if there are none. A record that skips offsets is
            one only if damage before it may be the records of these offsets,
            or if the next record continues from it.

    """

    first: int | None = None
    last: int | None = None
    damage: int | None = None
    _doubted: int = 0
    _continues_at: int | None = None

    def add(self, first: int, last: int, position: int) -> None:
        """Note a complete record: its queue offsets, and its position in the object."""
        due = first if self.last is None else self.last + 1
        is_after_damage = self.damage is not None and not self._doubted
        believed = due + self._doubted, self._continues_at
        if first > due and not is_after_damage and first not in believed:
            self._doubted, self._continues_at = self._doubted + 1, last + 1
            self.damage = position if self.damage is None else self.damage
            return
        self.first = first if self.first is None else self.first
        self.last = last if self.last is None else max(self.last, last)
        self._doubted, self._continues_at, self.damage = 0, None, None


def walk(stream: ByteStream, start: int, size_bytes: int, queue: int) -> Found:
    """Read the records of an object up to the last complete one; skip damaged bytes.

    Raises SourceError.

    Args:
        stream: The bytes of the object.
        start: Start of the object in the commit log.
        size_bytes: Size of the object.
        queue: Number of the queue that records must belong to.

    """
    found, passed, data = Found(), 0, bytearray()
    is_complete = False
    while not is_complete:
        chunk = stream.read(_READ_BYTES)
        data += chunk
        is_complete = not chunk
        position = 0
        while is_complete or len(data) - position >= PROBE_BYTES:
            position += coda_bytes(data, position)
            if position >= len(data):
                break
            header = Header.parse(data, position)
            at = passed + position
            if header and (header.queue, header.log_offset) != (queue, start + at):
                header = None
            if header and header.size_bytes <= size_bytes - at:
                if position + header.size_bytes > len(data):
                    break
                last = header.offset + _offsets_taken(data, position) - 1
                found.add(header.offset, last, at)
                position += header.size_bytes
                continue
            is_cut = header is not None or len(data) - position < _HEADER_BYTES
            if found.damage is None and not is_cut:
                found.damage = at
            position = _candidate(data, position + 1)
        del data[:position]
        passed += position
    return found


def _candidate(data: bytearray, position: int) -> int:
    """Return where the next header may be, according to its magic number."""
    magic = data.find(_MAGIC_PREFIX, position + _MAGIC_START)
    if magic >= 0:
        return magic - _MAGIC_START
    return max(position, len(data) - _MAGIC_START - len(_MAGIC_PREFIX) + 1)


def _offsets_taken(data: bytearray, position: int) -> int:
    """Return how many offsets a complete record takes; one if it does not say."""
    flag = int.from_bytes(data[position + 36 : position + 40], "big")
    if flag & INNER_BATCH != INNER_BATCH:
        return 1
    records = read(np.frombuffer(data, np.uint8), np.array([position]))
    return max(1, int(records.offsets_taken()[0]))
