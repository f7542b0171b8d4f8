"""Plans and their consumers, as the driver counted them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkcache.model import Position, is_named

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

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

    def is_of(self, name: str) -> bool:
        """Tell whether it reads a topic of that name."""
        return is_named(self.topic, name)

    def behind(self, reached: Position) -> Consumer | None:
        """Return what is left of it behind what was read; None if nothing is."""
        if self.end is not None and self.end <= reached:
            return None
        begins_there = self.start is not None and self.start >= reached
        return self if begins_there else replace(self, start=reached)


NOT_BEGUN = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """The consumers that were planned together, or what a stream has still to read.

    Attributes:
        id: Tells it from others. That of a stream has three parts: its query's run,
            with which it ends; its query, of which one run follows another; itself.
        consumers: The scans; of a stream, what it has not read, to no end.
        batch: Grows by two at least with each batch of a stream, from above 0; 0 if it
            is no stream. What a later one says holds. `NOT_BEGUN` if it stands for a
            stream that has none yet, whose own takes its place.

    """

    id: str
    consumers: tuple[Consumer, ...]
    batch: int = 0

    @property
    def is_read_for(self) -> bool:
        """Whether tasks read for it that know of it: not for a stream to come."""
        return self.batch != NOT_BEGUN

    @property
    def is_stream(self) -> bool:
        """Whether it is that of a stream."""
        return self.batch > 0

    @property
    def run(self) -> str:
        """The run of the query that reads a stream."""
        return self.id.partition("/")[0]

    def is_another_run(self, other: Plan) -> bool:
        """Tell whether both are streams', of two runs of one query."""
        mine, its = self.id.split("/")[1:-1], other.id.split("/")[1:-1]
        return any(mine) and mine == its and self.run != other.run

    @property
    def topics(self) -> dict[str, None]:
        """The topics that its consumers read, each once."""
        return dict.fromkeys(consumer.topic for consumer in self.consumers)

    def reads(self, key: RunKey) -> bool:
        """Tell whether any of its consumers will read any entry of a run."""
        return any(consumer.reads(key) for consumer in self.consumers)

    def is_named(self, ids: Container[str]) -> bool:
        """Tell whether any of these ids means it."""
        return self.id in ids or self.run in ids

    def behind(self, reached: Mapping[str, Position]) -> Plan:
        """Return a stream's when its batch is done, and it has read topics up to there.

        Topics are given by their names, whatever their places.
        """
        left = []
        for consumer in self.consumers:
            places = [at for name, at in reached.items() if consumer.is_of(name)]
            left.append(consumer.behind(min(places)) if places else consumer)
        consumers = tuple(filter(None, left))
        if consumers == self.consumers:
            return self
        return replace(self, consumers=consumers, batch=self.batch + 1)


class Consumers:
    """Several by their topics, so that it is of few that each run is asked about."""

    def __init__(self, consumers: Iterable[Consumer]) -> None:
        self._of_topic: dict[str, list[Consumer]] = {}
        for consumer in consumers:
            self._of_topic.setdefault(consumer.topic, []).append(consumer)

    def __repr__(self) -> str:
        return f"Consumers(of {len(self._of_topic)} topics)"

    def reads(self, key: RunKey) -> int:
        """Return how many of them read a run."""
        of_topic = self._of_topic.get(key.ledger.topic, ())
        return sum(consumer.reads(key) for consumer in of_topic)
