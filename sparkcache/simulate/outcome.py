"""The cost of reading a trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tasks read, and how much of it came from storage.

    Attributes:
        reads: Runs that tasks took.
        loads: How many of these runs were read from storage.
        read_bytes: Stored bytes of all runs taken.
        loaded_bytes: Stored bytes read from storage.
        gets: Requests to storage: one request delivers the runs of an extent that one
            task loads one after another.

    """

    reads: int
    loads: int
    read_bytes: int
    loaded_bytes: int
    gets: int

    @property
    def hit_rate(self) -> float:
        """The share of reads that the cache served."""
        return 1.0 - self.loads / self.reads if self.reads else 0.0
