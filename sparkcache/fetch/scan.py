"""What one task reads: slices of runs, in reading order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sparkcache.config import ScanConfig, StorageConfig
from sparkcache.demand import ExtentOffset
from sparkcache.fetch.load import is_small
from sparkcache.model import Extent, Ledger, Position, Run, RunKey

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class RunSlice:
    """Consecutive runs of one extent that one task reads.

    Attributes:
        ledger: The ledger of the runs.
        extent: The extent of the runs.
        runs: All runs of the extent: those before `start` are needed to find its
            offset.
        start: Index of the first run to read.
        stop: Index after the last run to read.
        topic_offset: Stored bytes of the topic before the extent.
        reads: How many planned reads of the extent are done on other executors too, as
            far as this one may not know of them.

    """

    ledger: Ledger
    extent: Extent
    runs: tuple[Run, ...]
    start: int
    stop: int
    topic_offset: int = 0
    reads: int = 0

    def is_valid(self) -> bool:
        """Return whether the slice is within runs that follow each other, not empty."""
        return 0 <= self.start < self.stop <= len(self.runs) and all(
            run.last < following.first for run, following in pairwise(self.runs)
        )

    @property
    def is_small(self) -> bool:
        """Whether its only run is small enough to be loaded together with others."""
        return is_small(self.extent, len(self.runs))

    def key(self, index: int) -> RunKey:
        """Return the key of a run, by its index in `runs`."""
        return RunKey(self.ledger, self.runs[index])

    def rest_after(self, end: Position) -> RunSlice | None:
        """Return the rest of the extent after a scan that ends within it, or None.

        None, too, if another slice of the scan reads the runs that precede the end.
        """
        stop = self.stop
        if self.ledger.id != end.ledger or stop == len(self.runs):
            return None
        if self.runs[stop].first < end.entry:
            return None
        return replace(self, start=stop, stop=len(self.runs))

    def stored_bytes(self, index: int) -> int:
        """Return a run's share of the extent's bytes; all shares add up to these."""
        size_bytes, runs = self.extent.size_bytes, len(self.runs)
        return size_bytes * (index + 1) // runs - size_bytes * index // runs


@dataclass(frozen=True, slots=True)
class Scan:
    """Everything that one task reads from one storage.

    Attributes:
        root: URI of the storage's root.
        storage: How to access the storage.
        config: The settings of the scan.
        slices: The slices to read, in reading order.

    """

    root: str
    storage: StorageConfig
    config: ScanConfig
    slices: tuple[RunSlice, ...]

    def extents(self) -> list[ExtentOffset]:
        """Return the extents of the slices, each with its offset in the topic."""
        return [
            ExtentOffset(
                run_slice.ledger.id,
                run_slice.extent.first,
                run_slice.extent.last,
                run_slice.topic_offset,
                run_slice.extent.size_bytes,
            )
            for run_slice in self.slices
        ]

    def bounds(self) -> tuple[Position, Position]:
        """Return the position of the first entry, and that after the last one."""
        begin, end = self.slices[0], self.slices[-1]
        return (
            Position(begin.ledger.id, begin.runs[begin.start].first),
            Position(end.ledger.id, end.runs[end.stop - 1].last + 1),
        )

    def keys(self) -> Iterator[RunKey]:
        """Yield the keys of all runs, in order."""
        for run_slice in self.slices:
            for index in range(run_slice.start, run_slice.stop):
                yield run_slice.key(index)
