"""Which version of a table a time means.

delta-rs goes by the times of the log's files; what a table keeps of times itself goes
before that.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import DeltaTable

_KEEPS_TIMES = "delta.enableInCommitTimestamps"
_TIMES_SINCE = "delta.inCommitTimestampEnablementTimestamp"
_CUT_OFF = timedelta(milliseconds=1)  # writers do not tell what is less than that


class _TooEarlyError(ValueError):
    """A time lies before all that a log tells of."""


def version_at(table: DeltaTable, time: datetime) -> int | datetime:
    """Return which version was the newest at a time, or that time for delta-rs to say.

    Raises ValueError for a time that none was the newest at.
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


def first_since(table: DeltaTable, time: datetime) -> int:
    """Return the first version of a time or later: it may not be there yet.

    Raises ValueError for a time to come. The table may be at an older version then.
    """
    kept = [int(commit["version"]) for commit in table.history()]
    try:
        before = version_at(table, time - _CUT_OFF)
    except _TooEarlyError:
        return min(kept)
    if isinstance(before, int):
        return before + 1
    table.load_as_version(before)
    return table.version() + 1
