"""How a topic is cut into Spark partitions.

A partition is made of whole extents, or of parts of them: part i of n. Which runs
that are is known where it is read, since the size of runs is a setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcache.fetch import Stretch
from sparkcache.model import Extent, Ledger, Position, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sparkcache.connector import LedgerMap
    from sparkcache.source.options import ScanOptions


@dataclass(frozen=True, slots=True)
class Piece:
    """Part `part` of `parts` of an extent before which `at` bytes of its topic lie."""

    ledger: Ledger
    extent: Extent
    at: int
    part: int = 0
    parts: int = 1

    @property
    def size_bytes(self) -> int:
        """Stored bytes, about."""
        return self.extent.size_bytes // self.parts


def partition(
    ledgers: Iterable[LedgerMap],
    options: ScanOptions,
    partition_bytes: int,
    count_runs: Callable[[Extent], int],
) -> list[list[Piece]]:
    """Cut what a scan wants of a topic into partitions of about that many bytes.

    Not into more than there are runs, as far as their size is known while planning.
    """
    wanted = [
        (ledger, extent, at)
        for ledger, extent, at in located(ledgers)
        if _first(ledger, extent, options) <= _last(ledger, extent, options)
    ]
    total_bytes = sum(extent.size_bytes for _, extent, _ in wanted)
    limit_bytes = min(partition_bytes, -(-total_bytes // options.min_partitions))
    partitions: list[list[Piece]] = []
    filled_bytes = limit_bytes
    for ledger, extent, at in wanted:
        parts = min(round(extent.size_bytes / limit_bytes), count_runs(extent))
        parts = max(parts, 1)
        for part in range(parts):
            piece = Piece(ledger, extent, at, part, parts)
            if filled_bytes + piece.size_bytes > limit_bytes:
                partitions.append([])
                filled_bytes = 0
            partitions[-1].append(piece)
            filled_bytes += piece.size_bytes
    return partitions


def stretch(piece: Piece, runs: Sequence[Run], options: ScanOptions) -> Stretch | None:
    """Return the runs of a piece that a scan wants; None if there are none."""
    first = _first(piece.ledger, piece.extent, options)
    last = _last(piece.ledger, piece.extent, options)
    start = len(runs) * piece.part // piece.parts
    stop = len(runs) * (piece.part + 1) // piece.parts
    while start < stop and runs[start].last < first:
        start += 1
    while start < stop and runs[stop - 1].first > last:
        stop -= 1
    if start == stop:
        return None
    return Stretch(piece.ledger, piece.extent, tuple(runs), start, stop, piece.at)


def located(ledgers: Iterable[LedgerMap]) -> Iterator[tuple[Ledger, Extent, int]]:
    """Yield every extent of a topic, with the stored bytes before it."""
    at = 0
    for found in ledgers:
        for extent in found.extents:
            yield found.ledger, extent, at
            at += extent.size_bytes


def _first(ledger: Ledger, extent: Extent, options: ScanOptions) -> int:
    """Return the first entry of an extent that a scan wants."""
    start = options.start or Position(-1, 0)
    if ledger.id < start.ledger:
        return extent.last + 1
    return max(extent.first, start.entry) if ledger.id == start.ledger else extent.first


def _last(ledger: Ledger, extent: Extent, options: ScanOptions) -> int:
    """Return the last entry of an extent that a scan wants."""
    if options.end is None or ledger.id < options.end.ledger:
        return extent.last
    if ledger.id > options.end.ledger:
        return extent.first - 1
    return min(extent.last, options.end.entry - 1)
