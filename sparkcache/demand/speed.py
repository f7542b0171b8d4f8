"""How fast a scan moves."""

from __future__ import annotations

from math import log

HALF_LIFE = 300  # in ticks; from 200 to 2000 storage reads differ by 1 % at most


class Speed:
    """Bytes per tick, lately: what is long past counts little.

    A tick is one run that anybody takes. So a scan's speed is its share in what goes
    on, which is what eviction has to know: when nobody reads, nobody falls behind.
    """

    __slots__ = ("_bytes", "_tick", "_ticks")

    def __init__(self, tick: int) -> None:
        self._tick = tick
        self._bytes = 0.0
        self._ticks = 0.0

    def __repr__(self) -> str:
        return f"Speed({self._bytes:.0f} bytes in {self._ticks:.0f} ticks)"

    def add(self, size_bytes: float, tick: int) -> None:
        """Note that so many bytes more were passed."""
        kept = self._kept(tick)
        self._ticks = self._window(kept)
        self._bytes = self._bytes * kept + size_bytes
        self._tick = tick

    def at(self, tick: int) -> float | None:
        """Return the speed at a tick; None if nothing was passed lately."""
        kept = self._kept(tick)
        return self._bytes * kept / max(self._window(kept), 1.0) or None

    def _kept(self, tick: int) -> float:
        return float(0.5 ** ((tick - self._tick) / HALF_LIFE))

    def _window(self, kept: float) -> float:
        return self._ticks * kept + (1.0 - kept) * HALF_LIFE / log(2)
