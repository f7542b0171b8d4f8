"""Offsets of runs in their objects, as far as loads have found them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.model import Extent, Ledger

_MAX_OFFSETS = 200_000  # about 100 bytes each


class Offsets:
    """Offsets of runs by their first entry, for the extents used last."""

    def __init__(self, most: int = _MAX_OFFSETS) -> None:
        self._most = most
        self._known = 0
        self._extents: OrderedDict[tuple[Ledger, Extent], dict[int, int]] = (
            OrderedDict()
        )

    def __repr__(self) -> str:
        return f"Offsets({self._known} in {len(self._extents)} extents)"

    def for_extent(self, ledger: Ledger, extent: Extent) -> Mapping[int, int]:
        """Return the known offsets of an extent."""
        return self._extents.get((ledger, extent), {})

    def learn(self, ledger: Ledger, extent: Extent, first: int, offset: int) -> None:
        """Record the offset of the run that starts with an entry."""
        known = self._extents.setdefault((ledger, extent), {})
        self._extents.move_to_end((ledger, extent))
        self._known += first not in known
        known[first] = offset
        while self._known > self._most and len(self._extents) > 1:
            _, dropped = self._extents.popitem(last=False)
            self._known -= len(dropped)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        assert self._known == sum(map(len, self._extents.values()))
        assert self._known <= self._most or len(self._extents) == 1
