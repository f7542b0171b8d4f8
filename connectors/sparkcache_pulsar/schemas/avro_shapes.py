"""The Arrow types of values of Avro's types."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from sparkcache_pulsar.schemas import shapes
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

_LEAVES = {
    Leaf("boolean"): plain(pa.bool_()),
    Leaf("int"): plain(pa.int32()),
    Leaf("long"): plain(pa.int64()),
    Leaf("float"): plain(pa.float32()),
    Leaf("double"): plain(pa.float64()),
    Leaf("bytes"): plain(pa.binary()),
    Leaf("string"): plain(pa.string()),
    Leaf("int", "date"): shapes.DATE,
    Leaf("int", "time-millis"): shapes.times(pa.int32(), 1_000),
    Leaf("long", "time-micros"): shapes.times(pa.int64(), 1),
    Leaf("long", "timestamp-millis"): shapes.INSTANT_MILLIS,
    Leaf("long", "timestamp-micros"): shapes.INSTANT_MICROS,
    Leaf("long", "local-timestamp-millis"): shapes.LOCAL_MILLIS,
    Leaf("long", "local-timestamp-micros"): shapes.LOCAL_MICROS,
}


@lru_cache(maxsize=1024)
def shape(definition: Definition) -> Shape:
    """Return the Arrow types of values of a definition."""
    match definition:
        case Leaf():
            return _LEAVES[definition]
        case Enum(symbols=symbols):
            return shapes.symbols(symbols)
        case Decimal(precision=precision, scale=scale):
            return shapes.decimals(precision, scale)
        case Fixed(is_uuid=is_uuid):
            return shapes.UUIDS if is_uuid else plain(pa.binary())
        case Nullable(inner=inner):
            return shape(inner)
        case Array(items=items):
            return shapes.listed(shape(items))
        case Map(values=values):
            return shapes.mapped(shape(values))
        case Record(fields=fields):
            return shapes.record([(name, shape(field)) for name, field in fields])
