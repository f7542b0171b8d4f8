"""The fields of one encoded protobuf message, for messages that are short and many.

For columns of messages that lie in one buffer, see protobuf.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Value: TypeAlias = "int | tuple[int, int] | None"
"""A number; where bytes begin and end; or None for a number of fixed length."""

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_NUMBERED = (_VARINT, _BYTES)
_FIXED = {_FIXED_64: 8, _FIXED_32: 4}
_LAST_SHIFT = 63


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, Value]]:
    """Yield number and value of each field; raises ValueError if they are malformed."""
    while at < end:
        tag = data[at]  # most numbers take one byte
        at += 1
        if tag > 0x7F:
            tag, at = _varint(data, at - 1, end)
        kind = tag & 7
        if kind in _NUMBERED and at < end:
            value = data[at]
            at += 1
            if value > 0x7F:
                value, at = _varint(data, at - 1, end)
            if kind == _VARINT:
                yield tag >> 3, value
            else:
                begin, at = at, at + value
                yield tag >> 3, (begin, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
            yield tag >> 3, None
        else:
            raise ValueError(f"field {tag >> 3} is of kind {kind}, or has no value")
        if tag < 8 or at > end:
            raise ValueError(f"field {tag >> 3} ends at byte {at}, after {end}")


def signed(value: Value) -> int:
    """Return a number as int64; raises ValueError for other values."""
    if not isinstance(value, int):
        raise ValueError("not a number")  # noqa: TRY004 - as for other faults
    return value - (1 << 64) if value >> 63 else value


def place(value: Value) -> tuple[int, int]:
    """Return where bytes begin and end; raises ValueError for other values."""
    if not isinstance(value, tuple):
        raise ValueError("not bytes")  # noqa: TRY004
    return value


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number and where it ends; numbers above 64 bits are cut off."""
    value = shift = 0
    while at < end and shift <= _LAST_SHIFT:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise ValueError(f"no number at byte {at}")
