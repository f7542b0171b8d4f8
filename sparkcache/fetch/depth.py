"""How far ahead of a scan is loaded.

A scan that reads one run after another is loaded ahead of by as much as it has read so
far: one run to begin with, then twice as much each time, up to what the settings allow.
So what is loaded in vain is never more than what was of use. A planned scan is going to
read all of its runs and begins with what the settings allow. A scan that jumps is not
loaded ahead of, until it reads two runs that follow one another. When runs that were
loaded for it go unread, the depth is halved.

Source: the idea of a factor that grows with hits and falls with what expires unread is
that of RocketMQ's first tiered store (2 to 24 times what a request asks for). Different
here: counted in bytes, and by what is read, so that it needs no bounds of its own.
"""

from __future__ import annotations

ONE_RUN = 1  # less than any run has


class Depth:
    """The depth of one scan, in decoded bytes."""

    def __init__(self, begin_bytes: int = ONE_RUN) -> None:
        self._bytes = begin_bytes
        self._run_bytes = 0

    def __repr__(self) -> str:
        return f"Depth({self._bytes} bytes)"

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
        self._bytes += size_bytes
        self._run_bytes = size_bytes

    def jump(self) -> None:
        """Note that runs were left out."""
        self._bytes = 0

    def waste(self) -> None:
        """Note that a run was loaded and is gone unread."""
        self._bytes //= 2
