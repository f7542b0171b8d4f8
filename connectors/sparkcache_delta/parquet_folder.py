"""A folder of Parquet files as a table, as Spark reads it.

Its columns are those of its first file, then those that folders name, such as
`day=2026-01-31`; a column that is both has the folders' values.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_delta import options as asked
from sparkcache_delta.footers import read_footer
from sparkcache_delta.names import below
from sparkcache_delta.partition_folders import is_hidden, values_of_files
from sparkcache_delta.partition_types import type_of
from sparkcache_delta.table import DataFile, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparkcache.connector import Storage
    from sparkcache_delta.partition_folders import Values

_LOG = "_delta_log"
_MOST_NAMED = 3
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


class ParquetFolder:
    """The Parquet files below a folder."""

    def __init__(
        self, storage: Storage, place: str, options: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._place = place
        for name in (asked.VERSION, asked.TIMESTAMP):
            if name in options:
                raise ConfigError(
                    f"option {name}={options[name]!r}: {place} is no Delta table but a "
                    "folder, which has no versions"
                )

    def __repr__(self) -> str:
        return f"ParquetFolder({self._place})"

    def table(self) -> Table:
        """Return the columns. Raises ConfigError, SourceError."""
        first = self._uri(next(iter(self._paths if self._is_parted else self._files)))
        footer = read_footer(self._storage, first, None)
        kinds = self._kinds()
        named = {name.lower(): pa.field(name, kind) for name, kind in kinds.items()}
        fields = [
            named.pop(field.name.lower(), None)
            or pa.field(field.name, _of_spark(field.type, field.name))
            for field in footer.metadata.schema.to_arrow_schema()
        ]
        schema = pa.schema([*fields, *named.values()])
        _require_distinct(schema.names, first)
        return Table(None, schema, by_id=False, partitions=[*kinds])

    def few_files(self) -> None:
        """Return None: a folder is listed when it is read."""

    def files(self) -> list[DataFile]:
        """Return the files in the order of their names."""
        return [
            DataFile(self._uri(path), number, values=values)
            for number, (path, values) in enumerate(self._files.items())
        ]

    @cached_property
    def _files(self) -> dict[str, Values]:
        """The files that Spark reads, with the values of the partition columns."""
        files = values_of_files(self._place, self._paths)
        if not files:
            raise ConfigError(
                f"{self._place}: there is neither a Delta table nor a Parquet file, in "
                "itself or in folders such as day=2026-01-31"
            )
        return files

    @cached_property
    def _paths(self) -> list[str]:
        """All files below that are not hidden, whether Spark reads them or not."""
        before = f"{self._place}/"
        found = [
            (one.uri.removeprefix(before), one.size_bytes)
            for one in self._storage.list()
            if one.uri.startswith(before)
        ]
        self._require_no_tables(path for path, _ in found)
        return [path for path, size in found if size and not is_hidden(path)]

    def _require_no_tables(self, paths: Iterable[str]) -> None:
        """Raise ConfigError if there are Delta tables: files of theirs may be gone."""
        logs = (f"/{path}".partition(f"/{_LOG}/") for path in paths)
        found = {folder.lstrip("/") for folder, log, _ in logs if log}
        tables = sorted(table for table in found if not is_hidden(table))
        if "" in tables:
            raise ConfigError(
                f"{self._place}: there is a {_LOG}, but no version of a table in it"
            )
        if tables:
            raise ConfigError(self._said_of(tables))

    def _said_of(self, tables: Sequence[str]) -> str:
        topics = [below(self._storage.root, self._uri(table)) for table in tables]
        others = len(topics) - _MOST_NAMED
        named = ", ".join(topics[:_MOST_NAMED])
        more = f" and {others} more" if others > 0 else ""
        return (
            f"{self._place} is no Delta table, but there are some below it: {named}"
            f"{more}; name the one that is meant: topic={topics[0]!r}"
        )

    def _uri(self, path: str) -> str:
        return f"{self._place}/{path}"

    @property
    def _is_parted(self) -> bool:
        return any(self._files.values())

    def _kinds(self) -> dict[str, pa.DataType]:
        """Return the type of each partition column, that which fits all values."""
        texts: dict[str, set[str]] = {}
        for values in self._files.values():
            for name, text in values.items():
                texts.setdefault(name, set()).update([] if text is None else [text])
        return {name: type_of(name, found) for name, found in texts.items()}


def _require_distinct(names: Sequence[str], of: str) -> None:
    """Raise ConfigError for names that are one to Spark."""
    kept = {name.lower(): name for name in reversed(names)}
    for name in names:
        if kept[name.lower()] != name:
            raise ConfigError(
                f"{of}: there are both {kept[name.lower()]} and {name}, which is one "
                "name to Spark; have the files written with another"
            )


def _of_spark(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type that Spark has for one of Parquet's; raises ConfigError."""
    if pa.types.is_struct(kind):
        fields = list(_fields(kind))
        _require_distinct([field.name for field in fields], f"column {name}")
        return pa.struct(
            [pa.field(field.name, _of_spark(field.type, name)) for field in fields]
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_of_spark(kind.value_type, name))
    if pa.types.is_map(kind):
        return pa.map_(_of_spark(kind.key_type, name), _of_spark(kind.item_type, name))
    if pa.types.is_dictionary(kind):
        return _of_spark(kind.value_type, name)
    if pa.types.is_timestamp(kind):
        is_instant = kind.tz is not None or kind.unit == "ns"  # INT96 comes as ns
        return pa.timestamp("us", "UTC" if is_instant else None)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        raise ConfigError(f"column {name} is of type {kind}, which Spark has not")
    return _WIDER.get(kind, kind)


def _fields(kind: pa.DataType) -> Iterator[pa.Field]:
    for at in range(kind.num_fields):
        yield kind.field(at)
