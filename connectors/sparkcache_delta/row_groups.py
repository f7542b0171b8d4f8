"""Column bounds of row groups, from the footer of a Parquet file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkcache_delta.table import Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow.parquet as pq


def bounds(
    metadata: pq.FileMetaData, group: int, names: Mapping[str, str]
) -> dict[str, Bounds]:
    """Return the known bounds of a row group's columns, by the table's names.

    `names` maps the table's name of each column to its name in the file.
    """
    table_names = {stored: name for name, stored in names.items()}
    known: dict[str, Bounds] = {}
    row_group = metadata.row_group(group)
    for index in range(row_group.num_columns):
        chunk = row_group.column(index)
        statistics = chunk.statistics
        name = table_names.get(chunk.path_in_schema)
        if name is None or statistics is None:
            continue
        nulls = statistics.null_count if statistics.has_null_count else None
        known[name] = Bounds(*_min_max(statistics), nulls)
    return known


def _min_max(statistics: pq.Statistics) -> tuple[Any, Any]:
    """Return the smallest and the largest value; None if unknown."""
    if not statistics.has_min_max:
        return None, None
    try:
        return statistics.min, statistics.max
    except pa.ArrowNotImplementedError:  # PyArrow 18, decimals stored as INT32
        return None, None
