"""Cutting a topic into Spark partitions.

A partition consists of whole extents, or of parts of them: part i of n. The task that
reads it computes the runs of a part, since the size of runs is a setting of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sparkcache.fetch import RunSlice
from sparkcache.filters import Bounds, may_match_all
from sparkcache.model import Extent, Ledger, Position, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sparkcache.connector import LedgerMap
    from sparkcache.demand import Consumer
    from sparkcache.filters import Filter

    Located: TypeAlias = "tuple[Ledger, Extent, int]"
    Homes: TypeAlias = "Mapping[tuple[Ledger, Extent], tuple[str, int]]"


@dataclass(frozen=True, slots=True)
class Piece:
    """Part `part` of `parts` of an extent at byte `topic_offset` of its topic.

    Attributes:
        reads: How many planned reads of it are done, if its home need not know.

    """

    ledger: Ledger
    extent: Extent
    topic_offset: int
    part: int = 0
    parts: int = 1
    reads: int = 0

    @property
    def size_bytes(self) -> int:
        """Approximate size, in stored bytes."""
        return self.extent.size_bytes // self.parts


@dataclass(slots=True)
class PiecesOfPartition:
    """The pieces of one partition.

    Attributes:
        pieces: The pieces, in the order of the topic.
        home: Where Spark is to read them, as `homes.Executor.location`; empty if
            anywhere.

    """

    pieces: list[Piece]
    home: str = ""


def partition(
    extents: Iterable[Sequence[Located]],
    min_partitions: int,
    partition_bytes: int,
    count_runs: Callable[[Extent], int],
    homes: Homes | None = None,
) -> list[list[PiecesOfPartition]]:
    """Cut extents into partitions of at most about `partition_bytes`.

    Each is of one topic, and of extents with the same home. There are never more than
    runs, as far as planning knows the size of runs.
    """
    topics = [list(topic_extents) for topic_extents in extents]
    total_bytes = sum(extent.size_bytes for topic in topics for _, extent, _ in topic)
    limit_bytes = min(partition_bytes, -(-total_bytes // min_partitions))
    return [_partition(topic, limit_bytes, count_runs, homes or {}) for topic in topics]


def _partition(
    extents: Iterable[Located],
    limit_bytes: int,
    count_runs: Callable[[Extent], int],
    homes: Homes,
) -> list[PiecesOfPartition]:
    partitions: list[PiecesOfPartition] = []
    filling: dict[str, PiecesOfPartition] = {}
    filled_bytes: dict[str, int] = {}
    for ledger, extent, topic_offset in extents:
        home, reads = homes.get((ledger, extent), ("", 0))
        parts = max(1, round(extent.size_bytes / limit_bytes))
        if parts > 1:
            parts = max(1, min(parts, count_runs(extent)))
        for part in range(parts):
            piece = Piece(ledger, extent, topic_offset, part, parts, reads)
            if filled_bytes.get(home, limit_bytes) + piece.size_bytes > limit_bytes:
                filling[home] = PiecesOfPartition([], home)
                partitions.append(filling[home])
                filled_bytes[home] = 0
            filling[home].pieces.append(piece)
            filled_bytes[home] += piece.size_bytes
    return partitions


class PositionFilter:
    """The filters of a query on the columns of ledger and entry id.

    Args:
        columns: The names of these columns; empty if there are none.
        filters: All filters of the query.

    """

    def __init__(
        self, columns: tuple[str, str], filters: Iterable[Filter] = ()
    ) -> None:
        self._ledger, self._entry = columns
        self._filters = tuple(each for each in filters if each.column in columns)

    def __repr__(self) -> str:
        return f"PositionFilter{self._filters}"

    def may_match(self, ledger: Ledger, first: int, last: int) -> bool:
        """Return whether entries of a ledger, `first` to `last`, may match."""
        if not self._filters:
            return True
        known = {
            self._ledger: Bounds(ledger.id, ledger.id, 0),
            self._entry: Bounds(first, last, 0),
        }
        return may_match_all(self._filters, known)


ANYWHERE = PositionFilter(("", ""))


def wanted(
    ledgers: Iterable[LedgerMap],
    consumer: Consumer,
    positions: PositionFilter = ANYWHERE,
) -> list[Located]:
    """Return the extents with an entry that a consumer reads, and that may match."""
    return [
        (ledger, extent, topic_offset)
        for ledger, extent, topic_offset in extent_offsets(ledgers)
        if _first(ledger, extent, consumer) <= _last(ledger, extent, consumer)
        and positions.may_match(ledger, extent.first, extent.last)
    ]


def run_slice(
    piece: Piece,
    runs: Sequence[Run],
    consumer: Consumer,
    positions: PositionFilter = ANYWHERE,
) -> RunSlice | None:
    """Return the runs of a piece that a consumer reads; None if it reads none.

    Runs at both ends that cannot match by their positions are left out.
    """

    def may_match(run: Run) -> bool:
        return positions.may_match(piece.ledger, run.first, run.last)

    first = _first(piece.ledger, piece.extent, consumer)
    last = _last(piece.ledger, piece.extent, consumer)
    start = len(runs) * piece.part // piece.parts
    stop = len(runs) * (piece.part + 1) // piece.parts
    while start < stop and (runs[start].last < first or not may_match(runs[start])):
        start += 1
    while start < stop and (
        runs[stop - 1].first > last or not may_match(runs[stop - 1])
    ):
        stop -= 1
    if start == stop:
        return None
    return RunSlice(
        *(piece.ledger, piece.extent, tuple(runs), start, stop),
        piece.topic_offset,
        piece.reads,
    )


def reads_whole(piece: Piece, consumer: Consumer) -> bool:
    """Return whether a consumer reads each entry of the extent of a piece."""
    ledger, extent = piece.ledger, piece.extent
    entries = _first(ledger, extent, consumer), _last(ledger, extent, consumer)
    return entries == (extent.first, extent.last)


def reads_all_of(part: RunSlice, consumer: Consumer) -> bool:
    """Return whether a consumer reads each entry of the runs of a slice."""
    first, last = part.runs[part.start].first, part.runs[part.stop - 1].last
    return entries_of(part, consumer) == (first, last)


def entries_of(part: RunSlice, consumer: Consumer) -> tuple[int, int]:
    """Return the first and the last entry of a slice that a consumer reads."""
    first, last = part.runs[part.start].first, part.runs[part.stop - 1].last
    return (
        max(first, _first(part.ledger, part.extent, consumer)),
        min(last, _last(part.ledger, part.extent, consumer)),
    )


def extent_offsets(ledgers: Iterable[LedgerMap]) -> Iterator[Located]:
    """Yield every extent of a topic, with the stored bytes before it."""
    topic_offset = 0
    for ledger_map in ledgers:
        for extent in ledger_map.extents:
            yield ledger_map.ledger, extent, topic_offset
            topic_offset += extent.size_bytes


def _first(ledger: Ledger, extent: Extent, consumer: Consumer) -> int:
    """Return the first entry of an extent that a consumer reads."""
    start = consumer.start or Position(-1, 0)
    if ledger.id < start.ledger:
        return extent.last + 1
    return max(extent.first, start.entry) if ledger.id == start.ledger else extent.first


def _last(ledger: Ledger, extent: Extent, consumer: Consumer) -> int:
    """Return the last entry of an extent that a consumer reads."""
    if consumer.end is None or ledger.id < consumer.end.ledger:
        return extent.last
    if ledger.id > consumer.end.ledger:
        return extent.first - 1
    return min(extent.last, consumer.end.entry - 1)
