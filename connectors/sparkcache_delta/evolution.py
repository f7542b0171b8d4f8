"""Which changes of a table's columns a stream can read across.

Commits from before the stream's columns were looked up are read as a table is: columns
that were added later are null, columns that were widened later are cast. But a column
that was dropped or replaced later would be lost silently. Later commits must have the
columns of the stream; to read other columns, the stream must be started again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache_delta.file_schema import plain
from sparkcache_delta.schema_projection import physical_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from sparkcache_delta.table import DataFile


def changed(columns: pa.Schema, later: pa.Schema, *, are_all: bool) -> str:
    """Return the names of columns that a later version changes, with commas.

    Empty if it changes none. Columns that are not among `columns` count only if
    `are_all` says that these are all columns of the table.
    """
    before, after = _by_name(columns), _by_name(later)
    names = before.keys() | after.keys() if are_all else before.keys()
    return ", ".join(
        sorted(
            (after if name in after else before)[name].name
            for name in names
            if name not in before
            or name not in after
            or plain(before[name]) != plain(after[name])
        )
    )


def lost(columns: pa.Schema, earlier: pa.Schema, *, are_all: bool) -> str:
    """Return the names of earlier columns that cannot be read as `columns`."""
    return ", ".join(sorted(_lost(columns, earlier, are_all=are_all)))


def renamed(
    files: Iterable[DataFile], then: pa.Schema, columns: pa.Schema
) -> list[DataFile]:
    """Return files of a version with their columns under the stream's names.

    Args:
        files: The files, with values and bounds by the names in their version.
        then: The columns of that version.
        columns: The columns of the stream. A column that is not among them keeps its
            name, unless one of them has that name now; then it is left out.

    """
    later = {physical_name(field): field.name for field in columns}
    names = {
        field.name: later.get(physical_name(field), field.name)
        for field in then
        if physical_name(field) in later or field.name not in columns.names
    }
    if all(names.get(field.name) == field.name for field in then):
        return list(files)
    return [
        replace(
            file,
            values=_with_names(file.values, names),
            bounds=_with_names(file.bounds, names),
        )
        for file in files
    ]


def _with_names(by_name: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[name]: value for name, value in by_name.items() if name in names}


def _lost(
    now: Iterable[pa.Field], earlier: Iterable[pa.Field], *, are_all: bool
) -> Iterator[str]:
    kept = _by_name(now)
    for field in earlier:
        match = kept.get(physical_name(field))
        is_lost = are_all if match is None else not _can_read(match.type, field.type)
        if is_lost:
            yield field.name


def _can_read(now: pa.DataType, earlier: pa.DataType) -> bool:
    """Return whether all values of the earlier type can be read as `now` losslessly."""
    if now == earlier:
        return True
    if pa.types.is_struct(now) and pa.types.is_struct(earlier):
        return not any(_lost(_fields(now), _fields(earlier), are_all=True))
    if pa.types.is_list(now) and pa.types.is_list(earlier):
        return _can_read(now.value_type, earlier.value_type)
    if pa.types.is_map(now) and pa.types.is_map(earlier):
        keys = _can_read(now.key_type, earlier.key_type)
        return keys and _can_read(now.item_type, earlier.item_type)
    return _is_wider(now, earlier)


def _is_wider(now: pa.DataType, earlier: pa.DataType) -> bool:
    """Return whether Delta widens the earlier type to the other."""
    kinds = pa.types
    if kinds.is_decimal(now):
        whole, scale = now.precision - now.scale, now.scale
        if kinds.is_integer(earlier):
            return bool(whole >= (20 if earlier.bit_width > 32 else 10))
        is_decimal = kinds.is_decimal(earlier) and scale >= earlier.scale
        return bool(is_decimal and whole >= earlier.precision - earlier.scale)
    if kinds.is_integer(earlier):
        is_exact = kinds.is_float64(now) and earlier.bit_width <= 32
        is_wider = kinds.is_integer(now) and now.bit_width > earlier.bit_width
        return bool(is_exact or is_wider)
    if kinds.is_date(earlier):
        return bool(kinds.is_timestamp(now) and now.tz is None)
    return bool(kinds.is_float64(now) and kinds.is_float32(earlier))


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]


def _by_name(columns: Iterable[pa.Field]) -> dict[str, pa.Field]:
    return {physical_name(field): field for field in columns}
