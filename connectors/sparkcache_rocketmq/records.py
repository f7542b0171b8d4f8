"""The records of a commit log, many at once.

    0  size int32, magic int32, CRC of the body int32, queue id int32, flag int32
   20  queue offset int64, place in the flat file int64, system flag int32
   40  born time int64, born host, store time int64, store host
       times of reconsumption int32, offset of a prepared message int64
       length of the body int32, body
       length of the topic int8, or int16 in version 2, topic
       length of the properties int16, properties

All numbers are big-endian. A host is an address of 4 or 16 bytes and a port of 4; which
one, the system flag says. Times are milliseconds.

Source: MessageExtEncoder and MessageDecoder of Apache RocketMQ. Different here: places
behind a host are found by the flags, where its tiered store takes them as fixed.
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
"""A record whose topic, body and properties are empty."""

CODA_MAGIC = 0xCBD43194
CODA_BYTES = 16

COMPRESSED, CODECS = 0x1, 0x700
INNER_BATCH = 0xC0
_BORN_IPV6, _STORE_IPV6 = 0x10, 0x20
_IPV6_MORE = 12

_SIZE = struct.Struct(">I")
_CODA = struct.Struct(">II")
_INNER_NUM = b"INNER_NUM\x01"
_MOST_IN_BATCH = 1 << 20


@dataclass(slots=True)
class Records:
    """Records in a buffer: a lane each.

    Attributes:
        buffer: Where they lie.
        start: Where each begins; ascending.
        end: Where it ends, as its size says.
        sys_flag: Its system flag.
        born_host: Where its first host is.
        store_time: Where the time behind that is.
        store_host: Where its second host is.
        body: Where its body begins.
        body_end: Where it ends.
        topic: Where its topic begins.
        topic_end: Where it ends.
        properties: Where its properties begin; they end where it does.
        sound: Whether all that makes up its size. What begins behind the first wrong
            length is not to be looked at otherwise.

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
        """The queue offset that each says to have."""
        return self.int64(self.start + 20)

    def int32(self, at: Ints) -> Ints:
        """Return the numbers at these places."""
        return words(self.buffer, ">i4")[at].astype(np.int64)

    def int64(self, at: Ints) -> Ints:
        """Return the numbers at these places."""
        return words(self.buffer, ">i8")[at].astype(np.int64)

    def has(self, bits: int) -> Bools:
        """Tell which have all of these bits in their system flag."""
        flags: Bools = (self.sys_flag & bits) == bits
        return flags

    def offsets_taken(self) -> Ints:
        """Return how many queue offsets each takes; 0 if it does not say."""
        taken = np.ones(len(self.start), np.int64)
        for lane in np.flatnonzero(self.has(INNER_BATCH) & self.sound).tolist():
            properties = self.buffer[self.properties[lane] : self.end[lane]].tobytes()
            taken[lane] = _inner_messages(properties)
        return taken


def read(buffer: Bytes, start: Ints) -> Records:
    """Read records that have at least LEAST_BYTES in the buffer, and all their size."""
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


def chain(data: Buffer, at: int, most: int) -> list[int]:
    """Return where records that follow each other begin, by their sizes alone.

    Those that are whole, from `at` on, and not more than `most`.
    """
    unpack, starts = _SIZE.unpack_from, list[int]()
    append, end = starts.append, len(data)
    while at + LEAST_BYTES <= end and most > 0:
        (size,) = unpack(data, at)
        if size < LEAST_BYTES or at + size > end:
            break
        append(at)
        at += size
        most -= 1
    return starts


def is_coda(data: Buffer, at: int) -> bool:
    """Tell whether there is what old versions write behind a commit log."""
    if at + _CODA.size > len(data):
        return False
    return _CODA.unpack_from(data, at) == (CODA_BYTES, CODA_MAGIC)


def _inner_messages(properties: bytes) -> int:
    """Return what the property INNER_NUM says; 0 if nothing that could be."""
    found = 0
    for pair in properties.split(b"\x02"):
        if pair.startswith(_INNER_NUM):
            text = pair.removeprefix(_INNER_NUM)
            found = int(text) if text.isdigit() and len(text) < 8 else 0
    return found if found <= _MOST_IN_BATCH else 0
