"""Cuts a data file into extents of row groups, and these into runs of equal rows.

Small row groups are read together with their neighbours. The result depends only on the
file's footer and the columns that are read, not on the rows that match. A run has about
`run_bytes` as stored, and at most four times as many decoded, as far as the footer
tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.model import Extent, Run
from sparkcache_delta import decoded_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

    import pyarrow.parquet as pq

LEAST_BYTES = 8 << 20
"""Reading less than this costs more in requests than in bytes."""

LEAST_GAP_BYTES = 1 << 20
"""Skipping less than this costs more than it saves, likewise."""

DECODED_FACTOR = 4
"""How many times `run_bytes` a run may have when it is decoded."""

_TAIL_BYTES = 8


@dataclass(frozen=True, slots=True)
class FileExtent(Extent):
    """An extent of a data file; only planning distinguishes it from others.

    Attributes:
        decoded_bytes: About how large its rows become when they are decoded.

    """

    decoded_bytes: int = 0


def row_groups(metadata: pq.FileMetaData) -> list[list[int]]:
    """Return the row groups of a file, grouped by the extent that reads them."""
    grouped: list[list[int]] = []
    filled_bytes = LEAST_BYTES
    for group in range(metadata.num_row_groups):
        if filled_bytes >= LEAST_BYTES:
            grouped.append([])
            filled_bytes = 0
        grouped[-1].append(group)
        filled_bytes += _stored_bytes(metadata, group)
    return grouped


def extent(
    metadata: pq.FileMetaData,
    size_bytes: int,
    groups: list[int],
    columns: Set[str],
    row_bytes: int = 0,
) -> FileExtent:
    """Return the extent of adjacent row groups: their columns, and the footer.

    `columns` are top-level names in the file; nested columns are included. `row_bytes`
    is what a decoded row has without its texts, bytes and elements of lists.
    """
    first = sum(metadata.row_group(group).num_rows for group in range(groups[0]))
    rows = sum(metadata.row_group(group).num_rows for group in groups)
    footer = size_bytes - _TAIL_BYTES - metadata.serialized_size, size_bytes
    chunks = [chunk for group in groups for chunk in _chunks(metadata, group, columns)]
    ranges = tuple(_joined([*chunks, footer]))
    total = sum(length for _, length in ranges)
    last = first + rows - 1
    separate = ranges if len(ranges) > 1 else ()
    leaves = [leaf for leaf, name in enumerate(owners(metadata)) if name in columns]
    enough = DECODED_FACTOR * total - rows * row_bytes
    variable = decoded_size.of_variable(metadata, groups, leaves, enough)
    decoded = rows * row_bytes + variable
    return FileExtent(first, last, ranges[0][0], total, separate, decoded)


def runs(extent: Extent, run_bytes: int) -> list[Run]:
    """Cut an extent into as few runs as `run_bytes` allows, of equal rows each."""
    rows = extent.last - extent.first + 1
    decoded = extent.decoded_bytes if isinstance(extent, FileExtent) else 0
    stored_count = -(-extent.size_bytes // run_bytes)
    decoded_count = -(-decoded // (DECODED_FACTOR * run_bytes))
    count = min(rows, max(1, stored_count, decoded_count))
    step = -(-rows // count)
    return [
        Run(first, min(first + step - 1, extent.last))
        for first in range(extent.first, extent.last + 1, step)
    ]


def owners(metadata: pq.FileMetaData) -> Iterator[str]:
    """Yield the top-level column of each leaf; its name may contain dots."""
    for field in metadata.schema.to_arrow_schema():
        yield from [field.name] * _leaves(field.type)


def _stored_bytes(metadata: pq.FileMetaData, group: int) -> int:
    row_group = metadata.row_group(group)
    return sum(
        row_group.column(index).total_compressed_size
        for index in range(row_group.num_columns)
    )


def _chunks(
    metadata: pq.FileMetaData, group: int, columns: Set[str]
) -> Iterator[tuple[int, int]]:
    """Yield the begin and end offset of each column chunk of a row group."""
    row_group = metadata.row_group(group)
    for index, name in enumerate(owners(metadata)):
        if name not in columns:
            continue
        chunk = row_group.column(index)
        begin = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset:
            begin = min(begin, chunk.dictionary_page_offset)
        yield begin, begin + chunk.total_compressed_size


def _leaves(kind: pa.DataType) -> int:
    if pa.types.is_dictionary(kind) or not kind.num_fields:
        return 1
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))


def _joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield offset and size of spans, merging those with a small gap between them."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin - merged[-1][1] <= LEAST_GAP_BYTES:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    for begin, end in merged:
        yield begin, end - begin
