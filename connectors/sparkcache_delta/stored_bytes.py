"""Columns that Arrow would misread, and that are therefore read as bytes.

times as INT96      int96.py
long decimals       long_decimals.py

They may lie within structs, lists and maps, at any depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache_delta import extents, int96, long_decimals

if TYPE_CHECKING:
    from collections.abc import Set

    import pyarrow.parquet as pq


def lengths(metadata: pq.FileMetaData, names: Set[str]) -> dict[int, int]:
    """Return the lengths of the values of such columns, by the indexes of the columns.

    `names` are those of the top-level columns that are read.
    """
    owners = extents.owners(metadata)
    columns = (
        (index, metadata.schema.column(index))
        for index, owner in enumerate(owners)
        if owner in names
    )
    return {
        index: int96.BYTES if _is_int96(column) else column.length
        for index, column in columns
        if _is_int96(column) or _is_long_decimal(column)
    }


def converted(array: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    """Return an array whose bytes became values of a type; raises pa.ArrowInvalid."""
    if array.type == kind:
        return array
    if pa.types.is_timestamp(kind):
        return int96.times(array)
    if pa.types.is_decimal(kind):
        return long_decimals.decimals(array, kind, column)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        children = [array.field(index) for index in range(len(fields))]
        mask = array.is_null() if array.null_count else None
    else:
        children = [array.values]
    children = [
        converted(child, field.type, f"{column}.{field.name}")
        for child, field in zip(children, fields, strict=True)
    ]
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    buffers = array.buffers()[:2]
    count, offset = array.null_count, array.offset
    return pa.Array.from_buffers(kind, len(array), buffers, count, offset, children)


def _is_int96(column: pq.ColumnSchema) -> bool:
    return bool(column.physical_type == "INT96")


def _is_long_decimal(column: pq.ColumnSchema) -> bool:
    return bool(
        column.physical_type == "FIXED_LEN_BYTE_ARRAY"
        and column.converted_type == "DECIMAL"
        and column.length > long_decimals.BYTES
        and column.precision <= long_decimals.MOST_DIGITS
    )
