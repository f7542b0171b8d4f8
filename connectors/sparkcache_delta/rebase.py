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
_FIRST_DATE = date(1582, 10, 15)
_FIRST_DAY = pa.scalar(_FIRST_DATE)
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


def is_modern(first: date) -> bool:
    """Return whether no day or time from `first` on differs between the calendars."""
    if not isinstance(first, datetime):
        return first >= _FIRST_DATE
    return first.replace(tzinfo=UTC) >= _FIRST_TIME


def has_ambiguous(column: pa.Array) -> bool:
    """Return whether a column has days or times that differ between the calendars."""
    kind = column.type
    if pa.types.is_date(kind):
        return _has_before(column, _FIRST_DAY)
    if pa.types.is_timestamp(kind):
        zone = UTC if kind.tz else None
        return _has_before(column, pa.scalar(_FIRST_TIME.replace(tzinfo=zone), kind))
    return any(map(has_ambiguous, _children(column)))


def _has_before(column: pa.Array, first: pa.Scalar) -> bool:
    return bool(pc.any(pc.less(column, first)).as_py())


def _children(column: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(column.type):
        yield from column.flatten()
    elif pa.types.is_list(column.type):
        yield column.flatten()
    elif pa.types.is_map(column.type):
        yield from (column.keys, column.items)


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else 0
