"""The versions of a table as a stream reads them.

A stream asks often for the newest version, and sometimes for the files of an earlier
one. Both must have the columns that the stream has; see `evolution`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache_delta import evolution, pinned
from sparkcache_delta import options as scan_options
from sparkcache_delta.commits import TRIMMED, identity
from sparkcache_delta.file_schema import FileSchema
from sparkcache_delta.log import Log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    import pyarrow as pa

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId
    from sparkcache_delta.table import DataFile


class Versions:
    """The versions of a table, and the columns that a stream reads from all of them.

    Raises ConfigError if the options are not valid for a stream.
    """

    def __init__(
        self, storage: Storage, table_uri: str, options: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._table_uri = table_uri
        self._pinned = pinned.stream_version(options, table_uri)
        self._columns = FileSchema.parse(pinned.decoding(options)).columns
        self._are_all = scan_options.columns(options) is None
        self._newest: Log | None = None
        self._last_commit: ObjectId | None = None  # made the newest version

    def __repr__(self) -> str:
        return f"Versions({self._table_uri}, columns of version {self._pinned})"

    def newest(self) -> Log:
        """Return the log at its newest version; the next call may update it.

        Only commits since the last call are read, unless another table may have
        replaced this one: then its log is opened.
        """
        log, self._newest = self._newest, None
        if log is None or not self._update(log):
            log = Log.open(self._storage, self._table_uri)
            self._last_commit = self._commit(log)
        self._newest = log
        return log

    def files(self, version: int) -> list[DataFile]:
        """Return the files of a version, with the stream's names for its columns."""
        log = self._log_at(version)
        return self._renamed(log, log.files())

    def described(
        self, version: int, names: Sequence[str], with_deleted: Set[str]
    ) -> dict[str, DataFile]:
        """Return files as a version describes them; some have deleted rows.

        Raises SourceError.
        """
        log = self._log_at(version)
        files = log.files(names, are_whole=with_deleted.isdisjoint(names))
        by_uri = {file.uri: file for file in self._renamed(log, files)}
        missing = [name for name in names if log.file_uri(name) not in by_uri]
        if missing:
            raise SourceError(
                self._table_uri,
                expected=f"{missing[0]} among the files of version {version}",
                found=f"{len(by_uri)} others",
            )
        return {name: by_uri[log.file_uri(name)] for name in names}

    def require_columns(self, version: int, schema: pa.Schema | None = None) -> None:
        """Raise SourceError if the stream cannot read the columns of a version.

        They are read from the log unless `schema` is passed.
        """
        if schema is None:
            schema = self._log_at(version).table().schema
        if version > self._pinned:
            names = evolution.changed(self._columns, schema, are_all=self._are_all)
            remedy = "load the table again, and start the query with its checkpoint"
        else:
            names = evolution.lost(self._columns, schema, are_all=self._are_all)
            remedy = f"set {scan_options.STARTING_VERSION} to a later version"
        if names:
            raise SourceError(
                self._table_uri,
                expected=f"the columns of version {self._pinned}",
                found=f"different columns in version {version}: {names}; {remedy}, or "
                f"select columns with the option {scan_options.COLUMNS}",
            )

    def _update(self, log: Log) -> bool:
        """Update a log; return whether it is still the log of the table at its URI."""
        before = log.version
        if not log.update():
            return False
        if log.version == before:
            return True
        known, self._last_commit = self._last_commit, self._commit(log)
        return known is not None and known == identity(
            self._storage, self._table_uri, before
        )

    def _commit(self, log: Log) -> ObjectId | None:
        return identity(self._storage, self._table_uri, log.version)

    def _renamed(self, log: Log, files: Sequence[DataFile]) -> list[DataFile]:
        return evolution.renamed(files, log.table().schema, self._columns)

    def _log_at(self, version: int) -> Log:
        if self._newest is not None and self._newest.version == version:
            return self._newest
        try:
            return Log.open(self._storage, self._table_uri, version)
        except SourceError as error:
            raise SourceError(
                self._table_uri,
                expected=f"version {version}, which the stream reads next",
                found=f"{error.found}; {TRIMMED}",
            ) from error
