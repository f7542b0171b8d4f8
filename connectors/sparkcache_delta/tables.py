"""Finds a table: by its Delta log, or as a folder of Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sparkcache.errors import ConfigError
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
        """Return the data files if they are few and cheap to list; otherwise None."""

    def files(self) -> Sequence[DataFile]:
        """Return the data files. Raises SourceError."""


def find_table(storage: Storage, uri: str, options: Mapping[str, str]) -> FoundTable:
    """Return the table at a URI. Raises ConfigError, SourceError."""
    try:
        from sparkcache_delta.log import Log  # large, and executors never need it
    except ModuleNotFoundError as error:
        if error.name != "deltalake":
            raise
        raise ConfigError(
            "option connector='delta': requires deltalake: "
            "pip install 'sparkcache[delta]'"
        ) from error

    return Log.find(storage, uri, options) or ParquetFolder(storage, uri, options)
