"""Column bounds of row groups, from the footer of a Parquet file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.filters import Bounds
from sparkcache_delta.python_values import value_or_none

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow.parquet as pq


def bounds(
    metadata: pq.FileMetaData, group: int, names: Mapping[str, str]
) -> dict[str, Bounds]:
    """Return the known bounds of a row group's columns, by the table's names.

    `names` maps the table's name of each column to its name in the file. A bound that
    Python has no value for is unknown.
    """
    table_names = {stored: name for name, stored in names.items()}
    known: dict[str, Bounds] = {}
    row_group = metadata.row_group(group)
    for index in range(row_group.num_columns):
        chunk = row_group.column(index)
        name = table_names.get(chunk.path_in_schema)
        if name is not None and chunk.statistics is not None:
            known[name] = _bounds(chunk.statistics)
    return known


def _bounds(statistics: pq.Statistics) -> Bounds:
    nulls = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max:
        return Bounds(nulls=nulls)
    low = value_or_none(lambda: statistics.min)
    return Bounds(low, value_or_none(lambda: statistics.max), nulls)
