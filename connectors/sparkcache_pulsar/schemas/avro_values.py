"""Values of AVRO schemas: one datum each, without a header.

Most are read side by side, by avro_lanes.py. Those with long arrays are left to
fastavro, one by one. Both read what values are encoded as: enums as integers, dates and
decimals as what they are made of. What these mean is found for a column at once; see
shapes.py.
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
from sparkcache_pulsar.schemas.decoded import NOT_HELD, Decoded, decode_each
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
    """Decodes data of one Avro type; raises ConfigError if fastavro is missing."""

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
        lanes = Lanes.of(payloads)
        active = payloads.is_valid().to_numpy(zero_copy_only=False)
        stored = lanes.read_all(self._definition, active)
        faults = lanes.failed
        try:
            found = self._shape.finished(stored)
            left = sorted(lanes.given_up - faults.keys())
        except NOT_HELD:
            # Some value is beyond its type. Which one is found one by one.
            found = pa.nulls(len(payloads), self.type)
            left = [row for row in np.flatnonzero(active).tolist() if row not in faults]
        if not (left or faults):
            return Decoded(found, {})
        others = payloads.take(pa.array(left, pa.int64()))
        alone = decode_each(others, self._shape, self._value, _MALFORMED)
        faults |= {left[row]: what for row, what in alone.faults.items()}
        place = np.arange(len(payloads))
        place[left] = len(payloads) + np.arange(len(left))
        failed = np.zeros(len(payloads), np.bool_)
        failed[list(faults)] = True
        both = pa.concat_arrays([found, alone.array])
        return Decoded(both.take(pa.array(place, mask=failed)), faults)

    def _value(self, payload: bytes) -> object:
        stream = BytesIO(payload)
        value: object = self._read(stream, self._schema)
        if stream.tell() != len(payload):
            raise ValueError(f"{len(payload) - stream.tell()} bytes behind it")
        return value


def encoded_as(definition: Definition, numbers: Iterator[int]) -> _Encoded:
    """Return the Avro schema of what a type is encoded as; `numbers` make names."""
    match definition:
        case Leaf(primitive=primitive):
            return primitive
        case Enum():
            return "int"
        case Decimal(size=None):
            return "bytes"
        case Fixed(size=size) | Decimal(size=size):
            return {"type": "fixed", "name": f"t{next(numbers)}", "size": size}
        case Nullable(of=of, null_first=null_first):
            encoded = encoded_as(of, numbers)
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
                    {"name": name, "type": encoded_as(of, numbers)}
                    for name, of in fields
                ],
            }
