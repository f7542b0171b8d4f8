"""Data files as a table's log describes them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkcache_delta.schema_projection import physical_name
from sparkcache_delta.table import Bounds, DataFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from sparkcache.arrays import Bools

_PRECISION = timedelta(milliseconds=1)  # statistics cut off anything smaller


def data_files(
    actions: pa.Table,
    schema: pa.Schema,
    file_uri: Callable[[str], str],
    deleted: Mapping[str, Bools],
) -> list[DataFile]:
    """Return the files that actions have added.

    Args:
        actions: One row for each file, as delta-rs returns them.
        schema: The table's columns.
        file_uri: Returns a file's URI for its name in the log.
        deleted: Which rows of a file are deleted, by its URI.

    """
    return [
        DataFile(
            uri := file_uri(action["path"]),
            action["modification_time"],
            action["size_bytes"],
            action["num_records"],
            values,
            _bounds(action, schema),
            deleted.get(uri),
        )
        for action, values in zip(
            actions.to_pylist(), _partition_values(actions), strict=True
        )
    ]


def _partition_values(actions: pa.Table) -> list[dict[str, str | None]]:
    """Return the partition values of each file, as texts that Arrow can parse."""
    if "partition" not in actions.column_names:
        return [{} for _ in range(actions.num_rows)]
    values = actions.column("partition").combine_chunks()
    kind = values.type
    texts = {
        kind.field(index).name: _texts(values.field(index))
        for index in range(kind.num_fields)
    }
    return [
        {name: column[row] for name, column in texts.items()}
        for row in range(actions.num_rows)
    ]


def _texts(values: pa.Array) -> list[str | None]:
    if not pa.types.is_binary(values.type):
        texts: list[str | None] = values.cast(pa.string()).to_pylist()
        return texts
    return [None if value is None else value.hex() for value in values.to_pylist()]


def _bounds(action: Mapping[str, Any], schema: pa.Schema) -> dict[str, Bounds]:
    """Return the bounds of columns in the log, by the table's names."""
    lows, highs = action.get("min") or {}, action.get("max") or {}
    nulls = action.get("null_count") or {}
    known = {}
    for field in schema:
        name = physical_name(field)
        if name in nulls and not pa.types.is_nested(field.type):
            high = highs.get(name)
            if high is not None and pa.types.is_timestamp(field.type):
                high = _upper_bound(high)
            known[field.name] = Bounds(lows.get(name), high, nulls[name])
    return known


def _upper_bound(high: datetime) -> datetime | None:
    """Return a time that is after all values; None if it is out of range."""
    try:
        return high + _PRECISION
    except OverflowError:
        return None
