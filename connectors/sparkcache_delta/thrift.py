"""Values in Thrift's compact encoding, as Parquet's footers have them.

Integers stay as they are encoded, so that a struct which is read and written again has
the very same bytes.

Source: "Thrift Compact protocol encoding".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOOLEANS = 1, 2  # the type is the value
_BYTE = 3
_INTEGERS = 4, 5, 6
_BINARY = 8
_LISTS = 9, 10
_STRUCT = 12
_LONG = 15  # the length of a list follows


class Field(NamedTuple):
    """A field of a struct: its type, and its value."""

    kind: int
    value: Any


class List(NamedTuple):
    """A list: the type of its values, and the values."""

    kind: int
    values: list[Any]


Struct: TypeAlias = dict[int, Field]


class Reader:
    """Reads Thrift's compact encoding; integers stay as they are encoded."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def __repr__(self) -> str:
        return f"Reader({self.at} of {len(self._data)} bytes)"

    def header(self, before: int) -> tuple[int, int]:
        """Read number and type of the field after another; type 0 ends a struct."""
        byte = self._byte()
        step, kind = byte >> 4, byte & 15
        if step or not kind:
            return before + step, kind
        return unzigzag(self._varint()), kind

    def value(self, kind: int) -> Any:  # noqa: ANN401
        """Read a value of a type."""
        if kind in _BOOLEANS:
            return None
        if kind == _BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return self._varint()
        if kind == _BINARY:
            size_bytes = self._varint()
            self.at += size_bytes
            return self._data[self.at - size_bytes : self.at]
        if kind in _LISTS:
            return self._list()
        if kind == _STRUCT:
            return self._struct()
        raise ValueError(f"a schema has no values of type {kind}")

    def _struct(self) -> Struct:
        fields: Struct = {}
        number, kind = self.header(0)
        while kind:
            fields[number] = Field(kind, self.value(kind))
            number, kind = self.header(number)
        return fields

    def _list(self) -> List:
        header = self._byte()
        count, kind = header >> 4, header & 15
        if count == _LONG:
            count = self._varint()
        return List(kind, [self.value(kind) for _ in range(count)])

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | byte << shift


def encoded(kind: int, value: Any) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the encoding of a value of a type, in pieces."""
    if kind == _BYTE:
        yield bytes([value])
    elif kind in _INTEGERS:
        yield _varint(value)
    elif kind == _BINARY:
        yield _varint(len(value)) + value
    elif kind in _LISTS:
        yield from _list(value)
    elif kind == _STRUCT:
        yield from _struct(value)


def _struct(fields: Struct) -> Iterator[bytes]:
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if 0 < number - before < _LONG + 1:
            yield bytes([(number - before) << 4 | kind])
        else:
            yield bytes([kind]) + _varint(zigzag(number))
        yield from encoded(kind, value)
        before = number
    yield b"\0"


def _list(elements: List) -> Iterator[bytes]:
    kind, values = elements
    if len(values) < _LONG:
        yield bytes([len(values) << 4 | kind])
    else:
        yield bytes([_LONG << 4 | kind]) + _varint(len(values))
    for value in values:
        yield from encoded(kind, value)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def zigzag(number: int) -> int:
    """Return a number as it is encoded."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unzigzag(number: int) -> int:
    """Return the number that is encoded."""
    return number >> 1 if not number & 1 else -(number >> 1) - 1
