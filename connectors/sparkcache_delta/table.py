"""Properties of a table at one version, from its log or from a folder's listing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from sparkcache.arrays import Bools
    from sparkcache.filters import Bounds


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a table.

    Attributes:
        uri: Its URI.
        modified_ms: When it was written, in milliseconds since 1970.
        size_bytes: Its length; None if no log records it.
        rows: How many rows it has, deleted ones included; None if unknown.
        values: Values of the partition columns, as texts.
        bounds: Known bounds of columns, by the table's names.
        deleted: Which of its first rows are deleted; None if none are.
        is_modern: Whether it is known to have no dates or times that differ between
            the calendars; see `rebase`.

    """

    uri: str
    modified_ms: int
    size_bytes: int | None = None
    rows: int | None = None
    values: Mapping[str, str | None] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    deleted: Bools | None = None
    is_modern: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        version: Its version; None for a folder of Parquet files, which has none.
        schema: Its columns, with their names and ids in files as metadata.
        by_id: Whether columns are found in files by their ids.
        partitions: Names of the partition columns.
        without_zone: Partition columns with times that have no time zone.

    """

    version: int | None
    schema: pa.Schema
    by_id: bool
    partitions: Sequence[str]
    without_zone: Collection[str] = ()
