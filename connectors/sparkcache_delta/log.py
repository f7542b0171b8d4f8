"""Reads a table's log with delta-rs: versions, columns, files, deletion vectors.

delta-rs accesses the storage itself, with the endpoint and credentials that `Storage`
returns. It reads only the log and the files of deletion vectors.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from sparkcache.errors import ConfigError, SourceError
from sparkcache_delta import options as scan_options
from sparkcache_delta import pinned_files
from sparkcache_delta.commits import recorded_ms
from sparkcache_delta.declared_types import with_declared
from sparkcache_delta.logged_files import data_files
from sparkcache_delta.partition_times import as_logged, times, without_zone
from sparkcache_delta.table import Table
from sparkcache_delta.version_times import CommitTimes, LogFiles, require_past

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

    from sparkcache.arrays import Bools
    from sparkcache.connector import Storage
    from sparkcache_delta.table import DataFile

_MAPPING_MODE = "delta.columnMapping.mode"
_VECTORS = "deletionVectors"
_WIDENING = frozenset({"typeWidening", "typeWidening-preview"})
_KNOWN_FEATURES = _WIDENING | {
    "columnMapping",
    _VECTORS,
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}
_SINCE = scan_options.STARTING_TIMESTAMP
_OPTIONS = scan_options.VERSION, scan_options.TIMESTAMP, _SINCE
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


class Log:
    """The log of a table at one version."""

    def __init__(self, table_uri: str, table: DeltaTable) -> None:
        self._table_uri = table_uri
        self._table = table
        self._require_known_features()

    def __repr__(self) -> str:
        return f"Log({self._table_uri}, version {self._table.version()})"

    @classmethod
    def find(
        cls, storage: Storage, table_uri: str, options: Mapping[str, str]
    ) -> Log | None:
        """Open the log of the table at a URI; return None if it has no log.

        Raises ConfigError, SourceError.
        """
        version, time = scan_options.version(options), scan_options.timestamp(options)
        access = dict(storage.access())
        with _translated(table_uri, options):
            try:
                table = _open(_as_url(table_uri), version, access)
            except TableNotFoundError:
                if version is None or not DeltaTable.is_deltatable(
                    _as_url(table_uri), access
                ):
                    return None
                raise
            if time is not None:
                files = LogFiles.list(_as_url(table_uri), access).readable()
                times = _commit_times(storage, table_uri, table, files)
                table.load_as_version(times.current(time).version)
        return cls(table_uri, table)

    @classmethod
    def open(cls, storage: Storage, table_uri: str, version: int | None = None) -> Log:
        """Open the log of a table at a version, or at the newest one.

        Raises ConfigError, SourceError.
        """
        access = dict(storage.access())
        with _translated(table_uri, {}):
            try:
                return cls(table_uri, DeltaTable(_as_url(table_uri), version, access))
            except TableNotFoundError as error:
                if version is None:
                    raise
                raise SourceError(
                    table_uri, expected=f"version {version}", found=str(error)
                ) from error

    @property
    def version(self) -> int:
        """The version at which the log is open."""
        return self._table.version()

    def update(self) -> bool:
        """Update to the newest version; return False if that failed.

        It fails once the credentials expire with which the log was opened. Only new
        commits are read: if another table has replaced this one, its later files are
        added to those of this one, which is not detected here. Raises ConfigError.
        """
        try:
            self._table.update_incremental()
        except (DeltaError, OSError, ValueError):
            return False
        self._require_known_features()
        return True

    @property
    def table_id(self) -> str:
        """The id of the table; a table that replaces it has another id."""
        return str(self._table.metadata().id)

    @staticmethod
    def first_version_since(storage: Storage, table_uri: str, time: datetime) -> int:
        """Return the first version at a time or later, which may not exist yet.

        Raises ConfigError.
        """
        access, options = dict(storage.access()), {_SINCE: time.isoformat()}
        with _translated(table_uri, options):
            require_past(time)
            table = DeltaTable(_as_url(table_uri), None, access)
            files = LogFiles.list(_as_url(table_uri), access)
            times = _commit_times(storage, table_uri, table, files)
            return times.first_since(time)

    def table(self) -> Table:
        """Return version and columns. Raises ConfigError."""
        with _translated(self._table_uri, {}):
            logged = self._table.schema()
            schema = with_declared(pa.schema(logged.to_arrow()), logged.to_json())
            metadata = self._table.metadata()
        mode = metadata.configuration.get(_MAPPING_MODE, "none")
        partitions = list(metadata.partition_columns)
        without_zone = self._times_without_zone(schema)
        return Table(
            self._table.version(), schema, mode == "id", partitions, without_zone
        )

    def few_files(self) -> list[DataFile] | None:
        """Return the data files if they are few and have no deletion vectors."""
        with _translated(self._table_uri, {}):
            count = pa.table(self._table.get_add_actions(flatten=False)).num_rows
        if count > pinned_files.MOST or self._has_vectors():
            return None
        return self.files(are_whole=True)

    def files(
        self, names: Collection[str] | None = None, *, are_whole: bool = False
    ) -> list[DataFile]:
        """Return all data files, or only those with these names. Raises SourceError.

        Deletion vectors of all files are read, unless the files are known to be whole.
        """
        schema = self.table().schema
        with _translated(self._table_uri, {}):
            actions = as_logged(
                pa.table(self._table.get_add_actions(flatten=False)),
                self._times_without_zone(schema),
            )
            if names is not None:
                wanted = pa.array(names, pa.string())
                actions = actions.filter(pc.is_in(actions["path"], wanted))
            may_have_deleted = actions.num_rows and not are_whole
            deleted = self._deleted() if may_have_deleted else {}
        return data_files(actions, schema, self.file_uri, deleted)

    def file_uri(self, name: str) -> str:
        """Return the URI of a file; its name in the log is percent-encoded."""
        scheme, separator, rest = name.partition(":")
        if separator and scheme.isalnum() and "/" not in scheme:
            path = unquote(rest).lstrip("/")
            scheme = _SCHEMES.get(scheme, scheme)
            return f"file:///{path}" if scheme == "file" else f"{scheme}://{path}"
        return f"{self._table_uri}/{unquote(name)}"

    def _times_without_zone(self, schema: pa.Schema) -> dict[str, dict[str, str]]:
        """Return the partition values that are times without a time zone."""
        with _translated(self._table_uri, {}):
            fields = times(schema, self._table.metadata().partition_columns)
            return without_zone(fields, self._table.partitions()) if fields else {}

    def _deleted(self) -> dict[str, Bools]:
        """Return which rows are deleted, of the files that have deleted rows."""
        if not self._has_vectors():
            return {}
        vectors = pa.RecordBatchReader.from_stream(self._table.deletion_vectors())
        deleted = {}
        for batch in vectors:
            for uri, kept in zip(*batch.columns, strict=True):
                rows = kept.values.to_numpy(zero_copy_only=False)
                deleted[self.file_uri(uri.as_py())] = ~rows.astype(np.bool_)
        return deleted

    def _has_vectors(self) -> bool:
        return _VECTORS in (self._table.protocol().reader_features or ())

    def _require_known_features(self) -> None:
        features = set(self._table.protocol().reader_features or ())
        unknown = sorted(features - _KNOWN_FEATURES)
        if unknown:
            raise ConfigError(
                f"{self._table_uri}: table feature {', '.join(unknown)} is not "
                f"supported; supported features: {', '.join(sorted(_KNOWN_FEATURES))}"
            )
        if _VECTORS in features and features & _WIDENING:
            raise ConfigError(
                f"{self._table_uri}: table features {_VECTORS} and typeWidening are "
                "supported, but not together; drop one of these features from the table"
            )


def _open(url: str, version: int | None, access: dict[str, str]) -> DeltaTable:
    """Open a table at a version. Raises ValueError for a future version."""
    try:
        return DeltaTable(url, version, access)
    except DeltaError as error:
        if version is None or isinstance(error, TableNotFoundError):
            raise
        newest = DeltaTable(url, None, access).version()
        if version <= newest:
            raise
        raise ValueError(f"the newest one is {newest}") from error


def _commit_times(
    storage: Storage, table_uri: str, table: DeltaTable, files: LogFiles
) -> CommitTimes:
    """Return the times of the commits up to the version at which a table is open."""
    return CommitTimes(
        {v: time for v, time in files.modified_ms.items() if v <= table.version()},
        table.metadata().configuration,
        lambda version: recorded_ms(storage, table_uri, version),
    )


def _as_url(uri: str) -> str:
    scheme, _, path = uri.partition("://")
    return f"{scheme}://{quote(path)}"


@contextmanager
def _translated(uri: str, options: Mapping[str, str]) -> Iterator[None]:
    """Translate errors of delta-rs into errors of this package."""
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        if "Invalid table location" in str(error):
            raise ConfigError(
                f"{uri}: must be the directory of a Delta table or of Parquet files"
            ) from error
        names = [name for name in _OPTIONS if name in options]
        if names:
            option = f"option {names[0]}={options[names[0]]!r}"
            raise ConfigError(f"{option}: not a version of {uri}: {error}") from error
        if isinstance(error, TableNotFoundError):
            raise ConfigError(f"{uri}: not a Delta table: {error}") from error
        if "nsupported" in str(error):
            raise ConfigError(f"{uri}: {error}") from error
        raise SourceError(
            uri, expected="a readable Delta log", found=str(error)
        ) from error
