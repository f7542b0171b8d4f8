"""Offsets of entries in a topic, in stored bytes from its beginning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sortedcontainers import SortedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.model import Position


@dataclass(frozen=True, slots=True)
class ExtentOffset:
    """An extent and its offset in the topic.

    Attributes:
        ledger: The id of the ledger.
        first: The first entry.
        last: The last entry, inclusive.
        offset: Stored bytes of the topic before the extent.
        size_bytes: Stored bytes of the extent.

    """

    ledger: int
    first: int
    last: int
    offset: float
    size_bytes: int


class TopicLayout:
    """The extents of a topic, as far as scans have reported them.

    Scans planned at different times may count from different beginnings, since old
    ledgers are trimmed. Extents known already show by how much the offsets differ. An
    extent before the first scan's beginning has an offset below 0 if a later scan
    reports it.
    """

    def __init__(self) -> None:
        self._extents: SortedDict[tuple[int, int], ExtentOffset] = SortedDict()

    def __repr__(self) -> str:
        return f"TopicLayout({len(self._extents)} extents)"

    def __len__(self) -> int:
        return len(self._extents)

    @property
    def begin(self) -> float:
        """Offset where the topic begins, as far as known."""
        return min(0.0, self._extents.peekitem(0)[1].offset) if self._extents else 0.0

    def learn(self, extents: Iterable[ExtentOffset], shift: float = 0.0) -> float:
        """Add extents of one scan; return the shift from the scan's offsets to these.

        If none of the extents is known, that is `shift`, as returned for other extents
        of the scan.
        """
        unknown = []
        for extent in extents:
            known = self._extents.get((extent.ledger, extent.first))
            if known is None:
                unknown.append(extent)
            else:
                shift = known.offset - extent.offset
        for extent in unknown:
            self._extents[extent.ledger, extent.first] = ExtentOffset(
                extent.ledger,
                extent.first,
                extent.last,
                extent.offset + shift,
                extent.size_bytes,
            )
        return shift

    def offset_of(self, position: Position) -> float:
        """Return where an entry begins; if unknown, where its predecessor ends.

        Entries of an extent are assumed to have the same size.
        """
        index = self._extents.bisect_right((position.ledger, position.entry)) - 1
        if index < 0:
            return 0.0
        extent: ExtentOffset = self._extents.peekitem(index)[1]
        share = 1.0
        if position.ledger == extent.ledger and position.entry <= extent.last:
            share = (position.entry - extent.first) / (extent.last - extent.first + 1)
        return extent.offset + share * extent.size_bytes
