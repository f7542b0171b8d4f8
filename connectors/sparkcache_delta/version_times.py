"""Which version of a table was current at a time.

delta-rs uses the modification times of the log's files; times that a table itself
records for its commits take precedence.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import DeltaTable

_KEEPS_TIMES = "delta.enableInCommitTimestamps"
_TIMES_SINCE = "delta.inCommitTimestampEnablementTimestamp"
_PRECISION = timedelta(milliseconds=1)  # writers record nothing finer


class _TooEarlyError(ValueError):
    """A time before the first commit in a log."""


def version_at(table: DeltaTable, time: datetime) -> int | datetime:
    """Return the version that was the newest at a time, or the time for delta-rs.

    Raises ValueError for a time in the future or before the first version.
    """
    if time > datetime.now(UTC):
        raise ValueError("it is in the future")
    time_ms = time.timestamp() * 1000
    commits, properties = table.history(), table.metadata().configuration
    first_ms = min(commit["timestamp"] for commit in commits)
    if first_ms > time_ms:
        first = datetime.fromtimestamp(first_ms / 1000, UTC)
        raise _TooEarlyError(
            f"it is before the first version that is kept, which is of {first}"
        )
    if properties.get(_KEEPS_TIMES) != "true" or time_ms < int(
        properties.get(_TIMES_SINCE, 0)
    ):
        return time
    return max(
        int(commit["version"])
        for commit in commits
        if commit.get("inCommitTimestamp", time_ms + 1) <= time_ms
    )


def first_since(table: DeltaTable, time: datetime) -> int:
    """Return the first version at a time or later, which may not exist yet.

    Raises ValueError for a time in the future. May leave the table at an older version.
    """
    kept = [int(commit["version"]) for commit in table.history()]
    try:
        before = version_at(table, time - _PRECISION)
    except _TooEarlyError:
        return min(kept)
    if isinstance(before, int):
        return before + 1
    table.load_as_version(before)
    return table.version() + 1
