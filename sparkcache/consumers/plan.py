"""Plans and their consumers, as the driver counted them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcache.model import Position

if TYPE_CHECKING:
    from collections.abc import Container

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
    """The consumers that were planned together, or what a stream has still to read.

    Attributes:
        id: Tells it from others. That of a stream begins with its query's run, before
            a slash: it ends with that.
        consumers: The scans; of a stream, what it has not read, to no end.
        batch: Which batch of a stream reads now, from 1 on; 0 if it is no stream. What
            a later one says holds.

    """

    id: str
    consumers: tuple[Consumer, ...]
    batch: int = 0

    @property
    def is_stream(self) -> bool:
        """Whether it is that of a stream."""
        return self.batch > 0

    def is_named(self, ids: Container[str]) -> bool:
        """Tell whether any of these ids means it."""
        return self.id in ids or self.id.partition("/")[0] in ids

    def reads(self, key: RunKey) -> int:
        """Return how many of its consumers read a run."""
        return sum(consumer.reads(key) for consumer in self.consumers)
