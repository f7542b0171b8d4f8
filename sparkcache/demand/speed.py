"""The speed of a scan."""

from __future__ import annotations

from math import log

HALF_LIFE = 300  # in ticks; from 200 to 2000, storage reads differ by at most 1 %


class Speed:
    """Recent speed in bytes per tick; older movement counts exponentially less.

    A tick is one run taken by any reader. So a scan's speed is its share of all reads,
    which is what eviction needs: while nobody reads, no scan slows down.
    """

    __slots__ = ("_bytes", "_tick", "_ticks")

    def __init__(self, tick: int) -> None:
        self._tick = tick
        self._bytes = 0.0
        self._ticks = 0.0

    def __repr__(self) -> str:
        return f"Speed({self._bytes:.0f} bytes in {self._ticks:.0f} ticks)"

    def add(self, size_bytes: float, tick: int) -> None:
        """Count bytes that the scan has passed."""
        weight = self._weight(tick)
        self._ticks = self._window(weight)
        self._bytes = self._bytes * weight + size_bytes
        self._tick = tick

    def at(self, tick: int) -> float | None:
        """Return the speed at a tick; None if the scan has not moved recently."""
        if tick == self._tick:
            return self._bytes / max(self._ticks, 1.0) or None
        weight = self._weight(tick)
        return self._bytes * weight / max(self._window(weight), 1.0) or None

    def _weight(self, tick: int) -> float:
        return float(0.5 ** ((tick - self._tick) / HALF_LIFE))

    def _window(self, weight: float) -> float:
        return self._ticks * weight + (1.0 - weight) * HALF_LIFE / log(2)
