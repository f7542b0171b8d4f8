"""Where the messages of a batch begin.

A batch is n messages, one behind the other:

    length  int32   and that many bytes SingleMessageMetadata
    value           as long as `payload_size` in it says

Where a message begins depends on the one before, so the chain is walked one by one,
in plain Python, and nothing is done on the way but to find its links.
"""

from __future__ import annotations

import struct

PAYLOAD_SIZE = 3

_HEAD = struct.Struct(">IBBB")
_PAYLOAD_SIZE_TAG = PAYLOAD_SIZE << 3
_DELIMITED = 2


def message_starts(data: memoryview, start: int, end: int) -> list[int] | None:
    """Return where each message begins; None if they do not end where the batch does.

    `data` must reach 16 bytes beyond `end`.
    """
    starts: list[int] = []
    append, unpack = starts.append, _HEAD.unpack_from
    at = start
    while at < end:
        append(at)
        length, tag, low, high = unpack(data, at)
        # Mostly the metadata begins with a size of one or two bytes.
        if tag == _PAYLOAD_SIZE_TAG and length > 1 and low < 0x80:
            at += 4 + length + low
        elif tag == _PAYLOAD_SIZE_TAG and length > 2 and high < 0x80:
            at += 4 + length + (low & 0x7F | high << 7)
        else:
            behind = at + 4 + length
            size = _payload_size(data, at + 4, behind) if behind <= end else None
            if size is None:
                return None
            at = behind + size
    return starts if at == end else None


def _payload_size(data: memoryview, at: int, end: int) -> int | None:
    """Find the payload size in a SingleMessageMetadata; None if there is none."""
    while at < end:
        tag = data[at]  # the tags of all fields that come before it have one byte
        value, at = _varint(data, at + 1)
        if tag == _PAYLOAD_SIZE_TAG:
            return value if at <= end else None
        if tag & 7 == _DELIMITED:
            at += value
        elif tag & 7 or tag >= 0x80:
            return None
    return None


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value, shift = data[at], 7
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    for _ in range(9):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, at
