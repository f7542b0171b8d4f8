"""What the footer of a file says of the values in a row group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache_delta.table import Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow.parquet as pq


def bounds(
    metadata: pq.FileMetaData, group: int, names: Mapping[str, str]
) -> dict[str, Bounds]:
    """Return what there is of each column, under the table's name for it.

    `names` gives each column's name in the file.
    """
    stored = {name: ours for ours, name in names.items()}
    found: dict[str, Bounds] = {}
    described = metadata.row_group(group)
    for at in range(described.num_columns):
        chunk = described.column(at)
        statistics = chunk.statistics
        ours = stored.get(chunk.path_in_schema)
        if ours is None or statistics is None:
            continue
        nulls = statistics.null_count if statistics.has_null_count else None
        if statistics.has_min_max:
            found[ours] = Bounds(statistics.min, statistics.max, nulls)
        else:
            found[ours] = Bounds(nulls=nulls)
    return found
