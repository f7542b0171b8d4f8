"""What reading a trace cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was read, and what of it came from the storage.

    Attributes:
        reads: Runs that tasks came to.
        loads: How many of them were read from the storage.
        read_bytes: Stored bytes of all of them.
        loaded_bytes: Stored bytes read from the storage.
        gets: Requests for that: runs of a ledger that one task reads from the storage
            one after another come with one.

    """

    reads: int
    loads: int
    read_bytes: int
    loaded_bytes: int
    gets: int

    @property
    def hit_rate(self) -> float:
        """The share of reads that needed no storage."""
        return 1.0 - self.loads / self.reads if self.reads else 0.0
