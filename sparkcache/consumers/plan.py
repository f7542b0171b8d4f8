"""Plans and their consumers, as the driver counted them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcache.model import Position

if TYPE_CHECKING:
    from sparkcache.model import RunKey


@dataclass(frozen=True, slots=True)
class Consumer:
    """One planned scan of a topic.

    Attributes:
        topic: The topic's full name and place, as in `Ledger.topic`.
        start: First position it reads; None for the first there is.
        end: Position after the last one it reads; None for no end.

    """

    topic: str
    start: Position | None = None
    end: Position | None = None

    def reads(self, key: RunKey) -> bool:
        """Tell whether it will read any entry of a run."""
        return (
            key.ledger.topic == self.topic
            and (
                self.start is None
                or self.start <= Position(key.ledger.id, key.run.last)
            )
            and (self.end is None or Position(key.ledger.id, key.run.first) < self.end)
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The consumers that were planned together."""

    id: str
    consumers: tuple[Consumer, ...]

    def reads(self, key: RunKey) -> int:
        """Return how many of its consumers read a run."""
        return sum(consumer.reads(key) for consumer in self.consumers)
