"""What one task reads: stretches of runs, in the order in which it wants them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkcache.config import CacheConfig
from sparkcache.model import Extent, Ledger, Position, Run, RunKey

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class RunSlice:
    """Consecutive runs of one extent.

    Attributes:
        ledger: Whose runs they are.
        extent: Which extent of it.
        runs: All runs of the extent: those before `start` tell the way to it.
        start: Index of the first run wanted.
        stop: Index after the last run wanted.
        at: Stored bytes of the topic before the extent.

    """

    ledger: Ledger
    extent: Extent
    runs: tuple[Run, ...]
    start: int
    stop: int
    at: int = 0

    def is_valid(self) -> bool:
        """Tell whether it has any runs, and all that it wants."""
        return 0 <= self.start < self.stop <= len(self.runs)

    def key(self, index: int) -> RunKey:
        """Return the key of a run, by its index in `runs`."""
        return RunKey(self.ledger, self.runs[index])

    def behind(self, end: Position) -> RunSlice | None:
        """Return what of the extent a scan leaves that ends within it; None if nothing.

        What lies before that end and is not wanted here, others of the scan read.
        """
        stop = self.stop
        if self.ledger.id != end.ledger or stop == len(self.runs):
            return None
        if self.runs[stop].first < end.entry:
            return None
        return replace(self, start=stop, stop=len(self.runs))

    def stored_bytes(self, index: int) -> int:
        """Return a run's share of the extent; of all its runs, that is the extent."""
        size_bytes, runs = self.extent.size_bytes, len(self.runs)
        return size_bytes * (index + 1) // runs - size_bytes * index // runs


@dataclass(frozen=True, slots=True)
class Scan:
    """All that one task reads, and where.

    Attributes:
        root: URI of the storage's root.
        config: How to reach it, and how to decode.
        stretches: In the order in which they are wanted.

    """

    root: str
    config: CacheConfig
    slices: tuple[RunSlice, ...]

    def keys(self) -> Iterator[RunKey]:
        """Yield the keys of all runs, in order."""
        for run_slice in self.slices:
            for index in range(run_slice.start, run_slice.stop):
                yield run_slice.key(index)
