"""Reads a table's log with delta-rs: versions, columns, files, deletion vectors.

delta-rs has a way of its own to the storage, with what the storage says of that; it
reads the log alone, and the files of deletion vectors.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.errors import ConfigError, SourceError
from sparkcache_delta import options as asked
from sparkcache_delta.conforming import physical_name
from sparkcache_delta.table import Bounds, DataFile, Table

try:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError
except ImportError as error:
    raise ConfigError(
        "option connector='delta': it needs deltalake: pip install 'sparkcache[delta]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparkcache.arrays import Bools
    from sparkcache.connector import Storage

_MAPPING_MODE = "delta.columnMapping.mode"
_KEEPS_TIMES = "delta.enableInCommitTimestamps"
_TIMES_SINCE = "delta.inCommitTimestampEnablementTimestamp"
_VECTORS = "deletionVectors"
_WIDENING = frozenset({"typeWidening", "typeWidening-preview"})
_KNOWN_FEATURES = _WIDENING | {
    "columnMapping",
    _VECTORS,
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
_OPTIONS = asked.VERSION, asked.TIMESTAMP, asked.STARTING_TIMESTAMP
_CUT_OFF = timedelta(milliseconds=1)  # writers do not tell what is less than that
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


class _TooEarlyError(ValueError):
    """A time lies before all that a log tells of."""


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
                table.load_as_version(_version_at(table, time))
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

    def is_outdated(self) -> bool:
        """Tell whether there is a newer version; then it is no use any more.

        Nor is it if that cannot be found out: credentials that it was opened with end.
        """
        before = self.version
        try:
            self._table.update_incremental()
        except (DeltaError, OSError, ValueError):
            return True
        return self.version != before

    @property
    def table_id(self) -> str:
        """What tells the table from another one in its place."""
        return str(self._table.metadata().id)

    def first_version_since(self, time: datetime) -> int:
        """Return the first version of a time or later: it may not be there yet.

        Raises ConfigError.
        """
        options = {asked.STARTING_TIMESTAMP: time.isoformat()}
        with _translated(self._place, options):
            kept = [int(commit["version"]) for commit in self._table.history()]
            try:
                before = _version_at(self._table, time - _CUT_OFF)
            except _TooEarlyError:
                return min(kept)
            if isinstance(before, int):
                return before + 1
            self._table.load_as_version(before)
            return self._table.version() + 1

    def table(self) -> Table:
        """Return version and columns. Raises ConfigError."""
        with _translated(self._place, {}):
            schema = pa.schema(self._table.schema().to_arrow())
            metadata = self._table.metadata()
        mode = metadata.configuration.get(_MAPPING_MODE, "none")
        partitions = list(metadata.partition_columns)
        return Table(self._table.version(), schema, mode == "id", partitions)

    def files(self, names: Collection[str] | None = None) -> list[DataFile]:
        """Return the data files, or those of these names. Raises SourceError."""
        schema = self.table().schema
        with _translated(self._place, {}):
            actions = pa.table(self._table.get_add_actions(flatten=False))
            if names is not None:
                wanted = pa.array(names, pa.string())
                actions = actions.filter(pc.is_in(actions["path"], wanted))
            deleted = self._deleted() if actions.num_rows else {}
        partitions = _texts(actions)
        return [
            DataFile(
                uri := self.uri(action["path"]),
                action["modification_time"],
                action["size_bytes"],
                action["num_records"],
                values,
                _bounds(action, schema),
                deleted.get(uri),
            )
            for action, values in zip(actions.to_pylist(), partitions, strict=True)
        ]

    def uri(self, path: str) -> str:
        """Return where a file lies; its name in the log is that of a URI."""
        scheme, separator, rest = path.partition(":")
        if separator and scheme.isalnum() and "/" not in scheme:
            place = unquote(rest).lstrip("/")
            scheme = _SCHEMES.get(scheme, scheme)
            return f"file:///{place}" if scheme == "file" else f"{scheme}://{place}"
        return f"{self._place}/{unquote(path)}"

    def _deleted(self) -> dict[str, Bools]:
        """Return which rows are deleted, of the files that have such."""
        if _VECTORS not in (self._table.protocol().reader_features or ()):
            return {}
        vectors = pa.RecordBatchReader.from_stream(self._table.deletion_vectors())
        found = {}
        for batch in vectors:
            for uri, kept in zip(*batch.columns, strict=True):
                rows = kept.values.to_numpy(zero_copy_only=False)
                found[self.uri(uri.as_py())] = ~rows.astype(np.bool_)
        return found

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


def _version_at(table: DeltaTable, time: datetime) -> int | datetime:
    """Return which version was the newest at a time. Raises ValueError for no time.

    delta-rs goes by the times of the log's files; what a table keeps of times itself
    goes before that.
    """
    if time > datetime.now(UTC):
        raise ValueError("it is yet to come")
    time_ms = time.timestamp() * 1000
    commits, given = table.history(), table.metadata().configuration
    first_ms = min(commit["timestamp"] for commit in commits)
    if first_ms > time_ms:
        first = datetime.fromtimestamp(first_ms / 1000, UTC)
        raise _TooEarlyError(f"it is before the first version that is kept, of {first}")
    if given.get(_KEEPS_TIMES) != "true" or time_ms < int(given.get(_TIMES_SINCE, 0)):
        return time
    return max(
        int(commit["version"])
        for commit in commits
        if commit.get("inCommitTimestamp", time_ms + 1) <= time_ms
    )


def _texts(actions: pa.Table) -> list[dict[str, str | None]]:
    """Return the partitions' values of each file as texts that Arrow reads again."""
    if "partition" not in actions.column_names:
        return [{} for _ in range(actions.num_rows)]
    values = actions.column("partition").combine_chunks()
    kind = values.type
    texts = {
        kind.field(at).name: _text(values.field(at)) for at in range(kind.num_fields)
    }
    return [
        {name: column[row] for name, column in texts.items()}
        for row in range(actions.num_rows)
    ]


def _text(values: pa.Array) -> list[str | None]:
    if not pa.types.is_binary(values.type):
        texts: list[str | None] = values.cast(pa.string()).to_pylist()
        return texts
    return [None if value is None else value.hex() for value in values.to_pylist()]


def _bounds(action: Mapping[str, Any], schema: pa.Schema) -> dict[str, Bounds]:
    """Return what a log says of columns, under the table's names."""
    lows, highs = action.get("min") or {}, action.get("max") or {}
    nulls = action.get("null_count") or {}
    found = {}
    for field in schema:
        name = physical_name(field)
        if name in nulls and not pa.types.is_nested(field.type):
            high = highs.get(name)
            if high is not None and pa.types.is_timestamp(field.type):
                high = _later(high)
            found[field.name] = Bounds(lows.get(name), high, nulls[name])
    return found


def _later(high: datetime) -> datetime | None:
    """Return the time before which all lie; None if there is none to write it."""
    try:
        return high + _CUT_OFF
    except OverflowError:
        return None


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
