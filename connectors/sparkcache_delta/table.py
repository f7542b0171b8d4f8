"""What is known of a table at one version, wherever it was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from sparkcache.arrays import Bools


class Bounds(NamedTuple):
    """What values of a column there can be, as Python values.

    Attributes:
        low: The least of those that are not null, or less; None if it is not known.
        high: The greatest, or more, likewise.
        nulls: How many are null; None if that is not known.

    """

    low: Any = None
    high: Any = None
    nulls: int | None = None


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Attributes:
        uri: Where it lies.
        modified_ms: When it was written, in milliseconds since 1970.
        size_bytes: Its length; None if no log says it.
        rows: How many it has, deleted ones included; None if it is not known.
        values: Those of the partition columns, as texts.
        bounds: What is known of columns, by the table's names for them.
        deleted: Which of its first rows are deleted; None if none are.

    """

    uri: str
    modified_ms: int
    size_bytes: int | None = None
    rows: int | None = None
    values: Mapping[str, str | None] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    deleted: Bools | None = None


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        version: None if it has none: a folder of Parquet files.
        schema: Its columns, with their names and ids in files as metadata.
        by_id: Whether columns are found in files by their ids.
        partitions: Which columns are those of the partitions.
        without_zone: Which of these have times that say no zone.

    """

    version: int | None
    schema: pa.Schema
    by_id: bool
    partitions: Sequence[str]
    without_zone: Collection[str] = ()
