"""Turn records into messages: decompress bodies and unfold inner batches.

The body of an inner batch is a sequence of messages:

    size int32, magic int32, CRC int32, flag int32,
    length of the body int32, body, length of the properties int16, properties

Magic and CRC are 0. Each message takes one queue offset; hosts and times are those of
the batch.

Source: MessageDecoder.decodeMessages of Apache RocketMQ.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.arrays import Ranges
from sparkcache_rocketmq import codecs, properties
from sparkcache_rocketmq.codecs import BodyError
from sparkcache_rocketmq.records import CODECS, COMPRESSED, INNER_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.arrays import Bools, Bytes, Ints
    from sparkcache_rocketmq.properties import Properties
    from sparkcache_rocketmq.records import Records

    Part = bytes | memoryview

_CRC_BITS = 0x7FFFFFFF
_INNER = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")


@dataclass(slots=True)
class Messages:
    """The messages of records, one row each.

    Attributes:
        lane: The record of each message; ascending.
        offset: The queue offset of each message.
        flag: The flag that the producer set.
        buffer: The bytes that hold the values.
        value: The range of each value in the buffer.
        properties: The properties that producers and brokers set.

    """

    lane: Ints
    offset: Ints
    flag: Ints
    buffer: Bytes
    value: Ranges
    properties: Properties


class Faults:
    """The records that cannot be delivered, each with the first fault found in it."""

    def __init__(self) -> None:
        self.by_lane: dict[int, tuple[str, str]] = {}

    def __repr__(self) -> str:
        return f"Faults({len(self.by_lane)} records)"

    def add(self, lane: int, expected: str, found: str) -> None:
        """Mark a record as faulty."""
        self.by_lane.setdefault(lane, (expected, found))

    def sound(self, lanes: int) -> Ints:
        """Return the lanes that have no fault."""
        sound: Bools = np.ones(lanes, np.bool_)
        sound[list(self.by_lane)] = False
        return np.flatnonzero(sound)


def verify(records: Records, faults: Faults) -> None:
    """Compare the CRC of stored bodies with the CRC that each record states."""
    view, crc32 = records.buffer.data, zlib.crc32
    ranges = zip(records.body.tolist(), records.body_end.tolist(), strict=True)
    computed = np.array([crc32(view[start:end]) for start, end in ranges], np.int64)
    computed &= _CRC_BITS
    stored = records.int32(records.start + 8)
    for lane in np.flatnonzero(computed != stored).tolist():
        expected = f"a body of crc32 {stored[lane] & 0xFFFFFFFF:#010x}"
        faults.add(lane, expected, f"{computed[lane]:#010x}")


def messages(records: Records, taken: Ints, faults: Faults) -> Messages:
    """Return the messages of the records that have no fault."""
    lane = faults.sound(len(records.start))
    parts = None
    if records.has(COMPRESSED)[lane].any() or records.has(INNER_BATCH)[lane].any():
        parts = _Parts(records, taken, faults, lane)
        lane = parts.lane()
    offset = records.queue_offset[lane]
    flag = records.int32(records.start + 16)[lane]
    everywhere = np.ones(len(lane), np.bool_)
    start, length = records.body[lane], (records.body_end - records.body)[lane]
    buffer = records.buffer
    stored_properties = (buffer, records.properties[lane], records.end[lane])
    if parts is not None:
        buffer, start, length = _joined(parts.values)
        offset, flag = offset + parts.index(), np.array(parts.flags, np.int64)
        text, text_start, size = _joined(parts.properties)
        stored_properties = (text, text_start, text_start + size)
    return Messages(
        lane,
        offset,
        flag,
        buffer,
        Ranges(start, length, everywhere),
        properties.find(*stored_properties),
    )


class _Parts:
    """Messages whose bytes are not all in the records' buffer in their final form."""

    def __init__(
        self, records: Records, taken: Ints, faults: Faults, lanes: Ints
    ) -> None:
        self.values: list[Part] = []
        self.properties: list[Part] = []
        self.flags: list[int] = []
        self._lanes: list[int] = []
        self._indexes: list[int] = []
        self._remaining_bytes = codecs.MAX_RUN_BYTES
        view = records.buffer.data
        is_batch = records.has(INNER_BATCH)
        columns = (
            lanes,
            records.body[lanes],
            records.body_end[lanes],
            records.properties[lanes],
            records.end[lanes],
            records.sys_flag[lanes],
            records.int32(records.start + 16)[lanes],
            np.where(is_batch, taken, 0)[lanes],
        )
        for lane, body, body_end, first, last, sys_flag, flag, inner in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            try:
                value = self._unpacked(sys_flag, view[body:body_end])
                unpacked: list[tuple[int, Part, Part]] = [
                    (flag, value, view[first:last])
                ]
                if inner:
                    unpacked = list(_unfolded(memoryview(value), inner))
            except BodyError as error:
                faults.add(lane, *error.fault)
            else:
                self._add(lane, unpacked)

    def lane(self) -> Ints:
        """Return the record of each message."""
        return np.array(self._lanes, np.int64)

    def index(self) -> Ints:
        """Return the index of each message in its record."""
        return np.array(self._indexes, np.int64)

    def _unpacked(self, sys_flag: int, body: memoryview) -> Part:
        if not sys_flag & COMPRESSED:
            return body
        if self._remaining_bytes <= 0:
            raise BodyError(
                f"bodies of a run that decompress to at most {codecs.MAX_RUN_BYTES} "
                "bytes",
                "more in the records before",
            )
        data = codecs.decompress(sys_flag & CODECS, body)
        self._remaining_bytes -= len(data)
        return data

    def _add(self, lane: int, unpacked: list[tuple[int, Part, Part]]) -> None:
        for index, (flag, value, text) in enumerate(unpacked):
            self._lanes.append(lane)
            self._indexes.append(index)
            self.flags.append(flag)
            self.values.append(value)
            self.properties.append(text)


def _unfolded(body: memoryview, count: int) -> Iterator[tuple[int, Part, Part]]:
    """Yield the messages of an inner batch: flag, body, properties."""
    expected = f"an inner batch of {count} messages"
    position, unfolded = 0, 0
    while position < len(body):
        if unfolded == count:
            raise BodyError(expected, "more")
        if position + _INNER.size + _LENGTH.size > len(body):
            raise BodyError(expected, "the end of the body")
        size, _, _, flag, length = _INNER.unpack_from(body, position)
        start = position + _INNER.size
        end = start + length
        first = end + _LENGTH.size
        if length < 0 or first > len(body):
            raise BodyError(expected, f"a message with a body of {length} bytes")
        (text_bytes,) = _LENGTH.unpack_from(body, end)
        after = first + text_bytes
        if text_bytes < 0 or after - position != size or after > len(body):
            raise BodyError(
                expected, f"a message of {size} bytes whose parts do not add up to it"
            )
        yield flag, body[start:end], body[first:after]
        position, unfolded = after, unfolded + 1
    if unfolded != count:
        raise BodyError(expected, f"{unfolded}")


def _joined(parts: list[Part]) -> tuple[Bytes, Ints, Ints]:
    """Concatenate parts; return the bytes, the start of each part and its length."""
    length = np.fromiter(map(len, parts), np.int64, len(parts))
    data = np.frombuffer(b"".join(parts), np.uint8)
    return data, np.cumsum(length) - length, length
