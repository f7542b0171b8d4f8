"""Reads a table's log with delta-rs: versions, columns, files, deletion vectors.

delta-rs has a way of its own to the storage, with what the storage says of that; it
reads the log alone, and the files of deletion vectors.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.errors import ConfigError, SourceError
from sparkcache_delta import options as asked
from sparkcache_delta import pinned_files
from sparkcache_delta.logged_files import data_files
from sparkcache_delta.partition_times import as_logged, times, without_zone
from sparkcache_delta.table import Table
from sparkcache_delta.version_times import first_since, version_at

try:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError
except ImportError as error:
    raise ConfigError(
        "option connector='delta': it needs deltalake: pip install 'sparkcache[delta]'"
    ) from error

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
}
_SINCE = asked.STARTING_TIMESTAMP
_OPTIONS = asked.VERSION, asked.TIMESTAMP, _SINCE
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


class Log:
    """The log of a table at one version."""

    def __init__(self, place: str, table: DeltaTable) -> None:
        self._place = place
        self._table = table
        self._require_known_features()

    def __repr__(self) -> str:
        return f"Log({self._place}, version {self._table.version()})"

    @classmethod
    def find(
        cls, storage: Storage, place: str, options: Mapping[str, str]
    ) -> Log | None:
        """Open the log of the table in a place; None if there is none.

        Raises ConfigError, SourceError.
        """
        version, time = asked.version(options), asked.timestamp(options)
        access = dict(storage.access())
        with _translated(place, options):
            try:
                table = _opened(_as_url(place), version, access)
            except TableNotFoundError:
                if version is None or not DeltaTable.is_deltatable(
                    _as_url(place), access
                ):
                    return None
                raise
            if time is not None:
                table.load_as_version(version_at(table, time))
        return cls(place, table)

    @classmethod
    def at(cls, storage: Storage, place: str, version: int | None = None) -> Log:
        """Open the log of a table at a version, or the newest one.

        Raises ConfigError, SourceError.
        """
        access = dict(storage.access())
        with _translated(place, {}):
            try:
                return cls(place, DeltaTable(_as_url(place), version, access))
            except TableNotFoundError as error:
                if version is None:
                    raise
                raise SourceError(
                    place, expected=f"version {version}", found=str(error)
                ) from error

    @property
    def version(self) -> int:
        """The version."""
        return self._table.version()

    def update(self) -> bool:
        """Go on to the newest version; tell whether that could be found out.

        It can no longer once credentials end that the log was opened with. Only what
        was committed since is read: if another table lies in the place by now, its
        later files come to those of this one, which nothing here tells. Raises
        ConfigError.
        """
        try:
            self._table.update_incremental()
        except (DeltaError, OSError, ValueError):
            return False
        self._require_known_features()
        return True

    @property
    def table_id(self) -> str:
        """What tells the table from another one in its place."""
        return str(self._table.metadata().id)

    @staticmethod
    def first_version_since(storage: Storage, place: str, time: datetime) -> int:
        """Return the first version of a time or later: it may not be there yet.

        Raises ConfigError.
        """
        access, options = dict(storage.access()), {_SINCE: time.isoformat()}
        with _translated(place, options):
            return first_since(DeltaTable(_as_url(place), None, access), time)

    def table(self) -> Table:
        """Return version and columns. Raises ConfigError."""
        with _translated(self._place, {}):
            schema = pa.schema(self._table.schema().to_arrow())
            metadata = self._table.metadata()
        mode = metadata.configuration.get(_MAPPING_MODE, "none")
        partitions = list(metadata.partition_columns)
        local = self._local_times(schema)
        return Table(self._table.version(), schema, mode == "id", partitions, local)

    def few_files(self) -> list[DataFile] | None:
        """Return the data files, if they are few and have no deletion vectors."""
        with _translated(self._place, {}):
            count = pa.table(self._table.get_add_actions(flatten=False)).num_rows
        if count > pinned_files.MOST or self._has_vectors():
            return None
        return self.files(are_whole=True)

    def files(
        self, names: Collection[str] | None = None, *, are_whole: bool = False
    ) -> list[DataFile]:
        """Return the data files, or those of these names. Raises SourceError.

        Unless they are known to be whole, the deletion vectors of all files are read.
        """
        schema = self.table().schema
        with _translated(self._place, {}):
            actions = as_logged(
                pa.table(self._table.get_add_actions(flatten=False)),
                self._local_times(schema),
            )
            if names is not None:
                wanted = pa.array(names, pa.string())
                actions = actions.filter(pc.is_in(actions["path"], wanted))
            is_any = actions.num_rows and not are_whole
            deleted = self._deleted() if is_any else {}
        return data_files(actions, schema, self.uri, deleted)

    def uri(self, path: str) -> str:
        """Return where a file lies; its name in the log is that of a URI."""
        scheme, separator, rest = path.partition(":")
        if separator and scheme.isalnum() and "/" not in scheme:
            place = unquote(rest).lstrip("/")
            scheme = _SCHEMES.get(scheme, scheme)
            return f"file:///{place}" if scheme == "file" else f"{scheme}://{place}"
        return f"{self._place}/{unquote(path)}"

    def _local_times(self, schema: pa.Schema) -> dict[str, dict[str, str]]:
        """Return the times of partitions that say no zone."""
        with _translated(self._place, {}):
            fields = times(schema, self._table.metadata().partition_columns)
            return without_zone(fields, self._table.partitions()) if fields else {}

    def _deleted(self) -> dict[str, Bools]:
        """Return which rows are deleted, of the files that have such."""
        if not self._has_vectors():
            return {}
        vectors = pa.RecordBatchReader.from_stream(self._table.deletion_vectors())
        found = {}
        for batch in vectors:
            for uri, kept in zip(*batch.columns, strict=True):
                rows = kept.values.to_numpy(zero_copy_only=False)
                found[self.uri(uri.as_py())] = ~rows.astype(np.bool_)
        return found

    def _has_vectors(self) -> bool:
        return _VECTORS in (self._table.protocol().reader_features or ())

    def _require_known_features(self) -> None:
        features = set(self._table.protocol().reader_features or ())
        unknown = sorted(features - _KNOWN_FEATURES)
        if unknown:
            raise ConfigError(
                f"{self._place}: table feature {', '.join(unknown)} is not supported; "
                f"these are: {', '.join(sorted(_KNOWN_FEATURES))}"
            )
        if _VECTORS in features and features & _WIDENING:
            raise ConfigError(
                f"{self._place}: table features {_VECTORS} and typeWidening are "
                "supported, but not together; drop one of them from the table"
            )


def _opened(url: str, version: int | None, access: dict[str, str]) -> DeltaTable:
    """Open a table at a version. Raises ValueError for one that is yet to come."""
    try:
        return DeltaTable(url, version, access)
    except DeltaError as error:
        if version is None or isinstance(error, TableNotFoundError):
            raise
        newest = DeltaTable(url, None, access).version()
        if version <= newest:
            raise
        raise ValueError(f"the newest one is {newest}") from error


def _as_url(place: str) -> str:
    scheme, _, path = place.partition("://")
    return f"{scheme}://{quote(path)}"


@contextmanager
def _translated(place: str, options: Mapping[str, str]) -> Iterator[None]:
    """Turn what delta-rs raises into errors of this package."""
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        if "Invalid table location" in str(error):
            raise ConfigError(
                f"{place}: must be a directory, that of a table or of Parquet files"
            ) from error
        given = [name for name in _OPTIONS if name in options]
        if given:
            option = f"option {given[0]}={options[given[0]]!r}"
            raise ConfigError(f"{option}: not a version of {place}: {error}") from error
        if isinstance(error, TableNotFoundError):
            raise ConfigError(f"{place}: there is no Delta table: {error}") from error
        if "nsupported" in str(error):
            raise ConfigError(f"{place}: {error}") from error
        raise SourceError(
            place, expected="a readable Delta log", found=str(error)
        ) from error
