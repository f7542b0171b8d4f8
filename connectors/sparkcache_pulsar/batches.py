"""Where the messages of a batch begin.

A batch is n messages, one behind the other:

    length  int32   and that many bytes SingleMessageMetadata
    value           as long as `payload_size` in it says

Where a message begins depends on the one before, so the chain is walked one by one,
in plain Python. Only properties and the key come before the size; to find it, nothing
else is looked at, and nothing is checked but that the walk ends. What the metadata of
all messages really says is found, and compared, when it is parsed.
"""

from __future__ import annotations

import struct

from sparkcache_pulsar.protobuf import SLACK_BYTES

PROPERTIES, PARTITION_KEY, PAYLOAD_SIZE = 1, 2, 3

_DELIMITED = 2
_BEFORE_SIZE = {PROPERTIES << 3 | _DELIMITED, PARTITION_KEY << 3 | _DELIMITED}  # tags
_SIZE_TAG = PAYLOAD_SIZE << 3
_HEAD = struct.Struct(">IBBB")
_FIELD = struct.Struct("BBB")


def message_starts(payload: bytes, limit: int) -> list[int] | None:
    """Return where each message begins; None unless `limit` at most fill the batch.

    The payload must have SLACK_BYTES behind its end.
    """
    try:
        return _walk(payload, len(payload) - SLACK_BYTES, limit)
    except (IndexError, ValueError, struct.error):
        return None


def _walk(payload: bytes, end: int, limit: int) -> list[int] | None:
    starts: list[int] = []
    append, head, field = starts.append, _HEAD.unpack_from, _FIELD.unpack_from
    before_size = _BEFORE_SIZE
    at = 0
    for _ in range(limit):
        if at >= end:
            break
        append(at)
        length, tag, low, high = head(payload, at)
        place = at + 4
        while tag in before_size and low < 0x80:
            place += 2 + low
            tag, low, high = field(payload, place)
        if tag != _SIZE_TAG or (low & high) >= 0x80:
            size = _payload_size(payload, place, at + 4 + length)
            if size is None:
                return None
        else:
            size = low if low < 0x80 else low & 0x7F | high << 7
        at += 4 + length + size
    return starts if at == end else None


def _payload_size(payload: bytes, at: int, end: int) -> int | None:
    """Find the payload size whatever comes before it; None if there is none."""
    while at < end:
        tag = payload[at]
        value, at = _varint(payload, at + 1)
        if tag == _SIZE_TAG:
            return value
        if tag & 7 == _DELIMITED:
            at += value
        elif tag & 7 or tag >= 0x80:
            return None
    return None


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a varint of more than ten bytes")
