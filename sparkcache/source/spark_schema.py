"""A connector's columns as Spark's types.

Structs with a mark are variants, geometries and geographies, as pyspark writes them in
Arrow. Versions of Spark without such a type would take them for structs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from sparkcache.source.spark_version import require_spark

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql.types import StructType

_SINCE = {b"geometry": "4.1", b"geography": "4.1"}


def spark_schema(schema: pa.Schema) -> StructType:
    """Return columns as Spark's; raise ConfigError for types of a later Spark."""
    for field in schema:
        _require_types(field.name, [field])
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _require_types(column: str, fields: Iterable[pa.Field]) -> None:
    for field in fields:
        for mark, since in _SINCE.items():
            if mark in (field.metadata or {}):
                require_spark(since, f"column {column} of type {mark.decode()}")
        kind = field.type
        _require_types(column, [kind.field(at) for at in range(kind.num_fields)])
