"""A folder of Parquet files as a table, as Spark reads it.

Its columns are those of its first file, then those of partition folders such as
`day=2026-01-31`. A column that is in both has the values of the folders.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError
from sparkcache_delta import options as scan_options
from sparkcache_delta import spark_types
from sparkcache_delta.declared_types import with_declared
from sparkcache_delta.footers import read_columns
from sparkcache_delta.names import topic_of_uri
from sparkcache_delta.partition_folders import is_hidden, values_of_files
from sparkcache_delta.partition_types import canonical, type_of
from sparkcache_delta.table import DataFile, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkcache.connector import Storage
    from sparkcache_delta.partition_folders import Values

_LOG = "_delta_log"
_MOST_NAMED = 3


class ParquetFolder:
    """The Parquet files below a folder."""

    def __init__(
        self, storage: Storage, folder_uri: str, options: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._folder_uri = folder_uri
        self._options = options
        for name in (scan_options.VERSION, scan_options.TIMESTAMP):
            if name in options:
                raise ConfigError(
                    f"option {name}={options[name]!r}: {folder_uri} is a folder of "
                    "Parquet files, not a Delta table: it has no versions"
                )

    def __repr__(self) -> str:
        return f"ParquetFolder({self._folder_uri})"

    def table(self) -> Table:
        """Return the columns. Raises ConfigError, SourceError."""
        first = self._file_uri(
            next(iter(self._paths if self._is_partitioned else self._files))
        )
        types = self._partition_types
        partitions = {
            name.lower(): pa.field(name, kind) for name, kind in types.items()
        }
        fields = [
            partitions.pop(field.name.lower(), None) or field
            for field in self._columns(first)
        ]
        schema = pa.schema([*fields, *partitions.values()])
        spark_types.require_distinct(schema.names, first)
        return Table(None, schema, by_id=False, partitions=[*types])

    def few_files(self) -> None:
        """Return None: a folder is listed when a scan is planned."""

    def files(self) -> list[DataFile]:
        """Return the files in the order of their names."""
        types = self._partition_types
        return [
            DataFile(
                self._file_uri(path),
                number,
                values={
                    name: text if text is None else canonical(text, types[name])
                    for name, text in values.items()
                },
            )
            for number, (path, values) in enumerate(self._files.items())
        ]

    def _columns(self, uri: str) -> pa.Schema:
        """Return the columns of a file. If some are selected, return only those."""
        columns, declared = read_columns(self._storage, uri)
        names = scan_options.columns(self._options)
        known = {column.name for column in columns}
        if names is not None and known.issuperset(names):
            columns = [column for column in columns if column.name in names]
        schema = pa.schema(map(spark_types.field, columns))
        return with_declared(schema, declared)

    @cached_property
    def _files(self) -> dict[str, Values]:
        """The files that Spark reads, with the values of the partition columns."""
        files = values_of_files(self._folder_uri, self._paths)
        if not files:
            raise ConfigError(
                f"{self._folder_uri}: neither a Delta table nor a Parquet file found "
                "in this folder or in partition folders such as day=2026-01-31"
            )
        return files

    @cached_property
    def _paths(self) -> list[str]:
        """All files below that are not hidden, even those that Spark does not read."""
        prefix = f"{self._folder_uri}/"
        files = [
            (file.uri.removeprefix(prefix), file.size_bytes)
            for file in self._storage.list()
            if file.uri.startswith(prefix)
        ]
        self._require_no_tables(path for path, _ in files)
        return [path for path, size in files if size and not is_hidden(path)]

    def _require_no_tables(self, paths: Iterable[str]) -> None:
        """Raise ConfigError for Delta tables: some of their files may be obsolete."""
        logs = (f"/{path}".partition(f"/{_LOG}/") for path in paths)
        folders = {folder.lstrip("/") for folder, log, _ in logs if log}
        tables = sorted(table for table in folders if not is_hidden(table))
        if "" in tables:
            raise ConfigError(
                f"{self._folder_uri}: has a {_LOG} folder, but no version of a table "
                "in it"
            )
        if tables:
            raise ConfigError(self._tables_below_message(tables))

    def _tables_below_message(self, tables: Sequence[str]) -> str:
        topics = [
            topic_of_uri(self._storage.root, self._file_uri(table)) for table in tables
        ]
        others = len(topics) - _MOST_NAMED
        listed = ", ".join(topics[:_MOST_NAMED])
        more = f" and {others} more" if others > 0 else ""
        return (
            f"{self._folder_uri} is not a Delta table, but contains some: "
            f"{listed}{more}; select one, such as topic={topics[0]!r}"
        )

    def _file_uri(self, path: str) -> str:
        return f"{self._folder_uri}/{path}"

    @property
    def _is_partitioned(self) -> bool:
        return any(self._files.values())

    @cached_property
    def _partition_types(self) -> dict[str, pa.DataType]:
        """Return the type of each partition column, which fits all of its values."""
        texts: dict[str, set[str]] = {}
        for values in self._files.values():
            for name, text in values.items():
                texts.setdefault(name, set()).update([] if text is None else [text])
        return {name: type_of(name, values) for name, values in texts.items()}
