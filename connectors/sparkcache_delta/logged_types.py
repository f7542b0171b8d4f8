"""The types of a table's columns, from the schema in its log.

delta-rs takes variants for structs in Arrow, so the schema in the log says which they
are.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from sparkcache_delta.marked_structs import VARIANT

_VARIANT = "variant"


def with_variants(schema: pa.Schema, logged: str) -> pa.Schema:
    """Return columns with the variants among them; `logged` is the schema as JSON."""
    if f'"{_VARIANT}"' not in logged:
        return schema
    fields = json.loads(logged)["fields"]
    return pa.schema(
        [_field(field, of["type"]) for field, of in zip(schema, fields, strict=True)]
    )


def _field(field: pa.Field, logged: Any) -> pa.Field:  # noqa: ANN401
    return field.with_type(_type(field.type, logged))


def _type(kind: pa.DataType, logged: Any) -> pa.DataType:  # noqa: ANN401
    if logged == _VARIANT:
        return VARIANT
    if not isinstance(logged, dict):
        return kind
    match logged["type"]:
        case "struct":
            fields = [kind.field(index) for index in range(kind.num_fields)]
            pairs = zip(fields, logged["fields"], strict=True)
            return pa.struct([_field(field, of["type"]) for field, of in pairs])
        case "array":
            return pa.list_(_field(kind.value_field, logged["elementType"]))
        case _:
            return pa.map_(
                _field(kind.key_field, logged["keyType"]),
                _field(kind.item_field, logged["valueType"]),
            )
