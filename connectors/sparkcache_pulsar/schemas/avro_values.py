"""Decode values of AVRO schemas: one datum each, without a header.

avro_lanes.py decodes most values, many at once. fastavro decodes those with long
arrays, one by one. Both return values as they are encoded: enums and dates as integers,
decimals as bytes. shapes.py then converts a whole column to its final type.
"""

from __future__ import annotations

import struct
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_pulsar.schemas.avro_lanes import Lanes
from sparkcache_pulsar.schemas.avro_shapes import shape
from sparkcache_pulsar.schemas.decoded import CONVERSION_ERRORS, Decoded, decode_each
from sparkcache_pulsar.schemas.definitions import (
    Array,
    Decimal,
    Definition,
    Enum,
    Fixed,
    Leaf,
    Map,
    Nullable,
    Record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_Encoded: TypeAlias = "str | list[Any] | dict[str, Any]"
_MALFORMED = (
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    struct.error,
)


class AvroDecoder:
    """Decoder of data of one Avro type; raises ConfigError if fastavro is missing."""

    expected = "a value of the AVRO schema"

    def __init__(self, definition: Definition) -> None:
        try:
            from fastavro import parse_schema, schemaless_reader
        except ImportError as error:
            raise ConfigError(
                "option valueSchema: to decode AVRO, pip install 'sparkcache[avro]'"
            ) from error
        self._read: Any = schemaless_reader
        self._definition = definition
        self._schema = parse_schema(encoded_as(definition, count()))
        self._shape = shape(definition)

    def __repr__(self) -> str:
        return f"AvroDecoder({self.type})"

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        return self._shape.shown

    def decode(self, payloads: pa.Array) -> Decoded:
        """Decode payloads."""
        lanes = Lanes.from_payloads(payloads)
        active = payloads.is_valid().to_numpy(zero_copy_only=False)
        stored = lanes.read_all(self._definition, active)
        faults = lanes.failed
        try:
            column = self._shape.finished(stored)
            rest = sorted(lanes.given_up - faults.keys())
        except CONVERSION_ERRORS:
            # Some value does not fit its type. Decode one by one to find it.
            column = pa.nulls(len(payloads), self.type)
            rest = [row for row in np.flatnonzero(active).tolist() if row not in faults]
        if not (rest or faults):
            return Decoded(column, {})
        others = payloads.take(pa.array(rest, pa.int64()))
        single = decode_each(others, self._shape, self._value, _MALFORMED)
        faults |= {rest[row]: fault for row, fault in single.faults.items()}
        indexes = np.arange(len(payloads))
        indexes[rest] = len(payloads) + np.arange(len(rest))
        failed = np.zeros(len(payloads), np.bool_)
        failed[list(faults)] = True
        both = pa.concat_arrays([column, single.array])
        return Decoded(both.take(pa.array(indexes, mask=failed)), faults)

    def _value(self, payload: bytes) -> object:
        stream = BytesIO(payload)
        value: object = self._read(stream, self._schema)
        if stream.tell() != len(payload):
            raise ValueError(f"{len(payload) - stream.tell()} bytes after the value")
        return value


def encoded_as(definition: Definition, numbers: Iterator[int]) -> _Encoded:
    """Return the Avro schema of a type's encoded form; `numbers` make unique names."""
    match definition:
        case Leaf(primitive=primitive):
            return primitive
        case Enum():
            return "int"
        case Decimal(size=None):
            return "bytes"
        case Fixed(size=size) | Decimal(size=size):
            return {"type": "fixed", "name": f"t{next(numbers)}", "size": size}
        case Nullable(inner=inner, null_first=null_first):
            encoded = encoded_as(inner, numbers)
            return ["null", encoded] if null_first else [encoded, "null"]
        case Array(items=items):
            return {"type": "array", "items": encoded_as(items, numbers)}
        case Map(values=values):
            return {"type": "map", "values": encoded_as(values, numbers)}
        case Record(fields=fields):
            return {
                "type": "record",
                "name": f"t{next(numbers)}",
                "fields": [
                    {"name": name, "type": encoded_as(field, numbers)}
                    for name, field in fields
                ],
            }
