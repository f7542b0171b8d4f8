"""Detect dates and times written in the legacy calendar of Spark before version 3.

That calendar is Julian before 15 October 1582; for times, time zones have their offsets
of before 1900. The metadata of a file says who wrote it and in which calendar. Earlier
values mean other days in today's calendar: they are refused, not rebased. Later values
are the same in both calendars.

Source: Spark's DataSourceUtils, and sql-data-sources-parquet.html, "rebase mode".
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

_VERSION = b"org.apache.spark.version"
_LEGACY_DATES = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"
_FIRST_DAY = pa.scalar(date(1582, 10, 15))
_FIRST_TIME = datetime(1900, 1, 1, tzinfo=UTC)
_INT96 = "INT96"


def is_legacy(metadata: pq.FileMetaData) -> bool:
    """Return whether dates or times of a file may be in the legacy calendar."""
    properties = metadata.metadata or {}
    version = tuple(map(_number, properties.get(_VERSION, b"99").split(b".")[:2]))
    if version < (3,) or _LEGACY_DATES in properties:
        return True
    has_int96 = any(
        metadata.schema.column(index).physical_type == _INT96
        for index in range(len(metadata.schema))
    )
    return has_int96 and (version < (3, 1) or _LEGACY_INT96 in properties)


def has_calendar(kind: pa.DataType) -> bool:
    """Return whether values of a type are days or times."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def are_modern(values: pa.Array) -> pa.Array:
    """Return which days or times are the same in both calendars; null for null."""
    return pc.greater_equal(values, _first(values.type))


def has_ambiguous(column: pa.Array) -> bool:
    """Return whether a column has days or times that differ between the calendars."""
    if has_calendar(column.type):
        return bool(pc.any(pc.invert(are_modern(column))).as_py())
    return any(map(has_ambiguous, _children(column)))


def _first(kind: pa.DataType) -> pa.Scalar:
    """Return the first day or time that is the same in both calendars."""
    if pa.types.is_date(kind):
        return _FIRST_DAY
    return pa.scalar(_FIRST_TIME.replace(tzinfo=UTC if kind.tz else None), kind)


def _children(column: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(column.type):
        yield from column.flatten()
    elif pa.types.is_list(column.type):
        yield column.flatten()
    elif pa.types.is_map(column.type):
        yield from (column.keys, column.items)


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else 0
