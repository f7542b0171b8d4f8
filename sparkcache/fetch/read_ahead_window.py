"""How far ahead of a scan runs are loaded.

A scan that reads consecutive runs is read ahead by as many bytes as it has read so far:
one run at first, then twice as much each time, up to the limit of the settings. So the
bytes loaded in vain never exceed the bytes that were read. A planned scan will read all
of its runs and starts at the limit of the settings. A scan that jumps is not read ahead
until it reads two consecutive runs. When runs loaded for a scan go unread, its window
is halved.

Some scans read their first run and leave, such as a `LIMIT` or a look at a few rows. If
recent scans did so, the next one is read ahead only from its second run on.

Source: RocketMQ's first tiered store has a factor that grows with hits and falls with
entries that expire unread (2 to 24 times the size of a request). Different here: the
window is counted in bytes and grows by bytes read, so it needs no bounds of its own.
"""

from __future__ import annotations

ONE_RUN = 1  # in bytes: smaller than any run, so that one run is loaded

_LIKELY_EXITS = 2
_MAX_EXITS = 4


class EarlyExitTracker:
    """Tracks how many recent scans left before their second run."""

    def __init__(self) -> None:
        self._exits = 0

    def __repr__(self) -> str:
        return f"EarlyExitTracker({self._exits} early exits)"

    @property
    def is_exit_likely(self) -> bool:
        """Whether the next scan is likely to leave early."""
        return self._exits >= _LIKELY_EXITS

    def record_exit(self) -> None:
        """Record that a scan left before its second run."""
        self._exits = min(self._exits + 1, _MAX_EXITS)

    def record_second_run(self) -> None:
        """Record that a scan read its second run."""
        self._exits = max(self._exits - 1, 0)

    def check(self) -> None:
        """Assert the invariant. For tests."""
        assert 0 <= self._exits <= _MAX_EXITS


class ReadAheadWindow:
    """How far one scan is read ahead, in decoded bytes."""

    def __init__(
        self, begin_bytes: int, early_exits: EarlyExitTracker | None = None
    ) -> None:
        self._early_exits = early_exits
        self._is_cautious = early_exits is not None and early_exits.is_exit_likely
        self._bytes = 0 if self._is_cautious else begin_bytes
        self._run_bytes = 0
        self._reads = 0

    def __repr__(self) -> str:
        return f"ReadAheadWindow({self._bytes} bytes)"

    @property
    def bytes(self) -> int:
        """Window size: runs that start fewer bytes ahead of the reader are loaded."""
        return self._bytes

    @property
    def run_bytes(self) -> int:
        """Approximate size of a run; 0 if none was read yet."""
        return self._run_bytes

    def read(self, size_bytes: int) -> None:
        """Record that the reader read the next consecutive run."""
        self._reads += 1
        self._run_bytes = size_bytes
        if self._reads > 1 or not self._is_cautious:
            self._bytes += size_bytes
        if self._reads == 2 and self._early_exits is not None:
            self._early_exits.record_second_run()

    def jump(self) -> None:
        """Record that the reader skipped runs."""
        self._bytes = 0

    def leave(self) -> None:
        """Record that a reader left before the end of its partition."""
        if self._reads < 2 and self._early_exits is not None:
            self._early_exits.record_exit()

    def waste(self) -> None:
        """Record that a run loaded ahead was evicted unread."""
        self._bytes //= 2
