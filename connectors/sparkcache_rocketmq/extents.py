"""Cut a commit log into extents, at queue offsets that are multiples of a power of two.

The cuts follow from the offsets and the sizes of the records between them. Appending
messages moves only the cuts near the end.
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
    """Byte range of records of consecutive queue offsets, in a commit log.

    Attributes:
        first: First queue offset.
        last: Last queue offset, included.
        start: Start of the first record, in bytes of the commit log.
        end: End of the last record.

    """

    first: int
    last: int
    start: int
    end: int

    def middle(self) -> int:
        """Return the offset of the span that is divisible by the highest power of two.

        The span must have two offsets at least.
        """
        bits = (self.first ^ self.last).bit_length() - 1
        return self.last >> bits << bits

    def halves(self, before: Item | None, after: Item | None) -> tuple[OffsetSpan, ...]:
        """Return the span cut in two at its middle; nothing if it cannot be cut.

        That is so if an item is missing, or is outside the span.

        Args:
            before: Item of the last offset before the middle.
            after: Item of the middle.

        """
        if before is None or after is None:
            return ()
        if not self.start < before.end <= self.end or before.start < self.start:
            return ()
        if not before.start <= after.start < self.end:
            return ()
        middle = self.middle()
        return (
            OffsetSpan(self.first, middle - 1, self.start, before.end),
            OffsetSpan(middle, self.last, after.start, self.end),
        )


def cut(
    spans: Iterable[OffsetSpan], index: QueueIndex, extent_bytes: int = EXTENT_BYTES
) -> list[OffsetSpan]:
    """Cut spans in two repeatedly until each has at most `extent_bytes`."""
    small: list[OffsetSpan] = []
    large = list(spans)
    while large:
        pending: list[OffsetSpan] = []
        for span in large:
            is_small = span.end - span.start <= extent_bytes or span.first == span.last
            (small if is_small else pending).append(span)
        index.look_ahead([span.middle() - 1 for span in pending], 2)
        large = []
        for span in pending:
            middle = span.middle()
            halves = span.halves(index.item(middle - 1), index.item(middle))
            large += halves
            small += () if halves else (span,)
    return sorted(small, key=attrgetter("start", "first"))


def runs(extent: Extent, run_bytes: int) -> list[Run]:
    """Cut an extent into runs of about `run_bytes`, at multiples of a power of two.

    A run has as many offsets as `run_bytes` hold on average, rounded to the nearest
    power of two, which is a third more at most: small runs cost more for each byte.
    """
    offsets = extent.last - extent.first + 1
    usual = max(1, run_bytes * offsets // max(1, extent.size_bytes))
    step = 1 << ((4 * usual // 3).bit_length() - 1)
    begin = extent.first // step * step
    return [
        Run(max(first, extent.first), min(first + step - 1, extent.last))
        for first in range(begin, extent.last + 1, step)
    ]
