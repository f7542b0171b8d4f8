"""Approaches: who comes to which stretch of a topic, and when.

A reader that has begun, and a consumer that has not, comes to a stretch of the topic at
some pace. Which approaches there are is said by `Cursor` and `Forecast`. Here they are
kept so that the soonest to come to an offset is found without looking at all of them.

Approaches are in the order in which they begin. From the nearest one before an offset
the search goes back, until even the fastest reader of the topic would come too late
from there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

from sparkcache.demand.arrivals import soonest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.demand.arrivals import Arrivals


class Pace(Protocol):
    """How long something takes to read a byte.

    Attributes:
        least_pace: Its pace is not less, whatever it is now.

    """

    least_pace: float

    def pace(self, tick: int) -> float:
        """Return the ticks that a byte takes; infinite for what stands still."""


@dataclass(eq=False, slots=True, repr=False)
class Approach:
    """One way to come to the offsets from `begin` on, before `end`.

    Attributes:
        begin: The first offset.
        end: The offset after the last one.
        origin: The offset from which the way is counted, at most `begin`.
        reader: Who comes, and how fast.
        share: In how many places the reader reads at once, one of which is this.
        since_tick: Since when nobody is under way, if a task has left it; otherwise
            None. A reader is expected after as long again.
        arrivals: The beginnings of the reader's plan, if it has not begun.
        count: How many readers begin so, the next of which comes.

    """

    begin: float
    end: float
    origin: float
    reader: Pace
    share: int = 1
    since_tick: int | None = None
    arrivals: Arrivals | None = None
    count: int = 1
    _serial: int = 0

    def __repr__(self) -> str:
        since = "" if self.since_tick is None else f", since {self.since_tick}"
        waiting = "" if self.arrivals is None else f", {self.count} waiting"
        return (
            f"{self.begin} to {self.end} from {self.origin}, "
            f"1 of {self.share}{since}{waiting}"
        )

    def ticks_until(self, offset: float, tick: int, other: float = inf) -> float:
        """Estimate the ticks until an offset of the stretch is reached.

        `other` is when one that has begun reaches it: the first of them counts.
        """
        pace = self.reader.pace(tick)
        if pace == inf:
            return other
        way = (offset - self.origin) * pace * self.share
        if self.arrivals is not None:
            return soonest(other, way, self.arrivals.delay(tick, self.count))
        if self.since_tick is not None:
            way += tick - self.since_tick
        return min(way, other)


class Approaches:
    """All approaches to the offsets of one topic."""

    def __init__(self) -> None:
        self._order: list[tuple[float, int, Approach]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._order)

    def __repr__(self) -> str:
        return f"Approaches({len(self)})"

    def add(self, approach: Approach) -> None:
        """Add an approach that is not among these."""
        self._serial += 1
        approach._serial = self._serial
        entry = (approach.begin, self._serial, approach)
        self._order.insert(bisect_left(self._order, entry), entry)

    def remove(self, approach: Approach) -> None:
        """Remove an approach."""
        del self._order[self._index(approach)]

    def replace(self, old: Iterable[Approach], new: Iterable[Approach]) -> None:
        """Remove some approaches and add others."""
        for approach in old:
            self.remove(approach)
        for approach in new:
            self.add(approach)

    def move(self, approach: Approach, begin: float) -> None:
        """Let a reader go on to an offset in its stretch."""
        self.remove(approach)
        approach.begin = approach.origin = begin
        self.add(approach)

    def next_breakpoint(self, offset: float) -> float:
        """Return the first offset after this one where an approach begins."""
        index = bisect_right(self._order, (offset, inf))
        return self._order[index][0] if index < len(self._order) else inf

    def ticks_until(self, offset: float, tick: int, least_pace: float) -> float:
        """Estimate the ticks until an offset is read; infinite if it is not.

        No pace is less than `least_pace`.
        """
        ticks = inf
        waiting = []
        for index in range(bisect_right(self._order, (offset, inf)) - 1, -1, -1):
            begin, _, approach = self._order[index]
            if (offset - begin) * least_pace >= ticks:
                break
            least = (offset - approach.origin) * approach.reader.least_pace
            if offset >= approach.end or least * approach.share >= ticks:
                continue
            if approach.arrivals is not None:
                waiting.append(approach)
            else:
                ticks = approach.ticks_until(offset, tick, ticks)
        if not waiting:
            return ticks
        return min(approach.ticks_until(offset, tick, ticks) for approach in waiting)

    def all(self) -> list[Approach]:
        """List all approaches. For tests: O(n)."""
        return [approach for _, _, approach in self._order]

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        keys = [(begin, serial) for begin, serial, _ in self._order]
        assert keys == sorted(set(keys))
        for begin, serial, approach in self._order:
            assert (begin, serial) == (approach.begin, approach._serial)
            assert approach.origin <= begin

    def _index(self, approach: Approach) -> int:
        return bisect_left(self._order, (approach.begin, approach._serial))
