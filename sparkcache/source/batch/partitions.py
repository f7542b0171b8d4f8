"""How a topic is cut into Spark partitions.

A partition is made of whole extents, or of parts of them: part i of n. Which runs
that are is known where it is read, since the size of runs is a setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sparkcache.fetch import RunSlice
from sparkcache.model import Extent, Ledger, Position, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sparkcache.connector import LedgerMap
    from sparkcache.demand import Consumer

    Located: TypeAlias = "tuple[Ledger, Extent, int]"


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
    extents: Iterable[Sequence[Located]],
    min_partitions: int,
    partition_bytes: int,
    count_runs: Callable[[Extent], int],
) -> list[list[list[Piece]]]:
    """Cut the extents of topics into partitions of about that many bytes, each topic's.

    Not into more than there are runs, as far as their size is known while planning.
    """
    topics = [list(of_topic) for of_topic in extents]
    total_bytes = sum(extent.size_bytes for of in topics for _, extent, _ in of)
    limit_bytes = min(partition_bytes, -(-total_bytes // min_partitions))
    return [_partition(of_topic, limit_bytes, count_runs) for of_topic in topics]


def _partition(
    extents: Iterable[Located],
    limit_bytes: int,
    count_runs: Callable[[Extent], int],
) -> list[list[Piece]]:
    partitions: list[list[Piece]] = []
    filled_bytes = limit_bytes
    for ledger, extent, at in extents:
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


def wanted(ledgers: Iterable[LedgerMap], consumer: Consumer) -> list[Located]:
    """Return the extents that a consumer reads any entry of."""
    return [
        (ledger, extent, at)
        for ledger, extent, at in extent_offsets(ledgers)
        if _first(ledger, extent, consumer) <= _last(ledger, extent, consumer)
    ]


def run_slice(piece: Piece, runs: Sequence[Run], consumer: Consumer) -> RunSlice | None:
    """Return the runs of a piece that a consumer wants; None if there are none."""
    first = _first(piece.ledger, piece.extent, consumer)
    last = _last(piece.ledger, piece.extent, consumer)
    start = len(runs) * piece.part // piece.parts
    stop = len(runs) * (piece.part + 1) // piece.parts
    while start < stop and runs[start].last < first:
        start += 1
    while start < stop and runs[stop - 1].first > last:
        stop -= 1
    if start == stop:
        return None
    return RunSlice(piece.ledger, piece.extent, tuple(runs), start, stop, piece.at)


def extent_offsets(ledgers: Iterable[LedgerMap]) -> Iterator[Located]:
    """Yield every extent of a topic, with the stored bytes before it."""
    at = 0
    for found in ledgers:
        for extent in found.extents:
            yield found.ledger, extent, at
            at += extent.size_bytes


def _first(ledger: Ledger, extent: Extent, consumer: Consumer) -> int:
    """Return the first entry of an extent that a consumer wants."""
    start = consumer.start or Position(-1, 0)
    if ledger.id < start.ledger:
        return extent.last + 1
    return max(extent.first, start.entry) if ledger.id == start.ledger else extent.first


def _last(ledger: Ledger, extent: Extent, consumer: Consumer) -> int:
    """Return the last entry of an extent that a consumer wants."""
    if consumer.end is None or ledger.id < consumer.end.ledger:
        return extent.last
    if ledger.id > consumer.end.ledger:
        return extent.first - 1
    return min(extent.last, consumer.end.entry - 1)
