"""A connector's columns as Spark's types.

Structs with a mark are variants, geometries and geographies, as pyspark writes them in
Arrow. Versions of Spark without such a type would take them for structs. Arrow has no
collations; they are in the metadata of fields, in the form in which Spark writes them
to the JSON of a schema.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sparkcache.connector import COLLATIONS
from sparkcache.source.spark_version import require_spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SINCE = {
    b"geometry": ("of type geometry", "4.1"),
    b"geography": ("of type geography", "4.1"),
    COLLATIONS: ("with collated strings", "4.1"),  # 4.0 returns no rows of them
}


def spark_schema(schema: pa.Schema) -> StructType:
    """Return columns as Spark's; raise ConfigError for types of a later Spark."""
    for field in schema:
        _require_types(field.name, [field])
    plain = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not _has_collations(schema):
        return plain
    declared = plain.jsonValue()
    _add_collations([*schema], declared["fields"])
    return StructType.fromJson(declared)


def _has_collations(fields: Iterable[pa.Field]) -> bool:
    return any(
        COLLATIONS in (field.metadata or {}) or _has_collations(_children(field.type))
        for field in fields
    )


def _require_types(column: str, fields: Iterable[pa.Field]) -> None:
    for field in fields:
        for name in (field.metadata or {}).keys() & _SINCE.keys():
            described, since = _SINCE[name]
            require_spark(since, f"column {column} {described}")
        if pa.types.is_time(field.type):
            require_spark("4.1", f"column {column} of type time")
        _require_types(column, _children(field.type))


def _add_collations(fields: Sequence[pa.Field], declared: list[dict[str, Any]]) -> None:
    """Add the metadata of fields to the JSON of their schema, also within structs."""
    for field, column in zip(fields, declared, strict=True):
        text = (field.metadata or {}).get(COLLATIONS)
        if text is not None:
            column["metadata"] = {COLLATIONS.decode(): json.loads(text)}
        _add_within(field.type, column["type"])


def _add_within(kind: pa.DataType, declared: Any) -> None:  # noqa: ANN401
    match declared:
        case {"type": "struct", "fields": fields}:
            _add_collations(_children(kind), fields)
        case {"type": "array", "elementType": element}:
            _add_within(kind.value_type, element)
        case {"type": "map", "keyType": key, "valueType": value}:
            _add_within(kind.key_type, key)
            _add_within(kind.item_type, value)


def _children(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]
