"""Readers whose next read of each run is known exactly."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkcache.model import RunKey


@dataclass
class ExactForecast:
    """Each reader takes one run of one topic in each tick, from its start on.

    Attributes:
        readers: By topic, when each begins, in ticks; all begin at its first run.
        runs: How many runs a topic has. Run n has the key whose first entry is 10 n.

    """

    readers: dict[str, list[int]]
    runs: int
    tick: int = 0
    taken: set[tuple[str, int, int]] = field(default_factory=set)  # in this tick

    def offset_of(self, key: RunKey) -> float:
        return key.run.first / 10

    def at(self, topic: str, index: int) -> int:
        """Return the run that a reader takes next; negative before it begins."""
        at = self.tick - self.readers[topic][index]
        return at + ((topic, index, at) in self.taken)

    def next_breakpoint(self, topic: str, offset: float) -> float:
        places = [self.at(topic, index) for index in range(len(self.readers[topic]))]
        return min(
            (place for place in places if offset < place < self.runs), default=inf
        )

    def ticks_until_read(self, topic: str, offset: float) -> float:
        waits = [
            offset - self.at(topic, index) for index in range(len(self.readers[topic]))
        ]
        return min((wait for wait in waits if wait >= 0), default=inf)
