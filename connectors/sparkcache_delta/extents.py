"""How a data file is cut: into row groups, and these into runs of as many rows.

Row groups that are small are read together with their neighbours. All of that follows
from the file's footer and the columns that are read, whatever rows are wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.model import Extent, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

    import pyarrow.parquet as pq

_LEAST_BYTES = 8 << 20  # a smaller one costs more in requests than in bytes
_LEAST_GAP_BYTES = 1 << 20  # likewise
_TAIL_BYTES = 8


def row_groups(metadata: pq.FileMetaData) -> list[list[int]]:
    """Return the row groups of a file, those together that are read together."""
    found: list[list[int]] = []
    filled_bytes = _LEAST_BYTES
    for group in range(metadata.num_row_groups):
        if filled_bytes >= _LEAST_BYTES:
            found.append([])
            filled_bytes = 0
        found[-1].append(group)
        filled_bytes += _stored_bytes(metadata, group)
    return found


def extent(
    metadata: pq.FileMetaData, size_bytes: int, groups: list[int], columns: Set[str]
) -> Extent:
    """Return the extent of neighbouring row groups: those columns, and the footer.

    Columns are meant by their names in the file, with all that is in them.
    """
    first = sum(metadata.row_group(at).num_rows for at in range(groups[0]))
    rows = sum(metadata.row_group(at).num_rows for at in groups)
    footer = size_bytes - _TAIL_BYTES - metadata.serialized_size, size_bytes
    chunks = [chunk for at in groups for chunk in _chunks(metadata, at, columns)]
    ranges = tuple(_joined([*chunks, footer]))
    total = sum(length for _, length in ranges)
    last = first + rows - 1
    several = ranges if len(ranges) > 1 else ()
    return Extent(first, last, ranges[0][0], total, several)


def runs(extent: Extent, run_bytes: int) -> list[Run]:
    """Cut an extent into as few runs as will do, of as many rows each."""
    rows = extent.last - extent.first + 1
    count = min(rows, max(1, -(-extent.size_bytes // run_bytes)))
    step = -(-rows // count)
    return [
        Run(first, min(first + step - 1, extent.last))
        for first in range(extent.first, extent.last + 1, step)
    ]


def _stored_bytes(metadata: pq.FileMetaData, group: int) -> int:
    found = metadata.row_group(group)
    return sum(
        found.column(at).total_compressed_size for at in range(found.num_columns)
    )


def _chunks(
    metadata: pq.FileMetaData, group: int, columns: Set[str]
) -> Iterator[tuple[int, int]]:
    """Yield where the columns of a row group begin and end."""
    found = metadata.row_group(group)
    for at, name in enumerate(_owners(metadata)):
        if name not in columns:
            continue
        chunk = found.column(at)
        begin = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset:
            begin = min(begin, chunk.dictionary_page_offset)
        yield begin, begin + chunk.total_compressed_size


def _owners(metadata: pq.FileMetaData) -> Iterator[str]:
    """Yield the name of the column that each leaf is part of: it may have dots."""
    for field in metadata.schema.to_arrow_schema():
        yield from [field.name] * _leaves(field.type)


def _leaves(kind: pa.DataType) -> int:
    if pa.types.is_dictionary(kind) or not kind.num_fields:
        return 1
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields))


def _joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield offset and size of spans; one of those with a small gap between them."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin - merged[-1][1] <= _LEAST_GAP_BYTES:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    for begin, end in merged:
        yield begin, end - begin
