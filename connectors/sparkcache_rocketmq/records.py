"""Parse the records of a commit log, many position once.

    0  size int32, magic int32, CRC of the body int32, queue id int32, flag int32
   20  queue offset int64, offset in the flat file int64, system flag int32
   40  born time int64, born host, store time int64, store host
       times of reconsumption int32, offset of a prepared message int64
       length of the body int32, body
       length of the topic int8, or int16 in version 2, topic
       length of the properties int16, properties

All numbers are big-endian. A host is an address of 4 or 16 bytes, depending on the
system flag, and a port of 4 bytes. Times are milliseconds.

Source: MessageExtEncoder and MessageDecoder of Apache RocketMQ. Different here: the
positions of fields after a host follow from the flags; its tiered store assumes fixed
positions.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.arrays import words

if TYPE_CHECKING:
    from sparkcache.arrays import Bools, Bytes, Ints

    Buffer = bytes | bytearray | memoryview

V1, V2 = 0xDAA320A7, 0xDAA320AB
HEADER_BYTES = 40
LEAST_BYTES = 91
"""Size of a record whose topic, body and properties are empty."""

CODA_MAGIC = 0xCBD43194
CODA_BYTES = 16

COMPRESSED, CODECS = 0x1, 0x700
INNER_BATCH = 0xC0
INNER_NUM = "INNER_NUM"
"""The property of an inner batch that holds the number of its messages."""

_BORN_IPV6, _STORE_IPV6 = 0x10, 0x20
_IPV6_MORE = 12

_SIZE = struct.Struct(">I")
_CODA = struct.Struct(">II")
_INNER_NUM = f"{INNER_NUM}\1".encode()
_INNER_BASE = b"INNER_BASE\1"
_MOST_IN_BATCH = 1 << 20


@dataclass(slots=True)
class Records:
    """Records in a buffer, one lane each; positions are indexes into the buffer.

    Attributes:
        buffer: The bytes that hold the records.
        start: Start of each record; ascending.
        end: End of each record, according to its size.
        sys_flag: System flag.
        born_host: Start of the first host.
        store_time: Start of the store time, which follows the first host.
        store_host: Start of the second host.
        body: Start of the body.
        body_end: End of the body.
        topic: Start of the topic.
        topic_end: End of the topic.
        properties: Start of the properties, which end with the record.
        sound: Whether the lengths of the parts add up to the size. If not, the parts
            after the first wrong length must not be read.

    """

    buffer: Bytes
    start: Ints
    end: Ints
    sys_flag: Ints
    born_host: Ints
    store_time: Ints
    store_host: Ints
    body: Ints
    body_end: Ints
    topic: Ints
    topic_end: Ints
    properties: Ints
    sound: Bools

    @property
    def queue_offset(self) -> Ints:
        """The queue offset that each record states."""
        return self.int64(self.start + 20)

    def int32(self, positions: Ints) -> Ints:
        """Return the int32 numbers position these positions."""
        return words(self.buffer, ">i4")[positions].astype(np.int64)

    def int64(self, positions: Ints) -> Ints:
        """Return the int64 numbers position these positions."""
        return words(self.buffer, ">i8")[positions].astype(np.int64)

    def has(self, bits: int) -> Bools:
        """Return which records have all of these bits in their system flag."""
        flags: Bools = (self.sys_flag & bits) == bits
        return flags

    def offsets_taken(self) -> Ints:
        """Return how many queue offsets each record takes; 0 if that is not known."""
        taken = np.ones(len(self.start), np.int64)
        for lane in np.flatnonzero(self.has(INNER_BATCH) & self.sound).tolist():
            properties = self.buffer[self.properties[lane] : self.end[lane]].tobytes()
            taken[lane] = _inner_messages(properties, int(self.queue_offset[lane]))
        return taken


def read(buffer: Bytes, start: Ints) -> Records:
    """Read records that start here; each has LEAST_BYTES and is wholly in the buffer.

    Args:
        buffer: The bytes that hold the records.
        start: Start of each record.

    """
    end = start + words(buffer, ">u4")[start]
    is_v2 = words(buffer, ">u4")[start + 4] == V2
    sys_flag = words(buffer, ">u4")[start + 36].astype(np.int64)
    born_more = np.where(sys_flag & _BORN_IPV6, _IPV6_MORE, 0)
    more = born_more + np.where(sys_flag & _STORE_IPV6, _IPV6_MORE, 0)
    sound = start + LEAST_BYTES + more + is_v2 <= end
    more *= sound
    body = start + 88 + more
    length = words(buffer, ">i4")[body - 4].astype(np.int64)
    sound &= (length >= 0) & (body + length + 3 + is_v2 <= end)
    body_end = np.where(sound, body + length, body)
    topic = body_end + 1 + is_v2
    length = words(buffer, ">u2")[topic - 2].astype(np.int64)
    length = np.where(is_v2, length, length & 0xFF)
    sound &= topic + length + 2 <= end
    topic_end = np.where(sound, topic + length, topic)
    properties = topic_end + 2
    length = words(buffer, ">u2")[np.where(sound, topic_end, start)].astype(np.int64)
    sound &= properties + length == end
    return Records(
        buffer,
        start,
        end,
        sys_flag,
        born_host=start + 48,
        store_time=start + 56 + born_more,
        store_host=start + 64 + born_more,
        body=body,
        body_end=body_end,
        topic=topic,
        topic_end=topic_end,
        properties=properties,
        sound=sound,
    )


def chain(data: Buffer, position: int, most: int) -> list[int]:
    """Return the starts of consecutive complete records, by their sizes alone.

    Args:
        data: The bytes that hold the records.
        position: Start of the first record.
        most: Maximum number of records.

    """
    unpack, starts = _SIZE.unpack_from, list[int]()
    append, end = starts.append, len(data)
    while position + LEAST_BYTES <= end and most > 0:
        (size,) = unpack(data, position)
        if size < LEAST_BYTES or position + size > end:
            break
        append(position)
        position += size
        most -= 1
    return starts


def are_starts(buffer: Bytes, start: Ints) -> bool:
    """Return whether complete records start here, and fill the buffer."""
    if not len(start) or start[0] != 0 or start[-1] + LEAST_BYTES > len(buffer):
        return False
    size = np.diff(start, append=len(buffer))
    if size.min() < LEAST_BYTES:
        return False
    return bool((words(buffer, ">u4")[start] == size).all())


def is_coda(data: Buffer, position: int) -> bool:
    """Return whether a coda is here, which old versions append to a commit log."""
    if position + _CODA.size > len(data):
        return False
    return _CODA.unpack_from(data, position) == (CODA_BYTES, CODA_MAGIC)


def _inner_messages(properties: bytes, offset: int) -> int:
    """Return how many messages an inner batch says to have; 0 if not plausible.

    It may also say its queue offset, which must then be that of its record.
    """
    count = 0
    for pair in properties.split(b"\x02"):
        if pair.startswith(_INNER_NUM):
            text = pair.removeprefix(_INNER_NUM)
            count = int(text) if text.isdigit() and len(text) < 8 else 0
        elif pair.startswith(_INNER_BASE) and pair != _INNER_BASE + b"%d" % offset:
            return 0
    return count if count <= _MOST_IN_BATCH else 0
