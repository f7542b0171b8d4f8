"""Counters that a process writes and its parent reads, even once the process died."""

from __future__ import annotations

import mmap
import struct


class SharedCounters:
    """A few numbers in memory that is shared with processes forked from this one.

    Args:
        count: How many numbers. All are 0 at first.

    """

    def __init__(self, count: int) -> None:
        self._format = struct.Struct(f"={count}q")
        self._memory = mmap.mmap(-1, self._format.size)

    def __repr__(self) -> str:
        return f"SharedCounters{self.read()}"

    def write(self, *values: int) -> None:
        """Replace all numbers."""
        self._format.pack_into(self._memory, 0, *values)

    def read(self) -> tuple[int, ...]:
        """Return all numbers."""
        return self._format.unpack_from(self._memory)

    def close(self) -> None:
        """Release the memory in this process."""
        self._memory.close()
