"""Values of AVRO schemas: one datum each, without a header.

fastavro reads them as what they are encoded as: enums as integers, dates and decimals
as what they are made of. What these mean is found for a column at once; see shapes.py.
"""

from __future__ import annotations

import struct
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_pulsar.schemas import shapes
from sparkcache_pulsar.schemas.decoded import Decoded, brief, column
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
from sparkcache_pulsar.schemas.shapes import Shape, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

_MALFORMED = (
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    struct.error,
)

LEAVES = {
    Leaf("boolean"): plain(pa.bool_()),
    Leaf("int"): plain(pa.int32()),
    Leaf("long"): plain(pa.int64()),
    Leaf("float"): plain(pa.float32()),
    Leaf("double"): plain(pa.float64()),
    Leaf("bytes"): plain(pa.binary()),
    Leaf("string"): plain(pa.string()),
    Leaf("int", "date"): shapes.DATE,
    Leaf("int", "time-millis"): shapes.times(pa.int32(), 1_000_000),
    Leaf("long", "time-micros"): shapes.times(pa.int64(), 1_000),
    Leaf("long", "timestamp-millis"): shapes.INSTANT_MILLIS,
    Leaf("long", "timestamp-micros"): shapes.INSTANT_MICROS,
    Leaf("long", "local-timestamp-millis"): shapes.LOCAL_MILLIS,
    Leaf("long", "local-timestamp-micros"): shapes.LOCAL_MICROS,
}


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
        faults: dict[int, str] = {}
        values: list[object] = []
        read, schema = self._read, self._schema
        for row, payload in enumerate(payloads.to_pylist()):
            value = None
            if payload is not None:
                stream = BytesIO(payload)
                try:
                    value = read(stream, schema)
                    if stream.tell() != len(payload):
                        faults[row] = f"{len(payload) - stream.tell()} bytes behind it"
                        value = None
                except _MALFORMED as error:
                    faults[row] = brief(error)
            values.append(value)
        return Decoded(column(values, self._shape, faults), faults)


def encoded_as(definition: Definition, numbers: Iterator[int]) -> Any:  # noqa: ANN401
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


def shape(definition: Definition) -> Shape:
    """Return how values of a type lie in Arrow."""
    match definition:
        case Leaf():
            return LEAVES[definition]
        case Enum(symbols=symbols):
            return shapes.symbols(symbols)
        case Decimal(precision=precision, scale=scale):
            return shapes.decimals(precision, scale)
        case Fixed(is_uuid=is_uuid):
            return shapes.UUIDS if is_uuid else plain(pa.binary())
        case Nullable(of=of):
            return shape(of)
        case Array(items=items):
            return shapes.listed(shape(items))
        case Map(values=values):
            return shapes.mapped(shape(values))
        case Record(fields=fields):
            return shapes.record([(name, shape(of)) for name, of in fields])
