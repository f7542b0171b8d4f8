"""How fast the readers of one topic are: the usual pace, and the least.

Both are estimated again after as many ticks as there are scans to look at, divided by
`_SCANS_A_TICK`. So estimating costs the same in each tick, however many scans there
are, and with few scans it is always up to date.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkcache.demand.cursor import Cursor, ScanId

_SCANS_A_TICK = 4


class TopicPace:
    """The paces of a topic's readers, in ticks per byte.

    Args:
        scans: The scans of the topic that have begun; the owner changes them.
        usual_speed: Returns the usual speed of a scan, in bytes per tick.

    """

    def __init__(
        self, scans: Mapping[ScanId, Cursor], usual_speed: Callable[[], float]
    ) -> None:
        self._scans = scans
        self._usual_speed = usual_speed
        self._usual = 0.0
        self._least = 0.0
        self._until_tick = -inf

    def __repr__(self) -> str:
        return f"TopicPace(usually {self._usual:.3g} ticks a byte)"

    def pace(self, tick: int) -> float:
        """Return the pace to assume for a reader that has none yet: the usual one."""
        self._estimate(tick)
        return self._usual

    def least(self, tick: int) -> float:
        """Return a pace that is not above that of any reader."""
        self._estimate(tick)
        return self._least

    def note(self, speed: float) -> None:
        """Note that a scan has come to a speed."""
        self._least = min(self._least, 1.0 / speed)

    def change(self) -> None:
        """Note that a scan has begun or ended: estimate anew."""
        self._until_tick = -inf

    def _estimate(self, tick: int) -> None:
        if tick < self._until_tick:
            return
        self._until_tick = tick + max(len(self._scans) // _SCANS_A_TICK, 1)
        usual = self._usual_speed()
        speeds = (cursor.speed(tick) for cursor in self._scans.values())
        self._usual = 1.0 / usual
        self._least = 1.0 / max(usual, *filter(None, speeds), 0.0)
