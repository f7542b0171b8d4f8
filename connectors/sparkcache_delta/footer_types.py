"""The schema in a Parquet footer: read it, or rewrite it for Arrow.

Arrow interprets some columns otherwise than Spark. If they are rewritten as bytes of a
fixed length, Arrow delivers the bytes that are stored. INT96 is stored as bytes of a
fixed length are, so only the schema has to change.

Arrow's writers add their own schema to a footer, and Arrow's readers prefer it to
Parquet's. Spark does not know it.

Source: parquet.thrift.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from sparkcache_delta.thrift import Field, Reader, Struct, encoded, zigzag

SCHEMA = 2  # of FileMetaData
TYPE, LENGTH, CHILDREN = 1, 2, 5  # of SchemaElement
_I32 = 5
_INTERPRETATION = frozenset({6, 7, 8, 10})  # of SchemaElement: converted type, scale...
_FIXED_BYTES = 7  # of Type
_MALFORMED = (LookupError, ValueError, AttributeError, TypeError)

# A key and the begin of its value, which is a message of Arrow in base64.
_ARROW_SCHEMA = re.compile(
    rb"\x18\x0cARROW:schema(?=\x18[\x80-\xff]{0,4}[\0-\x7f]////)"
)
_OTHER_KEY = b"\x18\x0cignored:ARRO"


def without_arrow_schema(footer: bytes) -> bytes:
    """Return a footer of the same length in which Arrow finds no schema of its own."""
    found = list(_ARROW_SCHEMA.finditer(footer))
    if not found:
        return footer
    begin, end = found[-1].span()  # keys follow the statistics, which may have others
    return footer[:begin] + _OTHER_KEY + footer[end:]


@lru_cache(maxsize=4)
def with_fixed_bytes(footer: bytes, columns: tuple[tuple[int, int], ...]) -> bytes:
    """Return a footer in which some columns are bytes of a fixed length.

    `columns` are indexes of leaves of the schema, each with the length. Raises
    pa.ArrowInvalid.
    """
    try:
        return _with_fixed_bytes(footer, columns)
    except _MALFORMED as error:
        raise pa.ArrowInvalid(f"the footer cannot be rewritten: {error}") from error


def elements(footer: bytes) -> list[Struct]:
    """Return the elements of the schema. Raises pa.ArrowInvalid."""
    try:
        reader = Reader(footer)
        found: list[Struct] = reader.value(_seek_schema(reader)).values
    except _MALFORMED as error:
        raise pa.ArrowInvalid(f"the schema cannot be read: {error}") from error
    return found


def _with_fixed_bytes(footer: bytes, columns: tuple[tuple[int, int], ...]) -> bytes:
    reader = Reader(footer)
    kind = _seek_schema(reader)
    begin = reader.at
    schema = reader.value(kind)
    leaves = [
        element
        for element in schema.values
        if CHILDREN not in element or not element[CHILDREN].value
    ]
    for column, length in columns:
        element = leaves[column]
        for field in _INTERPRETATION & element.keys():
            del element[field]
        element[TYPE] = Field(_I32, zigzag(_FIXED_BYTES))
        element[LENGTH] = Field(_I32, zigzag(length))
    return footer[:begin] + b"".join(encoded(kind, schema)) + footer[reader.at :]


def _seek_schema(reader: Reader) -> int:
    """Go to the schema; return its Thrift type."""
    number, kind = reader.header(0)
    while number < SCHEMA:
        reader.value(kind)
        number, kind = reader.header(number)
    return kind
