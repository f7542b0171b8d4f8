"""Which version of a table was current at a time.

The time of a commit is the modification time of its file in the log, or the time that
the commit itself records if the table has in-commit timestamps. A log that was copied
or restored has files whose times do not rise: each commit is then taken to be at least
one millisecond later than the one before it.

Source: Delta's DeltaHistoryManager, and "In-Commit Timestamps" in its protocol.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d+)\.json")
_CHECKPOINT = re.compile(
    r"(\d+)\.checkpoint(?:\.\d+\.(\d+)\.parquet|\.parquet|\.[^.]+\.(?:json|parquet))"
)
_KEEPS_TIMES = "delta.enableInCommitTimestamps"
_SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
_SINCE_TIME = "delta.inCommitTimestampEnablementTimestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Commit(NamedTuple):
    """A commit.

    Attributes:
        version: The version that it made.
        time_ms: When it was made, in milliseconds since 1970.

    """

    version: int
    time_ms: int

    @property
    def time(self) -> str:
        """Its time as a text."""
        try:
            return (_EPOCH + timedelta(milliseconds=self.time_ms)).isoformat()
        except OverflowError:
            return f"{self.time_ms} ms since 1970"


class LogFiles(NamedTuple):
    """The files of a log that matter to the times of its commits.

    Attributes:
        modified_ms: When the file of each commit was written, by version.
        checkpoints: The versions of complete checkpoints.

    """

    modified_ms: Mapping[int, int]
    checkpoints: frozenset[int]

    @classmethod
    def list(cls, url: str, access: dict[str, str]) -> LogFiles:
        """List the log of the table at a URL. Raises OSError."""
        selector = FileSelector(_LOG, allow_not_found=True)
        listed = DeltaStorageHandler(url, access).get_file_info_selector(selector)
        return cls.parse(
            (file.base_name, file.mtime_ns // 1_000_000)
            for file in listed
            if file.is_file
        )

    @classmethod
    def parse(cls, files: Iterable[tuple[str, int]]) -> LogFiles:
        """Return the commits and checkpoints among files with modification times."""
        modified_ms: dict[int, int] = {}
        parts = Counter[tuple[int, int]]()
        for name, time_ms in files:
            if commit := _COMMIT.fullmatch(name):
                modified_ms[int(commit[1])] = time_ms
            elif checkpoint := _CHECKPOINT.fullmatch(name):
                parts[int(checkpoint[1]), int(checkpoint[2] or 1)] += 1
        complete = {version for (version, count), n in parts.items() if n >= count}
        return cls(modified_ms, frozenset(complete))

    def readable(self) -> LogFiles:
        """Return the log from the first version that it can still be read at."""
        first = min(self.modified_ms, default=0)
        if first:
            first = min((v for v in self.checkpoints if v >= first - 1), default=first)
        kept = {v: time for v, time in self.modified_ms.items() if v >= first}
        return LogFiles(kept, self.checkpoints)


class CommitTimes:
    """The times of commits, which rise from each to the next.

    Args:
        modified_ms: When the file of each commit was written, by version.
        properties: The properties of the table.
        recorded_ms: Returns the time that a commit itself records. Only a few are read.

    Raises ValueError if there is no commit.

    """

    def __init__(
        self,
        modified_ms: Mapping[int, int],
        properties: Mapping[str, str],
        recorded_ms: Callable[[int], int],
    ) -> None:
        if not modified_ms:
            raise ValueError("the log has no commits, so that no times are known")
        versions = sorted(modified_ms)
        since = versions[-1] + 1
        self._since_ms = 0
        if properties.get(_KEEPS_TIMES, "").lower() == "true":
            since = int(properties.get(_SINCE_VERSION) or 0)
            self._since_ms = int(properties.get(_SINCE_TIME) or 0)
        self._unrecorded = _rising(modified_ms, [v for v in versions if v < since])
        self._recording = [v for v in versions if v >= since]
        self._recorded_ms = recorded_ms
        self._last = versions[-1]

    def __repr__(self) -> str:
        return (
            f"CommitTimes({len(self._unrecorded)} by file, {len(self._recording)} "
            f"recorded, last {self._last})"
        )

    def current(self, time: datetime) -> Commit:
        """Return the last commit at a time or before it.

        Raises ValueError for a time before the first commit or after the last.
        """
        time_ms = _milliseconds(time)
        commit = self._last_until(time_ms)
        if commit.time_ms > time_ms:
            raise ValueError(
                f"{time.isoformat()} is before the first version that is kept, which "
                f"is of {commit.time}"
            )
        if commit.version == self._last and commit.time_ms < time_ms:
            raise ValueError(
                f"{time.isoformat()} is after the newest version, which is of "
                f"{commit.time}"
            )
        return commit

    def first_since(self, time: datetime) -> int:
        """Return the first version at a time or later, which may not exist yet."""
        time_ms = _milliseconds(time)
        commit = self._last_until(time_ms)
        return commit.version if commit.time_ms >= time_ms else commit.version + 1

    def _last_until(self, time_ms: int) -> Commit:
        """Return the last commit until a time; the first commit if there is none."""
        if self._recording and (time_ms >= self._since_ms or not self._unrecorded):
            at = bisect_right(self._recording, time_ms, key=self._recorded_ms)
            version = self._recording[max(0, at - 1)]
            return Commit(version, self._recorded_ms(version))
        at = bisect_right(self._unrecorded, time_ms, key=lambda commit: commit.time_ms)
        return self._unrecorded[max(0, at - 1)]


def require_past(time: datetime) -> None:
    """Raise ValueError for a time in the future."""
    if time > datetime.now(UTC):
        raise ValueError("it is in the future")


def _rising(modified_ms: Mapping[int, int], versions: Iterable[int]) -> list[Commit]:
    """Return commits with times that rise by at least one millisecond each."""
    commits: list[Commit] = []
    for version in versions:
        earliest_ms = commits[-1].time_ms + 1 if commits else modified_ms[version]
        commits.append(Commit(version, max(modified_ms[version], earliest_ms)))
    return commits


def _milliseconds(time: datetime) -> int:
    """Return a time in milliseconds since 1970; writers record nothing finer."""
    return (time - _EPOCH) // timedelta(milliseconds=1)
