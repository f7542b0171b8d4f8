"""What a table's log says of its data files."""

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

_CUT_OFF = timedelta(milliseconds=1)  # statistics do not tell what is less than that


def data_files(
    actions: pa.Table,
    schema: pa.Schema,
    uri: Callable[[str], str],
    deleted: Mapping[str, Bools],
) -> list[DataFile]:
    """Return the files that actions have added.

    Args:
        actions: A row for each file, as delta-rs gives them.
        schema: The table's columns.
        uri: Where a file lies, by its name in the log.
        deleted: Which rows are deleted, by where the file lies.

    """
    return [
        DataFile(
            place := uri(action["path"]),
            action["modification_time"],
            action["size_bytes"],
            action["num_records"],
            values,
            _bounds(action, schema),
            deleted.get(place),
        )
        for action, values in zip(actions.to_pylist(), _texts(actions), strict=True)
    ]


def _texts(actions: pa.Table) -> list[dict[str, str | None]]:
    """Return the partitions' values of each file as texts that Arrow reads again."""
    if "partition" not in actions.column_names:
        return [{} for _ in range(actions.num_rows)]
    values = actions.column("partition").combine_chunks()
    kind = values.type
    texts = {
        kind.field(at).name: _text(values.field(at)) for at in range(kind.num_fields)
    }
    return [
        {name: column[row] for name, column in texts.items()}
        for row in range(actions.num_rows)
    ]


def _text(values: pa.Array) -> list[str | None]:
    if not pa.types.is_binary(values.type):
        texts: list[str | None] = values.cast(pa.string()).to_pylist()
        return texts
    return [None if value is None else value.hex() for value in values.to_pylist()]


def _bounds(action: Mapping[str, Any], schema: pa.Schema) -> dict[str, Bounds]:
    """Return what a log says of columns, under the table's names."""
    lows, highs = action.get("min") or {}, action.get("max") or {}
    nulls = action.get("null_count") or {}
    found = {}
    for field in schema:
        name = physical_name(field)
        if name in nulls and not pa.types.is_nested(field.type):
            high = highs.get(name)
            if high is not None and pa.types.is_timestamp(field.type):
                high = _later(high)
            found[field.name] = Bounds(lows.get(name), high, nulls[name])
    return found


def _later(high: datetime) -> datetime | None:
    """Return the time before which all lie; None if there is none to write it."""
    try:
        return high + _CUT_OFF
    except OverflowError:
        return None
