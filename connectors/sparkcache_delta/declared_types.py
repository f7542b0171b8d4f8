"""Types that a schema of Spark's declares, beyond those that files have.

Delta has such a schema in its log, as JSON, and Spark adds one to the Parquet files
that it writes. They say which structs are variants, which numbers are intervals, and
the collations of strings.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from sparkcache.connector import COLLATIONS
from sparkcache.errors import ConfigError
from sparkcache_delta import options as scan_options
from sparkcache_delta.marked_structs import VARIANT

_VARIANT = "variant"
_INTERVAL = "interval day to second"


def with_declared(schema: pa.Schema, declared: str) -> pa.Schema:
    """Return columns with their declared types; raises ConfigError for some intervals.

    `declared` is the schema as JSON. Columns that it lacks stay as they are.
    """
    columns = {column["name"]: column for column in _columns(declared)}
    return pa.schema(
        [
            _field(field, columns[field.name]) if field.name in columns else field
            for field in schema
        ]
    )


def _columns(declared: str) -> list[dict[str, Any]]:
    """Return the declared columns; none if the text is no JSON, as in Spark."""
    try:
        columns: list[dict[str, Any]] = json.loads(declared)["fields"]
    except (ValueError, LookupError, TypeError):
        return []
    return columns


def _field(field: pa.Field, declared: dict[str, Any]) -> pa.Field:
    collations = declared.get("metadata", {}).get(COLLATIONS.decode())
    if collations:
        metadata = {COLLATIONS: json.dumps(collations).encode()}
        field = field.with_metadata({**(field.metadata or {}), **metadata})
    return field.with_type(_type(field.type, declared["type"], field.name))


def _type(kind: pa.DataType, declared: Any, column: str) -> pa.DataType:  # noqa: ANN401
    if not isinstance(declared, dict):
        return _atomic(kind, str(declared), column)
    match declared["type"]:
        case "struct":
            fields = [kind.field(index) for index in range(kind.num_fields)]
            pairs = zip(fields, declared["fields"], strict=True)
            return pa.struct([_field(field, of) for field, of in pairs])
        case "array":
            element = kind.value_field
            found = _type(element.type, declared["elementType"], column)
            return pa.list_(element.with_type(found))
        case "map":
            key, item = kind.key_field, kind.item_field
            keys = _type(key.type, declared["keyType"], column)
            items = _type(item.type, declared["valueType"], column)
            return pa.map_(key.with_type(keys), item.with_type(items))
        case _:
            return kind


def _atomic(kind: pa.DataType, declared: str, column: str) -> pa.DataType:
    if declared == _VARIANT:
        return VARIANT
    if declared == _INTERVAL:
        return pa.duration("us")
    if declared.startswith("interval"):
        raise ConfigError(
            f"column {column} is of type {declared}, which pyspark cannot read from a "
            f"data source in Python; write it as {_INTERVAL}, or name the other "
            f"columns in the option {scan_options.COLUMNS}"
        )
    return kind
