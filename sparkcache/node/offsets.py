"""Where runs begin in their objects, as far as loads have come across them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.model import Extent, Ledger

_MOST = 200_000  # about 100 bytes each


class Offsets:
    """Offsets of runs, by their first entries; of the extents used last."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._known = 0
        self._extents: OrderedDict[tuple[Ledger, Extent], dict[int, int]] = (
            OrderedDict()
        )

    def __repr__(self) -> str:
        return f"Offsets({self._known} in {len(self._extents)} extents)"

    def of(self, ledger: Ledger, extent: Extent) -> Mapping[int, int]:
        """Return what is known of an extent."""
        return self._extents.get((ledger, extent), {})

    def learn(self, ledger: Ledger, extent: Extent, first: int, offset: int) -> None:
        """Note where the run with that first entry begins."""
        known = self._extents.setdefault((ledger, extent), {})
        self._extents.move_to_end((ledger, extent))
        self._known += first not in known
        known[first] = offset
        while self._known > self._most and len(self._extents) > 1:
            _, forgotten = self._extents.popitem(last=False)
            self._known -= len(forgotten)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        assert self._known == sum(map(len, self._extents.values()))
        assert self._known <= self._most or len(self._extents) == 1
