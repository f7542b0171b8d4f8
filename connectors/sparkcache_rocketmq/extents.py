"""How a commit log is cut: at queue offsets that are multiples of a power of two.

So it follows from the offsets and the sizes of what lies between them, and stays as it
is when messages are appended, but for the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from sparkcache.model import Extent, Run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache_rocketmq.queue_index import Item, QueueIndex

EXTENT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """Records of consecutive queue offsets, in a commit log.

    Attributes:
        first: The first offset.
        last: The last one, included.
        place: Where in the commit log they begin.
        end: Where they end.

    """

    first: int
    last: int
    place: int
    end: int

    def middle(self) -> int:
        """Return the offset in it that is a multiple of the largest power of two.

        A span of one offset has none.
        """
        bits = (self.first ^ self.last).bit_length() - 1
        return self.last >> bits << bits

    def halves(
        self, before: Item | None, behind: Item | None
    ) -> tuple[OffsetSpan, ...]:
        """Return it cut at its middle, given the items on both sides of that.

        Uncut if they are not known, or not between its ends.
        """
        if before is None or behind is None:
            return ()
        if not self.place < before.end <= self.end or before.place < self.place:
            return ()
        if not before.place <= behind.place < self.end:
            return ()
        middle = self.middle()
        return (
            OffsetSpan(self.first, middle - 1, self.place, before.end),
            OffsetSpan(middle, self.last, behind.place, self.end),
        )


def cut(
    spans: Iterable[OffsetSpan], index: QueueIndex, extent_bytes: int = EXTENT_BYTES
) -> list[OffsetSpan]:
    """Cut spans into halves, and these, until none has more than that many bytes."""
    small: list[OffsetSpan] = []
    large = list(spans)
    while large:
        pending: list[OffsetSpan] = []
        for span in large:
            is_small = span.end - span.place <= extent_bytes or span.first == span.last
            (small if is_small else pending).append(span)
        index.look_ahead([span.middle() - 1 for span in pending], 2)
        large = []
        for span in pending:
            middle = span.middle()
            halves = span.halves(index.item(middle - 1), index.item(middle))
            large += halves
            small += () if halves else (span,)
    return sorted(small, key=attrgetter("place", "first"))


def runs(extent: Extent, run_bytes: int) -> list[Run]:
    """Cut an extent at multiples of a power of two, into about that many bytes each.

    The number of offsets is what that many bytes have on average, or down to half.
    """
    offsets = extent.last - extent.first + 1
    most = max(1, run_bytes * offsets // max(1, extent.size_bytes))
    step = 1 << (most.bit_length() - 1)
    begin = extent.first // step * step
    return [
        Run(max(first, extent.first), min(first + step - 1, extent.last))
        for first in range(begin, extent.last + 1, step)
    ]
