"""Where in a topic an entry lies, in stored bytes from the topic's beginning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sortedcontainers import SortedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.model import Position


@dataclass(frozen=True, slots=True)
class ExtentOffset:
    """An extent in its topic.

    Attributes:
        ledger: The ledger's id.
        first: Its first entry.
        last: Its last entry, included.
        at: Where it begins: stored bytes of the topic before it.
        size_bytes: Stored bytes that it has.

    """

    ledger: int
    first: int
    last: int
    at: float
    size_bytes: int


class TopicLayout:
    """The extents of a topic as far as scans have named them.

    Scans planned at different times may count from different beginnings, since old
    ledgers are trimmed. What is known already says by how much they differ. What was
    trimmed since the first scan lies before 0 if a later one still found it.
    """

    def __init__(self) -> None:
        self._extents: SortedDict[tuple[int, int], ExtentOffset] = SortedDict()

    def __repr__(self) -> str:
        return f"TopicLayout({len(self._extents)} extents)"

    @property
    def begin(self) -> float:
        """Where the topic begins, as far as it is known."""
        return min(0.0, self._extents.peekitem(0)[1].at) if self._extents else 0.0

    def learn(self, extents: Iterable[ExtentOffset], shift: float = 0.0) -> float:
        """Take in extents of one scan; return by how much it counts differently.

        Where none of them is known, that is what was found for others of the scan.
        """
        unknown = []
        for extent in extents:
            known = self._extents.get((extent.ledger, extent.first))
            if known is None:
                unknown.append(extent)
            else:
                shift = known.at - extent.at
        for extent in unknown:
            self._extents[extent.ledger, extent.first] = ExtentOffset(
                extent.ledger,
                extent.first,
                extent.last,
                extent.at + shift,
                extent.size_bytes,
            )
        return shift

    def at(self, position: Position) -> float:
        """Return where an entry begins; where its predecessor ends, if unknown.

        In an extent entries are taken to be of one size.
        """
        index = self._extents.bisect_right((position.ledger, position.entry)) - 1
        if index < 0:
            return 0.0
        extent: ExtentOffset = self._extents.peekitem(index)[1]
        share = 1.0
        if position.ledger == extent.ledger and position.entry <= extent.last:
            share = (position.entry - extent.first) / (extent.last - extent.first + 1)
        return extent.at + share * extent.size_bytes
