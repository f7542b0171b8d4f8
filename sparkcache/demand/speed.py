"""The speed of a scan."""

from __future__ import annotations

from math import log

HALF_LIFE = 300  # in ticks; from 200 to 2000, storage reads differ by at most 1 %
_HALF_LIFE_MOVES = 8  # at least: fewer say more of chance than of the scan


class Speed:
    """Recent speed in bytes per tick; older movement counts exponentially less.

    A tick is one run taken by any reader. So a scan's speed is its share of all reads,
    which is what eviction needs: while nobody reads, no scan slows down.

    Attributes:
        half_life: In how many ticks from now movement counts half. The more readers
            there are, the more seldom each moves: where `_HALF_LIFE_MOVES` of the scan
            take longer than `HALF_LIFE`, so long.

    """

    __slots__ = ("_bytes", "_moves", "_tick", "_ticks", "half_life")

    def __init__(self, tick: int) -> None:
        self._tick = tick
        self._bytes = 0.0
        self._ticks = 0.0
        self._moves = 0.0
        self.half_life = float(HALF_LIFE)

    def __repr__(self) -> str:
        return f"Speed({self._bytes:.0f} bytes in {self._ticks:.0f} ticks)"

    def add(self, size_bytes: float, tick: int) -> None:
        """Count bytes that the scan has passed."""
        weight = self._weight(tick)
        self._ticks = self._window(weight)
        self._bytes = self._bytes * weight + size_bytes
        self._moves = self._moves * weight + 1.0
        self._tick = tick
        moves_ticks = _HALF_LIFE_MOVES * self._ticks / self._moves
        self.half_life = max(float(HALF_LIFE), moves_ticks)

    def at(self, tick: int) -> float | None:
        """Return the speed at a tick; None if the scan has not moved recently."""
        if tick == self._tick:
            return self._bytes / max(self._ticks, 1.0) or None
        weight = self._weight(tick)
        return self._bytes * weight / max(self._window(weight), 1.0) or None

    def _weight(self, tick: int) -> float:
        return float(0.5 ** ((tick - self._tick) / self.half_life))

    def _window(self, weight: float) -> float:
        return self._ticks * weight + (1.0 - weight) * self.half_life / log(2)
