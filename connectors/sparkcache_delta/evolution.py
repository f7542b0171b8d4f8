"""Which changes of a table's columns a stream may go through.

What was committed before the stream's columns were looked up is read as a table is:
columns that were added since are null, those that were widened are cast. But a column
that is gone since, or has become another, would be lost unsaid. What is committed later
has to have the columns that the stream has: it is started again to have others.
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
    """Return which columns are others in a later version, with commas; empty if none.

    Unless they are all of the table's, columns that there are beside are not looked at.
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
    """Return which columns of an earlier version cannot be read as these are."""
    return ", ".join(sorted(_lost(columns, earlier, are_all=are_all)))


def renamed(
    files: Iterable[DataFile], then: pa.Schema, columns: pa.Schema
) -> list[DataFile]:
    """Return files of a version with what is known of columns under their later names.

    A column that is none of these keeps its name, unless one of these has it by now.
    """
    later = {physical_name(field): field.name for field in columns}
    names = {
        field.name: later.get(physical_name(field), field.name)
        for field in then
        if physical_name(field) in later or field.name not in columns.names
    }
    return [
        replace(
            file, values=_known(file.values, names), bounds=_known(file.bounds, names)
        )
        for file in files
    ]


def _known(by_name: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[name]: known for name, known in by_name.items() if name in names}


def _lost(
    now: Iterable[pa.Field], earlier: Iterable[pa.Field], *, are_all: bool
) -> Iterator[str]:
    kept = _by_name(now)
    for field in earlier:
        found = kept.get(physical_name(field))
        is_lost = are_all if found is None else not _reads(found.type, field.type)
        if is_lost:
            yield field.name


def _reads(now: pa.DataType, earlier: pa.DataType) -> bool:
    """Tell whether all values of a type are ones of another, nothing of them lost."""
    if now == earlier:
        return True
    if pa.types.is_struct(now) and pa.types.is_struct(earlier):
        return not any(_lost(_fields(now), _fields(earlier), are_all=True))
    if pa.types.is_list(now) and pa.types.is_list(earlier):
        return _reads(now.value_type, earlier.value_type)
    if pa.types.is_map(now) and pa.types.is_map(earlier):
        keys = _reads(now.key_type, earlier.key_type)
        return keys and _reads(now.item_type, earlier.item_type)
    return _is_wider(now, earlier)


def _is_wider(now: pa.DataType, earlier: pa.DataType) -> bool:
    """Tell whether Delta widens one type to the other."""
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
    return [kind.field(at) for at in range(kind.num_fields)]


def _by_name(columns: Iterable[pa.Field]) -> dict[str, pa.Field]:
    return {physical_name(field): field for field in columns}
