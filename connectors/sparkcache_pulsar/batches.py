"""Find where each message of a batch starts.

A batch is n consecutive messages:

    length  int32   and that many bytes SingleMessageMetadata
    value           as long as `payload_size` in the metadata says

The start of a message depends on the length of the one before, so plain Python walks
the messages one by one; batch_starts.py looks for a quicker way first. Only properties
and the key precede the size, so the walk skips just these fields, and checks only that
it ends exactly where the batch does. The metadata of all messages is parsed, and
compared with this result, later.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from sparkcache_pulsar.protobuf import SLACK_BYTES

if TYPE_CHECKING:
    Buffer = bytes | memoryview

PROPERTIES, PARTITION_KEY, PAYLOAD_SIZE = 1, 2, 3

_DELIMITED = 2
BEFORE_SIZE_TAGS = {PROPERTIES << 3 | _DELIMITED, PARTITION_KEY << 3 | _DELIMITED}
SIZE_TAG = PAYLOAD_SIZE << 3

_HEAD = struct.Struct(">IBBB")
_FIELD = struct.Struct("BBB")


def message_starts(payload: Buffer, limit: int) -> list[int] | None:
    """Return where each message starts; None unless up to `limit` fill the batch.

    The payload must have SLACK_BYTES after its end.
    """
    try:
        return _walk(payload, len(payload) - SLACK_BYTES, limit)
    except (IndexError, ValueError, struct.error):
        return None


def _walk(payload: Buffer, end: int, limit: int) -> list[int] | None:
    starts: list[int] = []
    append, head, field = starts.append, _HEAD.unpack_from, _FIELD.unpack_from
    before_size = BEFORE_SIZE_TAGS
    start = 0
    for _ in range(limit):
        if start >= end:
            break
        append(start)
        length, tag, low, high = head(payload, start)
        offset = start + 4
        while tag in before_size and low < 0x80:
            offset += 2 + low
            tag, low, high = field(payload, offset)
        if tag != SIZE_TAG or (low & high) >= 0x80:
            size = _payload_size(payload, offset, start + 4 + length)
            if size is None:
                return None
        else:
            size = low if low < 0x80 else low & 0x7F | high << 7
        start += 4 + length + size
    return starts if start == end else None


def _payload_size(payload: Buffer, offset: int, end: int) -> int | None:
    """Find the payload size after any other fields; None if it is absent."""
    while offset < end:
        tag = payload[offset]
        value, offset = _varint(payload, offset + 1)
        if tag == SIZE_TAG:
            return value
        if tag & 7 == _DELIMITED:
            offset += value
        elif tag & 7 or tag >= 0x80:
            return None
    return None


def _varint(payload: Buffer, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = payload[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise ValueError("a varint of more than ten bytes")
