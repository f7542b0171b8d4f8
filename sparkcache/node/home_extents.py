"""The extents that an executor is home of, as its node learns of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from sparkcache.homes import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.fetch.scan import RunSlice

MAX_EXTENTS = 1 << 14


class HomeExtents:
    """The extents that tasks have opened at home, each one once.

    A node knows no more than what its tasks open. Of very many extents it remembers
    those that were opened last.

    Args:
        max_extents: How many it remembers.

    Attributes:
        size_bytes: Their stored size.

    """

    def __init__(self, max_extents: int = MAX_EXTENTS) -> None:
        self._max_extents = max_extents
        self._sizes: OrderedDict[tuple[str, int], int] = OrderedDict()
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"HomeExtents({len(self._sizes)} extents, {self.size_bytes} bytes)"

    def open(self, slices: Iterable[RunSlice], place: Place) -> None:
        """Record what a task is going to read: if it is away, the home is elsewhere.

        An extent is as large as its largest read: one may want fewer columns.
        """
        if place is Place.ANYWHERE:
            return
        for run_slice in slices:
            extent = run_slice.extent
            key = (run_slice.ledger.object.uri, extent.first)
            before = self._sizes.pop(key, 0)
            self.size_bytes -= before
            if place is not Place.AWAY:
                self._sizes[key] = max(before, extent.size_bytes)
                self.size_bytes += self._sizes[key]
        while len(self._sizes) > self._max_extents:
            self.size_bytes -= self._sizes.popitem(last=False)[1]

    def check(self) -> None:
        """Assert the invariants. For tests."""
        assert self.size_bytes == sum(self._sizes.values())
        assert len(self._sizes) <= self._max_extents
