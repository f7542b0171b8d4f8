"""Changes that a stream of a table reads: its files, then those that commits add.

As with Delta's own source, a stream without options begins with a snapshot. A commit
that deletes or changes rows ends the stream, since rows cannot be taken back once read.
A commit that only rewrites rows, such as OPTIMIZE, adds nothing to the stream.

Source: docs.delta.io/delta-streaming.html. Two differences: the files of a version are
read in the order of their names, and a widened column does not end the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.connector import ChangeLog
from sparkcache.errors import ConfigError, SourceError
from sparkcache_delta import options as scan_options
from sparkcache_delta.commits import read_commit
from sparkcache_delta.discovery import identities, ledger_maps
from sparkcache_delta.log import Log
from sparkcache_delta.lookups import Lookups, Step
from sparkcache_delta.marks import TableMark
from sparkcache_delta.names import table_uri
from sparkcache_delta.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkcache.connector import LedgerMap, Mark, Storage
    from sparkcache.model import ObjectId
    from sparkcache_delta.commits import Commit
    from sparkcache_delta.table import DataFile


class TableChanges(ChangeLog):
    """The log of a table, as a stream reads it."""

    def __init__(
        self, storage: Storage, topic: str, options: Mapping[str, str]
    ) -> None:
        self._storage = storage
        self._topic = topic
        self._options = options
        self._table_uri = table_uri(storage.root, topic)
        self._versions = Versions(storage, self._table_uri, options)
        self._reached: TableMark | None = None

    def __repr__(self) -> str:
        return f"TableChanges({self._versions!r})"

    def beginning(self) -> Mark:
        """Return the mark at which a stream begins; raises ConfigError."""
        newest = self._versions.newest()
        version = self._starting_version(newest)
        if version is None:
            return TableMark(newest.table_id, newest.version, 0, True).to_json()
        return TableMark(newest.table_id, version).to_json()

    def latest(self) -> Mark:
        """Return the mark after the newest version."""
        newest = self._versions.newest()
        return TableMark(newest.table_id, newest.version).after_version().to_json()

    def changes(self, after: Mark, until: Mark | None = None) -> Lookups:
        """Return the files that were added between two marks, or after one.

        The log determines the files at once; their content is looked up later.
        """
        begin = TableMark.parse(after)
        newest = self._versions.newest()
        self._require_same_table(begin, newest)
        last = newest.version
        if until is not None:
            end = TableMark.parse(until)
            last = min(last, end.version if end.files else end.version - 1)
        steps = self._snapshot(begin) if begin.is_snapshot else []
        first = begin.after_version() if begin.is_snapshot else begin
        steps += self._added(first, last)
        self._require_columns_at(begin, newest.version)
        if until is not None:
            steps = self._cut(steps, begin, TableMark.parse(until))
        self._reached = steps[-1].after if steps else begin
        return Lookups(begin, steps, self._identify, self._look_up)

    def _starting_version(self, newest: Log) -> int | None:
        version = scan_options.starting_version(self._options)
        time = scan_options.timestamp(self._options, scan_options.STARTING_TIMESTAMP)
        last = newest.version
        if time is not None:
            return Log.first_version_since(self._storage, self._table_uri, time)
        if version == scan_options.LATEST:
            return last + 1
        if isinstance(version, int) and version > last:
            raise ConfigError(
                f"option {scan_options.STARTING_VERSION}={version}: the newest version "
                f"of {self._table_uri} is {last}; use this version or an earlier one, "
                f"or {scan_options.LATEST} to read only later commits"
            )
        return None if version is None else int(version)

    def _snapshot(self, begin: TableMark) -> list[Step]:
        """Return the files of a version that are still to be read."""
        files = sorted(
            self._versions.files(begin.version),
            key=lambda file: (file.modified_ms, file.uri),
        )
        return list(_steps(begin, files))

    def _added(self, begin: TableMark, last: int) -> list[Step]:
        """Return the files added from a mark up to a version, included."""
        commits = [
            read_commit(self._storage, self._table_uri, version)
            for version in range(begin.version, last + 1)
        ]
        for commit in commits:
            if commit.schema is not None:
                self._versions.require_columns(commit.version, commit.schema)
        steps: list[Step] = []
        mark = begin
        for commit, files in self._files(commits):
            steps += _steps(mark, files)
            mark = TableMark(begin.table, commit.version + 1)
        return steps

    def _identify(self, files: Sequence[DataFile]) -> dict[str, ObjectId]:
        """Return the identities of files that need no footer; raises SourceError."""
        return identities(self._storage, files, self._options)

    def _look_up(
        self, steps: Sequence[Step], small: Mapping[str, ObjectId]
    ) -> dict[str, LedgerMap]:
        """Return the ledgers of steps, by their URIs; raises SourceError."""
        by_uri = {step.file.uri: step for step in steps if step.file is not None}
        files = [step.file for step in by_uri.values() if step.file is not None]
        try:
            return ledger_maps(self._storage, self._topic, files, self._options, small)
        except SourceError as error:
            version = (
                f"version {by_uri[error.uri].version}"
                if error.uri in by_uri
                else "some version"
            )
            raise SourceError(
                error.uri,
                offset=error.offset,
                expected=f"{error.expected} in this file of {version}, which the "
                "stream still has to read",
                found=f"{error.found}; if the file was vacuumed, start the query again "
                "with a new checkpoint",
            ) from error

    def _files(
        self, commits: Sequence[Commit]
    ) -> Iterator[tuple[Commit, list[DataFile]]]:
        """Yield commits with their new files, as they were at the commit.

        Files that no later commit removed are read from the last version; only the
        others need the version of their commit.
        """
        names_of_commits = [self._new_names(commit) for commit in commits]
        removed = frozenset[str]().union(*(commit.removed for commit in commits))
        kept = [
            name for names in names_of_commits for name in names if name not in removed
        ]
        untouched = self._described(kept, commits)
        for commit, names in zip(commits, names_of_commits, strict=True):
            gone = [name for name in names if name in removed]
            touched = self._described(gone, [commit])
            yield commit, [untouched.get(name) or touched[name] for name in names]

    def _described(
        self, names: Sequence[str], commits: Sequence[Commit]
    ) -> dict[str, DataFile]:
        """Return files that commits have added, as of the last of the commits."""
        if not names:
            return {}
        with_deleted = frozenset[str]().union(
            *(commit.with_deleted for commit in commits)
        )
        return self._versions.described(commits[-1].version, names, with_deleted)

    def _new_names(self, commit: Commit) -> Sequence[str]:
        """Return the names of files that a stream has to read; raises SourceError."""
        if not commit.takes_rows:
            return commit.added
        if scan_options.skips(self._options, scan_options.SKIP_CHANGES):
            return ()
        if not commit.added and scan_options.skips(
            self._options, scan_options.IGNORE_DELETES
        ):
            return ()
        remedy = f"{scan_options.SKIP_CHANGES}=true skips such commits"
        if not commit.added:
            remedy += (
                f", {scan_options.IGNORE_DELETES}=true skips those that only delete "
                "whole files"
            )
        raise SourceError(
            self._table_uri,
            expected="commits that only add rows, since a stream cannot take rows back",
            found=f"version {commit.version}, which "
            f"{'changes' if commit.added else 'deletes'} rows; {remedy}",
        )

    def _require_same_table(self, begin: TableMark, newest: Log) -> None:
        if begin.table != newest.table_id or begin.version > newest.version + 1:
            raise SourceError(
                self._table_uri,
                expected=f"table {begin.table} with version {begin.version - 1}, which "
                "the stream has read",
                found=f"table {newest.table_id} with versions up to {newest.version}; "
                "start the query again with a new checkpoint",
            )

    def _require_columns_at(self, begin: TableMark, newest: int) -> None:
        """Check the columns at a mark, unless this stream has itself read up to it."""
        if begin != self._reached:
            self._versions.require_columns(min(begin.version, newest))

    def _cut(
        self, steps: Sequence[Step], begin: TableMark, until: TableMark
    ) -> list[Step]:
        """Return the steps up to a mark; raises SourceError if no step ends there."""
        if begin == until:
            return []
        for count, step in enumerate(steps, start=1):
            if step.after == until:
                return list(steps[:count])
        raise SourceError(
            self._table_uri,
            expected=f"the files between {begin.to_json()} and {until.to_json()}",
            found="other files; did the query have other options when it wrote this "
            "offset?",
        )


def _steps(begin: TableMark, files: Sequence[DataFile]) -> Iterator[Step]:
    """Yield the files of a version after a mark; a step without a file if none."""
    remaining = files[begin.files :]
    for number, file in enumerate(remaining, begin.files + 1):
        is_last = number == len(files)
        mark = begin.after_version() if is_last else begin.after_files(number)
        yield Step(mark, begin.version, file)
    if not remaining:
        yield Step(begin.after_version(), begin.version)
