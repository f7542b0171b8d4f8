"""Finds a table: by its log, or as a folder of Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sparkcache_delta.parquet_folder import ParquetFolder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkcache.connector import Storage
    from sparkcache_delta.table import DataFile, Table


class FoundTable(Protocol):
    """A table at one version."""

    def table(self) -> Table:
        """Return version and columns. Raises ConfigError, SourceError."""

    def few_files(self) -> Sequence[DataFile] | None:
        """Return the data files, if they are few and at hand; otherwise None."""

    def files(self) -> Sequence[DataFile]:
        """Return the data files. Raises SourceError."""


def find_table(storage: Storage, place: str, options: Mapping[str, str]) -> FoundTable:
    """Return the table in a place. Raises ConfigError, SourceError."""
    from sparkcache_delta.log import Log  # large, and none of the executors' business

    return Log.find(storage, place, options) or ParquetFolder(storage, place, options)
