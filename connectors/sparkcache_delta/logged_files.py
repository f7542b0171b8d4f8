"""Data files as a table's log describes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.filters import Bounds
from sparkcache_delta import rebase
from sparkcache_delta.python_values import values_or_none
from sparkcache_delta.schema_projection import physical_name
from sparkcache_delta.table import DataFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from sparkcache.arrays import Bools

_OF_FILE = ("path", "modification_time", "size_bytes", "num_records")
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
    statistics = _Statistics(actions, schema)
    columns = [actions.column(name).to_pylist() for name in _OF_FILE]
    columns += [_partition_values(actions), statistics.are_modern().tolist()]
    return [
        DataFile(
            uri := file_uri(path),
            modified_ms,
            size_bytes,
            rows,
            values,
            _BoundsOfFile(statistics, number),
            deleted.get(uri),
            is_modern,
        )
        for number, (path, modified_ms, size_bytes, rows, values, is_modern) in (
            enumerate(zip(*columns, strict=True))
        )
    ]


def _partition_values(actions: pa.Table) -> list[dict[str, str | None]]:
    """Return the partition values of each file, as texts that Arrow can parse.

    The files of one partition share the dictionary.
    """
    if "partition" not in actions.column_names or not actions.num_rows:
        return [{}] * actions.num_rows
    values = actions.column("partition").combine_chunks()
    names = [field.name for field in values.type]
    texts = [_texts(values.field(name)) for name in names]
    rows = list(zip(*texts, strict=True)) or [()] * actions.num_rows
    shared = {row: dict(zip(names, row, strict=True)) for row in set(rows)}
    return [shared[row] for row in rows]


def _texts(values: pa.Array) -> list[str | None]:
    if not pa.types.is_binary(values.type):
        texts: list[str | None] = values.cast(pa.string()).to_pylist()
        return texts
    return [None if value is None else value.hex() for value in values.to_pylist()]


class _Statistics:
    """The bounds in the log, column by column; most scans compare few columns."""

    def __init__(self, actions: pa.Table, schema: pa.Schema) -> None:
        self._rows = actions.column("num_records").combine_chunks()
        self._partitions = _by_stored_name(actions, "partition").keys()
        self._schema = schema
        self._lows, self._highs, self._nulls = (
            _by_stored_name(actions, name) for name in ("min", "max", "null_count")
        )
        self.fields = {
            field.name: field
            for field in schema
            if physical_name(field) in self._nulls
            and not pa.types.is_nested(field.type)
        }
        self._read: dict[str, list[Bounds]] = {}

    def column(self, name: str) -> list[Bounds]:
        """Return the bounds of a column in each file, by the table's name."""
        if name not in self._read:
            self._read[name] = self._bounds(self.fields[name])
        return self._read[name]

    def are_modern(self) -> Bools:
        """Return which files have bounds that exclude days of the legacy calendar.

        Only those in columns that are neither nested nor partition columns.
        """
        modern = np.ones(len(self._rows), np.bool_)
        for field in self._schema:
            name = physical_name(field)
            if field.name in self._partitions or not rebase.has_calendar(field.type):
                continue
            low, nulls = self._lows.get(name), self._nulls.get(name)
            if low is None or nulls is None or not rebase.has_calendar(low.type):
                return np.zeros(len(self._rows), np.bool_)
            is_null = pc.equal(nulls, self._rows)
            is_modern = pc.or_kleene(rebase.are_modern(low), is_null)
            modern &= is_modern.fill_null(False).to_numpy(zero_copy_only=False)
        return modern

    def _bounds(self, field: pa.Field) -> list[Bounds]:
        name = physical_name(field)
        nulls = values_or_none(self._nulls[name])
        unknown = [None] * len(nulls)
        low, high = (
            values_or_none(of_column[name]) if name in of_column else unknown
            for of_column in (self._lows, self._highs)
        )
        if pa.types.is_timestamp(field.type):
            high = [None if value is None else _upper_bound(value) for value in high]
        return list(map(Bounds, low, high, nulls))


class _BoundsOfFile(Mapping[str, Bounds]):
    """The bounds of one file, which are read from the statistics on access."""

    __slots__ = ("_number", "_statistics")

    def __init__(self, statistics: _Statistics, number: int) -> None:
        self._statistics = statistics
        self._number = number

    def __repr__(self) -> str:
        return f"_BoundsOfFile({dict(self)})"

    def __getitem__(self, name: str) -> Bounds:
        return self._statistics.column(name)[self._number]

    def __contains__(self, name: object) -> bool:
        return name in self._statistics.fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._statistics.fields)

    def __len__(self) -> int:
        return len(self._statistics.fields)


def _by_stored_name(actions: pa.Table, name: str) -> dict[str, pa.Array]:
    """Return a statistic of each file, by the names of columns in files."""
    if name not in actions.column_names:
        return {}
    column = actions.column(name).combine_chunks()
    if not pa.types.is_struct(column.type):
        return {}
    fields = zip(column.type, column.flatten(), strict=True)
    return {field.name: values for field, values in fields}


def _upper_bound(high: datetime) -> datetime | None:
    """Return a time that is after all values; None if it is out of range."""
    try:
        return high + _PRECISION
    except OverflowError:
        return None
