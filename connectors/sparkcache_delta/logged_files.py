"""Data files as a table's log describes them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkcache_delta.python_values import values_or_none
from sparkcache_delta.schema_projection import physical_name
from sparkcache_delta.table import Bounds, DataFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from sparkcache.arrays import Bools

_OF_FILE = ("path", "size_bytes", "modification_time", "num_records")
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
            bounds,
            deleted.get(uri),
        )
        for action, values, bounds in zip(
            actions.select(_OF_FILE).to_pylist(),
            _partition_values(actions),
            _bounds(actions, schema),
            strict=True,
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


def _bounds(actions: pa.Table, schema: pa.Schema) -> list[dict[str, Bounds]]:
    """Return the bounds of each file's columns in the log, by the table's names."""
    lows, highs, nulls = (
        _statistics(actions, name) for name in ("min", "max", "null_count")
    )
    known: list[dict[str, Bounds]] = [{} for _ in range(actions.num_rows)]
    unknown = [None] * actions.num_rows
    for field in schema:
        name = physical_name(field)
        if name not in nulls or pa.types.is_nested(field.type):
            continue
        upper = highs.get(name, unknown)
        if pa.types.is_timestamp(field.type):
            upper = [None if high is None else _upper_bound(high) for high in upper]
        of_files = zip(lows.get(name, unknown), upper, nulls[name], strict=True)
        for bounds, values in zip(known, of_files, strict=True):
            bounds[field.name] = Bounds(*values)
    return known


def _statistics(actions: pa.Table, name: str) -> dict[str, list[Any]]:
    """Return a statistic of each file, by the names of columns in files."""
    if name not in actions.column_names:
        return {}
    column = actions.column(name).combine_chunks()
    if not pa.types.is_struct(column.type):
        return {}
    fields = zip(column.type, column.flatten(), strict=True)
    return {field.name: values_or_none(values) for field, values in fields}


def _upper_bound(high: datetime) -> datetime | None:
    """Return a time that is after all values; None if it is out of range."""
    try:
        return high + _PRECISION
    except OverflowError:
        return None
