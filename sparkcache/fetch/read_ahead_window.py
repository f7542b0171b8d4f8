"""How far ahead of a scan is loaded.

A scan that reads one run after another is loaded ahead of by as much as it has read so
far: one run to begin with, then twice as much each time, up to what the settings allow.
So what is loaded in vain is never more than what was of use. A planned scan is going to
read all of its runs and begins with what the settings allow. A scan that jumps is not
loaded ahead of, until it reads two runs that follow one another. When runs that were
loaded for it go unread, the depth is halved.

Some take a first run and leave: `LIMIT`, a look at a few rows. Where scans did so of
late, the next one is loaded ahead of from its second run on.

Source: the idea of a factor that grows with hits and falls with what expires unread is
that of RocketMQ's first tiered store (2 to 24 times what a request asks for). Different
here: counted in bytes, and by what is read, so that it needs no bounds of its own.
"""

from __future__ import annotations

ONE_RUN = 1  # less than any run has

_CAUTIOUS = 2
_MOST_LEFT = 4


class EarlyExitTracker:
    """How the scans of late went on behind their first run."""

    def __init__(self) -> None:
        self._left = 0

    def __repr__(self) -> str:
        return f"EarlyExitTracker({self._left} left)"

    @property
    def are_cautious(self) -> bool:
        """Tell whether the next scan is likely to leave."""
        return self._left >= _CAUTIOUS

    def left(self) -> None:
        """Note that a scan left before its second run."""
        self._left = min(self._left + 1, _MOST_LEFT)

    def went_on(self) -> None:
        """Note that a scan read its second run."""
        self._left = max(self._left - 1, 0)

    def check(self) -> None:
        """Assert the invariant. For tests."""
        assert 0 <= self._left <= _MOST_LEFT


class ReadAheadWindow:
    """The depth of one scan, in decoded bytes."""

    def __init__(
        self, begin_bytes: int, early_exits: EarlyExitTracker | None = None
    ) -> None:
        self._early_exits = early_exits
        self._is_cautious = early_exits is not None and early_exits.are_cautious
        self._bytes = 0 if self._is_cautious else begin_bytes
        self._run_bytes = 0
        self._reads = 0

    def __repr__(self) -> str:
        return f"ReadAheadWindow({self._bytes} bytes)"

    @property
    def bytes(self) -> int:
        """A run is loaded if less than this lies between it and its reader."""
        return self._bytes

    @property
    def run_bytes(self) -> int:
        """About how large a run is; 0 if none was read yet."""
        return self._run_bytes

    def read(self, size_bytes: int) -> None:
        """Note that the run was read that follows the last one."""
        self._reads += 1
        self._run_bytes = size_bytes
        if self._reads > 1 or not self._is_cautious:
            self._bytes += size_bytes
        if self._reads == 2 and self._early_exits is not None:
            self._early_exits.went_on()

    def jump(self) -> None:
        """Note that runs were left out."""
        self._bytes = 0

    def leave(self) -> None:
        """Note that a reader left with runs still to come."""
        if self._reads < 2 and self._early_exits is not None:
            self._early_exits.left()

    def waste(self) -> None:
        """Note that a run was loaded and is gone unread."""
        self._bytes //= 2
