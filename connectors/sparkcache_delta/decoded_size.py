"""How large rows become when they are decoded, as a footer tells it.

A value that is stored once, in a dictionary, may be in each row. Newer writers store
the decoded size of texts and bytes. Of older ones the bounds of the values tell about
how long they are. Writers leave out bounds of more than about 4 KiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache_delta.thrift import Reader, unzigzag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow.parquet as pq

    Chunks = Mapping[tuple[int, int], int]  # by row group and column

UNKNOWN_BYTES = 8 << 10
"""What a row is taken to have in columns of whose values nothing is known."""

_OFFSET_BYTES = 4
_LONGEST_BOUND = 64  # some writers truncate bounds to this
_ONCE = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BYTE_ARRAY"})
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 8}
_STRUCT, _MAGIC_BYTES = 12, 4  # of Thrift; before the footer
_MALFORMED = (LookupError, ValueError, AttributeError, TypeError)
_ROW_GROUPS, _COLUMNS, _METADATA, _SIZES, _DECODED = 4, 1, 3, 16, 1


def of_fixed(kind: pa.DataType) -> int:
    """Return the bytes of a value that are the same in each row."""
    if pa.types.is_struct(kind):
        return sum(of_fixed(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_nested(kind) or is_variable(kind):
        return _OFFSET_BYTES
    return 0 if pa.types.is_null(kind) else -(-kind.bit_width // 8)


def is_variable(kind: pa.DataType) -> bool:
    """Return whether a type has texts, bytes or lists, or consists of them."""
    if pa.types.is_struct(kind):
        return any(
            is_variable(kind.field(index).type) for index in range(kind.num_fields)
        )
    return (
        pa.types.is_nested(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )


def of_variable(
    metadata: pq.FileMetaData,
    groups: Sequence[int],
    leaves: Iterable[int],
    enough_bytes: int,
) -> int:
    """Return about how many bytes texts, bytes and elements of lists have.

    `leaves` are the indexes of the columns that are read. If the sizes that writers
    store cannot make it more than `enough_bytes`, they are not looked up.
    """
    found = [(group, leaf) for group in groups for leaf in leaves]
    estimated, at_most = _estimated(metadata, found, {})
    if at_most > enough_bytes:
        estimated, _ = _estimated(metadata, found, _stored_sizes(metadata))
    return estimated


def _estimated(
    metadata: pq.FileMetaData, found: Sequence[tuple[int, int]], sizes: Chunks
) -> tuple[int, int]:
    """Return an estimate of the bytes of column chunks, and about their maximum."""
    estimated = at_most = 0
    unknown: dict[int, int] = {}
    for group, leaf in found:
        chunk = metadata.row_group(group).column(leaf)
        column = metadata.schema.column(leaf)
        if column.max_repetition_level:
            estimated += chunk.num_values * _WIDTHS.get(column.physical_type, 8)
        if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
            estimated += chunk.num_values * column.length
        if column.physical_type != "BYTE_ARRAY":
            continue
        stored = chunk.total_uncompressed_size
        if (group, leaf) in sizes:
            estimated += sizes[group, leaf]
        elif not _ONCE.intersection(chunk.encodings):
            estimated += stored
        else:
            longest = _longest(chunk.statistics)
            if longest >= _LONGEST_BOUND:
                at_most += chunk.num_values * stored
            if longest < 0:
                at_most += chunk.num_values * stored
                assumed = chunk.num_values * min(stored, UNKNOWN_BYTES)
                unknown[group] = max(assumed, unknown.get(group, 0))
            else:
                estimated += max(stored, chunk.num_values * longest)
    estimated += sum(unknown.values())
    return estimated, max(estimated, at_most)


def _longest(statistics: pq.Statistics | None) -> int:
    """Return how long the bounds of texts or bytes are; -1 if there are none."""
    if statistics is None or not statistics.has_min_max:
        return -1
    return max(len(statistics.min_raw), len(statistics.max_raw))


def _stored_sizes(metadata: pq.FileMetaData) -> Chunks:
    """Return the decoded sizes of texts and bytes, as far as a footer has them."""
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    try:
        file = Reader(sink.getvalue().to_pybytes()[_MAGIC_BYTES:]).value(_STRUCT)
        return {
            (group, leaf): unzigzag(sizes.value[_DECODED].value)
            for group, columns in enumerate(file[_ROW_GROUPS].value.values)
            for leaf, chunk in enumerate(columns[_COLUMNS].value.values)
            for sizes in [chunk[_METADATA].value.get(_SIZES)]
            if sizes is not None and _DECODED in sizes.value
        }
    except _MALFORMED:  # such as the bounds of geometries, which `Reader` does not read
        return {}
