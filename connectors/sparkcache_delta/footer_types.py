"""Rewrite the schema in a Parquet footer: some columns are bytes of a fixed length.

Arrow then delivers the bytes that are stored, which it would otherwise interpret. INT96
is stored as bytes of a fixed length are, so only the schema has to change.

Source: parquet.thrift, and "Thrift Compact protocol encoding".
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOOLEANS = 1, 2  # the type is the value
_BYTE = 3
_INTEGERS = 4, 5, 6
_I32 = 5
_BINARY = 8
_LISTS = 9, 10
_STRUCT = 12
_LONG = 15  # the length of a list follows
_SCHEMA = 2  # of FileMetaData
_TYPE, _LENGTH, _CHILDREN = 1, 2, 5  # of SchemaElement
_INTERPRETATION = frozenset({6, 7, 8, 10})  # of SchemaElement: converted type, scale...
_FIXED_BYTES = 7  # of Type


class _Field(NamedTuple):
    kind: int
    value: Any


class _List(NamedTuple):
    kind: int
    values: list[Any]


_Struct: TypeAlias = dict[int, _Field]


@lru_cache(maxsize=4)
def with_fixed_bytes(footer: bytes, columns: tuple[tuple[int, int], ...]) -> bytes:
    """Return a footer in which some columns are bytes of a fixed length.

    `columns` are indexes of leaves of the schema, each with the length. Raises
    pa.ArrowInvalid.
    """
    try:
        return _with_fixed_bytes(footer, columns)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise pa.ArrowInvalid(f"the footer cannot be rewritten: {error}") from error


def _with_fixed_bytes(footer: bytes, columns: tuple[tuple[int, int], ...]) -> bytes:
    reader = _Reader(footer)
    number, kind = reader.header(0)
    while number < _SCHEMA:
        reader.value(kind)
        number, kind = reader.header(number)
    begin = reader.at
    schema = reader.value(kind)
    leaves = [
        element
        for element in schema.values
        if _CHILDREN not in element or not element[_CHILDREN].value
    ]
    for column, length in columns:
        element = leaves[column]
        for field in _INTERPRETATION & element.keys():
            del element[field]
        element[_TYPE] = _Field(_I32, _zigzag(_FIXED_BYTES))
        element[_LENGTH] = _Field(_I32, _zigzag(length))
    return footer[:begin] + b"".join(_value(kind, schema)) + footer[reader.at :]


class _Reader:
    """Reads Thrift's compact encoding; integers stay as they are encoded."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def __repr__(self) -> str:
        return f"_Reader({self.at} of {len(self._data)} bytes)"

    def header(self, before: int) -> tuple[int, int]:
        """Read number and type of the field after another; type 0 ends a struct."""
        byte = self._byte()
        step, kind = byte >> 4, byte & 15
        if step or not kind:
            return before + step, kind
        return _unzigzag(self._varint()), kind

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

    def _struct(self) -> _Struct:
        fields: _Struct = {}
        number, kind = self.header(0)
        while kind:
            fields[number] = _Field(kind, self.value(kind))
            number, kind = self.header(number)
        return fields

    def _list(self) -> _List:
        header = self._byte()
        count, kind = header >> 4, header & 15
        if count == _LONG:
            count = self._varint()
        return _List(kind, [self.value(kind) for _ in range(count)])

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | byte << shift


def _value(kind: int, value: Any) -> Iterator[bytes]:  # noqa: ANN401
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


def _struct(fields: _Struct) -> Iterator[bytes]:
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if 0 < number - before < _LONG + 1:
            yield bytes([(number - before) << 4 | kind])
        else:
            yield bytes([kind]) + _varint(_zigzag(number))
        yield from _value(kind, value)
        before = number
    yield b"\0"


def _list(elements: _List) -> Iterator[bytes]:
    kind, values = elements
    if len(values) < _LONG:
        yield bytes([len(values) << 4 | kind])
    else:
        yield bytes([_LONG << 4 | kind]) + _varint(len(values))
    for value in values:
        yield from _value(kind, value)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _unzigzag(number: int) -> int:
    return number >> 1 if not number & 1 else -(number >> 1) - 1
