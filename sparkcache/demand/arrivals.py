"""When the consumers of a plan that have not begun will begin.

Nothing says when, so what has been seen of the plan says how often: between two
beginnings it took as long as the plan is old, divided by their number. The next one is
expected after as long, whenever that is asked, as of calls or customers: that one has
not come for a while does not bring it nearer. Whether it is the one consumer or the
other is equally likely.

If none has come for twice as long as usual, fewer come than before, or none will: then
the next one is expected after half as long again. So a plan that is never executed
fades gradually.

In simulations with beginnings at random this comes as near to Belady's MIN as a rule
that knows the time within which all of them begin.
"""

from __future__ import annotations

from math import exp, inf

_OVERDUE = 0.5  # of the time since the last beginning; 0.25 and 1 are no better


class Arrivals:
    """The consumers of a plan that have not begun, and how often one begins.

    Attributes:
        waiting: The number of consumers that have not begun.

    """

    __slots__ = ("_begun", "_last_tick", "_since_tick", "waiting")

    def __init__(self, tick: int) -> None:
        self.waiting = 0
        self._begun = 0
        self._since_tick = tick
        self._last_tick = tick

    def __repr__(self) -> str:
        return (
            f"<{self._begun} begun since {self._since_tick}, the last at "
            f"{self._last_tick}; {self.waiting} waiting>"
        )

    def begin(self, tick: int) -> None:
        """Note that one of the consumers has begun."""
        self.waiting -= 1
        self._begun += 1
        self._last_tick = tick

    def delay(self, tick: int, count: int = 1) -> float:
        """Return the mean ticks until the next of so many of the consumers begins."""
        mean = (tick - self._since_tick) / (self._begun + 1)
        overdue = _OVERDUE * (tick - self._last_tick)
        return max(mean, overdue) * self.waiting / count

    def check(self) -> None:
        """Assert the invariants. For tests."""
        assert self.waiting >= 0
        assert self._since_tick <= self._last_tick


def soonest(other: float, way: float, delay: float) -> float:
    """Return the mean ticks until the first of two readers comes.

    Args:
        other: In how many ticks one of them comes.
        way: How many ticks the other one takes from its beginning.
        delay: After how many ticks it begins, on average.

    """
    if other <= way:
        return other
    if other == inf or not delay:
        return way + delay
    return way + delay * (1.0 - exp((way - other) / delay))
