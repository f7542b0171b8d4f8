"""The versions of a table as a stream looks at them.

It asks again and again which is the newest one, and now and then what an earlier one
had. Both have to have the columns that it goes on with; see `evolution`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache_delta import evolution, pinned
from sparkcache_delta import options as asked
from sparkcache_delta.commits import TRIMMED, identity
from sparkcache_delta.file_schema import Form
from sparkcache_delta.log import Log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    import pyarrow as pa

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId
    from sparkcache_delta.table import DataFile


class Versions:
    """The versions of a table, and the columns that a stream has of all of them.

    Raises ConfigError if the options are not those of a stream.
    """

    def __init__(
        self, storage: Storage, place: str, options: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._place = place
        self._pinned = pinned.followed(options, place)
        self._columns = Form.parse(pinned.decoding(options)).schema
        self._are_all = asked.columns(options) is None
        self._newest: Log | None = None
        self._last: ObjectId | None = None  # the commit that has made it

    def __repr__(self) -> str:
        return f"Versions({self._place}, columns of version {self._pinned})"

    def newest(self) -> Log:
        """Return the log at its newest version, which the next call may change.

        Of that which was returned last, only what was committed since is read, unless
        it may be the log of another table: one that was made anew in its place.
        """
        log, self._newest = self._newest, None
        if log is None or not self._goes_on(log):
            log = Log.at(self._storage, self._place)
            self._last = self._commit(log)
        self._newest = log
        return log

    def files(self, version: int) -> list[DataFile]:
        """Return the files of a version, with its columns as the stream calls them."""
        log = self._at(version)
        return self._renamed(log, log.files())

    def described(
        self, version: int, names: Sequence[str], with_deleted: Set[str]
    ) -> dict[str, DataFile]:
        """Return what a version says of files, some with deleted rows.

        Raises SourceError.
        """
        log = self._at(version)
        files = log.files(names, are_whole=with_deleted.isdisjoint(names))
        found = {file.uri: file for file in self._renamed(log, files)}
        missing = [name for name in names if log.uri(name) not in found]
        if missing:
            raise SourceError(
                self._place,
                expected=f"{missing[0]} among the files of version {version}",
                found=f"{len(found)} others",
            )
        return {name: found[log.uri(name)] for name in names}

    def require_columns(self, version: int, schema: pa.Schema | None = None) -> None:
        """Raise SourceError if the columns of a version are none of the stream's.

        They are looked up if they are not given.
        """
        if schema is None:
            schema = self._at(version).table().schema
        if version > self._pinned:
            names = evolution.changed(self._columns, schema, are_all=self._are_all)
            way = "load the table again, and start the query with its checkpoint"
        else:
            names = evolution.lost(self._columns, schema, are_all=self._are_all)
            way = f"begin with {asked.STARTING_VERSION} behind that"
        if names:
            raise SourceError(
                self._place,
                expected=f"the columns that version {self._pinned} has",
                found=f"others in version {version}: {names}; {way}, or name the "
                f"columns that are wanted with the option {asked.COLUMNS}",
            )

    def _goes_on(self, log: Log) -> bool:
        """Update a log; tell whether it is still that of what lies in the place."""
        before = log.version
        if not log.update():
            return False
        if log.version == before:
            return True
        known, self._last = self._last, self._commit(log)
        return known is not None and known == identity(
            self._storage, self._place, before
        )

    def _commit(self, log: Log) -> ObjectId | None:
        return identity(self._storage, self._place, log.version)

    def _renamed(self, log: Log, files: Sequence[DataFile]) -> list[DataFile]:
        return evolution.renamed(files, log.table().schema, self._columns)

    def _at(self, version: int) -> Log:
        if self._newest is not None and self._newest.version == version:
            return self._newest
        try:
            return Log.at(self._storage, self._place, version)
        except SourceError as error:
            raise SourceError(
                self._place,
                expected=f"version {version}, with which a stream goes on",
                found=f"{error.found}; {TRIMMED}",
            ) from error
