"""What a stream of a table reads: the files it has, then those that commits add.

As Delta's own source has it: without an option a stream begins with a snapshot; rows
that are deleted or changed end it, since what was read cannot be taken back; what only
rewrites rows, as OPTIMIZE does, brings nothing new.

Source: docs.delta.io/delta-streaming.html. Different here: files of a version come in
the order of their names, and a column that was widened does not end the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError, SourceError
from sparkcache_delta import options as asked
from sparkcache_delta.commits import read_commit
from sparkcache_delta.discovery import ledger_maps
from sparkcache_delta.log import Log
from sparkcache_delta.lookups import Lookups, Step
from sparkcache_delta.marks import TableMark
from sparkcache_delta.names import place
from sparkcache_delta.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkcache.connector import LedgerMap, Mark, Storage
    from sparkcache_delta.commits import Commit
    from sparkcache_delta.table import DataFile


class TableChanges:
    """The log of a table as a stream goes through it."""

    def __init__(
        self, storage: Storage, topic: str, options: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._topic = topic
        self._options = options
        self._place = place(storage.root, topic)
        self._versions = Versions(storage, self._place, options)
        self._reached: TableMark | None = None

    def __repr__(self) -> str:
        return f"TableChanges({self._versions!r})"

    def beginning(self) -> Mark:
        """Return where a stream begins; raises ConfigError."""
        newest = self._versions.newest()
        version = self._starting_version(newest)
        if version is None:
            return TableMark(newest.table_id, newest.version, 0, True).written()
        return TableMark(newest.table_id, version).written()

    def latest(self) -> Mark:
        """Return the mark behind the newest version."""
        newest = self._versions.newest()
        return TableMark(newest.table_id, newest.version).behind().written()

    def changes(self, after: Mark, until: Mark | None = None) -> Lookups:
        """Return the files that were added between two marks, or after one.

        Which they are is known then, and not looked at what is in them.
        """
        begin = TableMark.parse(after)
        newest = self._versions.newest()
        self._require_same_table(begin, newest)
        last = newest.version
        if until is not None:
            end = TableMark.parse(until)
            last = min(last, end.version if end.files else end.version - 1)
        found = self._snapshot(begin) if begin.is_snapshot else []
        first = begin.behind() if begin.is_snapshot else begin
        found += self._added(first, last)
        self._require_columns_at(begin, newest.version)
        if until is not None:
            found = self._cut(found, begin, TableMark.parse(until))
        self._reached = found[-1].after if found else begin
        return Lookups(begin, found, self._look)

    def _starting_version(self, newest: Log) -> int | None:
        asked_version = asked.starting_version(self._options)
        time = asked.timestamp(self._options, asked.STARTING_TIMESTAMP)
        last = newest.version
        if time is not None:
            return Log.first_version_since(self._storage, self._place, time)
        if asked_version == asked.LATEST:
            return last + 1
        if isinstance(asked_version, int) and asked_version > last:
            raise ConfigError(
                f"option {asked.STARTING_VERSION}={asked_version}: the newest version "
                f"of {self._place} is {last}; give that or an earlier one, or "
                f"{asked.LATEST} for what is committed from now on"
            )
        return None if asked_version is None else int(asked_version)

    def _snapshot(self, begin: TableMark) -> list[Step]:
        """Return what is left of the files that a version had."""
        files = sorted(
            self._versions.files(begin.version),
            key=lambda file: (file.modified_ms, file.uri),
        )
        return list(_steps(begin, files))

    def _added(self, begin: TableMark, last: int) -> list[Step]:
        """Return what was added from a mark to a version, included."""
        commits = [
            read_commit(self._storage, self._place, version)
            for version in range(begin.version, last + 1)
        ]
        for commit in commits:
            if commit.schema is not None:
                self._versions.require_columns(commit.version, commit.schema)
        found: list[Step] = []
        mark = begin
        for commit, files in self._files(commits):
            found += _steps(mark, files)
            mark = TableMark(begin.table, commit.version + 1)
        return found

    def _look(self, steps: Sequence[Step]) -> dict[str, LedgerMap]:
        """Return the ledgers of steps, by where they lie; raises SourceError."""
        files = {step.file.uri: step for step in steps if step.file is not None}
        found = [step.file for step in files.values() if step.file is not None]
        try:
            return ledger_maps(self._storage, self._topic, found, self._options)
        except SourceError as error:
            of = f"version {files[error.uri].version}" if error.uri in files else "some"
            raise SourceError(
                error.uri,
                offset=error.offset,
                expected=f"{error.expected}; it is of {of}, which a stream has still "
                "to read",
                found=f"{error.found}; if it was vacuumed, begin anew, with another "
                "checkpoint",
            ) from error

    def _files(
        self, commits: Sequence[Commit]
    ) -> Iterator[tuple[Commit, list[DataFile]]]:
        """Yield the new files of commits, as they were then.

        The last version tells that of most: of all that nobody has touched since.
        """
        names = [self._new(commit) for commit in commits]
        removed = frozenset[str]().union(*(commit.removed for commit in commits))
        kept = [name for of in names for name in of if name not in removed]
        untouched = self._described(kept, commits)
        for commit, of in zip(commits, names, strict=True):
            gone = [name for name in of if name in removed]
            touched = self._described(gone, [commit])
            yield commit, [untouched.get(name) or touched[name] for name in of]

    def _described(
        self, names: Sequence[str], commits: Sequence[Commit]
    ) -> dict[str, DataFile]:
        """Return what the log says, after commits, of files that they have added."""
        if not names:
            return {}
        parted = frozenset[str]().union(*(commit.with_deleted for commit in commits))
        return self._versions.described(commits[-1].version, names, parted)

    def _new(self, commit: Commit) -> Sequence[str]:
        """Return the names of files that a stream has to read; raises SourceError."""
        if not commit.takes_rows:
            return commit.added
        if asked.skips(self._options, asked.SKIP_CHANGES):
            return ()
        if not commit.added and asked.skips(self._options, asked.IGNORE_DELETES):
            return ()
        way = f"{asked.SKIP_CHANGES}=true reads on without what it has written"
        if not commit.added:
            way += f", {asked.IGNORE_DELETES}=true without what only deletes files"
        raise SourceError(
            self._place,
            expected="commits that add rows, since a stream cannot take any back",
            found=f"version {commit.version}, which "
            f"{'changes' if commit.added else 'deletes'} some; {way}",
        )

    def _require_same_table(self, begin: TableMark, newest: Log) -> None:
        if begin.table != newest.table_id or begin.version > newest.version + 1:
            raise SourceError(
                self._place,
                expected=f"table {begin.table} with version {begin.version - 1}, which "
                "a stream has read",
                found=f"table {newest.table_id} with versions to {newest.version}; "
                "begin anew, with another checkpoint",
            )

    def _require_columns_at(self, begin: TableMark, newest: int) -> None:
        """Look at the columns with which a stream goes on, if it did not itself."""
        if begin != self._reached:
            self._versions.require_columns(min(begin.version, newest))

    def _cut(
        self, found: Sequence[Step], begin: TableMark, until: TableMark
    ) -> list[Step]:
        """Return the steps up to a mark; raises SourceError if it is none of them."""
        if begin == until:
            return []
        for count, step in enumerate(found, start=1):
            if step.after == until:
                return list(found[:count])
        raise SourceError(
            self._place,
            expected=f"what lies between {begin.written()} and {until.written()}",
            found="other files; were the options others when that was written?",
        )


def _steps(begin: TableMark, files: Sequence[DataFile]) -> Iterator[Step]:
    """Yield the files of a version from a mark on; one without, if it has none."""
    left = files[begin.files :]
    for number, file in enumerate(left, begin.files + 1):
        is_last = number == len(files)
        mark = begin.behind() if is_last else begin.past(number)
        yield Step(mark, begin.version, file)
    if not left:
        yield Step(begin.behind(), begin.version)
