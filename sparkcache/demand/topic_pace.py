"""How fast the readers of one topic are: the usual pace, and the least.

The least is estimated again when it has been asked for `_ASKS` times as often as there
are scans to look at. So an answer costs the same however many scans there are. It is
never older than the half-life of a speed.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from sparkcache.demand.speed import HALF_LIFE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkcache.demand.cursor import Cursor, ScanId

_ASKS = 4


class TopicPace:
    """The paces of a topic's readers, in ticks per byte.

    Args:
        scans: The scans of the topic that have begun; the owner changes them.
        usual_speed: Returns the usual speed of a scan, in bytes per tick.

    Attributes:
        least_pace: Nothing is known of it without estimating.

    """

    def __init__(
        self, scans: Mapping[ScanId, Cursor], usual_speed: Callable[[], float]
    ) -> None:
        self._scans = scans
        self._usual_speed = usual_speed
        self.least_pace = 0.0
        self._least = 0.0
        self._asks_left = 0
        self._asked_tick = -1
        self._until_tick = -inf

    def __repr__(self) -> str:
        return f"TopicPace(usually {self.pace(0):.3g} ticks a byte)"

    def pace(self, _tick: int) -> float:
        """Return the pace to assume for a reader that has none yet: the usual one."""
        return 1.0 / self._usual_speed()

    def least(self, tick: int) -> float:
        """Return a pace that is not above that of any reader."""
        self._estimate(tick)
        return min(self._least, self.pace(tick))

    def note(self, speed: float) -> None:
        """Note that a scan has come to a speed."""
        self._least = min(self._least, 1.0 / speed)

    def change(self) -> None:
        """Note that a scan has begun or ended: estimate again."""
        self._asked_tick = -1
        self._until_tick = -inf

    def _estimate(self, tick: int) -> None:
        self._asks_left -= 1
        if tick == self._asked_tick:
            return  # all answers of one tick agree
        self._asked_tick = tick
        if self._asks_left > 0 and tick < self._until_tick:
            return
        self._asks_left = _ASKS * len(self._scans)
        self._until_tick = tick + HALF_LIFE
        speeds = (cursor.speed(tick) for cursor in self._scans.values())
        self._least = min((1.0 / speed for speed in speeds if speed), default=inf)
