"""Offsets of runs in their objects, as far as loads have found them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cachetools import LRUCache

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.model import Extent, Ledger

_MAX_OFFSETS = 200_000  # about 100 bytes each


class Offsets:
    """Offsets of runs by their first entry, for the extents used last."""

    def __init__(self, max_offsets: int = _MAX_OFFSETS) -> None:
        self._extents: LRUCache[tuple[Ledger, Extent], dict[int, int]] = LRUCache(
            max_offsets, getsizeof=len
        )

    def __repr__(self) -> str:
        return f"Offsets({self._extents.currsize} in {len(self._extents)} extents)"

    def for_extent(self, ledger: Ledger, extent: Extent) -> Mapping[int, int]:
        """Return the known offsets of an extent."""
        return self._extents.get((ledger, extent), {})

    def learn(self, ledger: Ledger, extent: Extent, first: int, offset: int) -> None:
        """Record the offset of the run that starts with an entry."""
        known = self._extents.pop((ledger, extent), {})
        known[first] = offset
        with suppress(ValueError):  # the extent has more runs than fit
            self._extents[ledger, extent] = known

    def check(self) -> None:
        """Assert the invariants. For tests."""
        assert self._extents.currsize == sum(map(len, self._extents.values()))
        assert self._extents.currsize <= self._extents.maxsize
