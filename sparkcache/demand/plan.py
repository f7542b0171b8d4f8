"""Plans and their consumers, as counted by the driver."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sparkcache.model import Position, is_named

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from sparkcache.model import RunKey


@dataclass(frozen=True, slots=True)
class Consumer:
    """One planned scan of a topic.

    Attributes:
        topic: The topic's root and full name, as in `Ledger.topic`.
        start: First position to read; None for the beginning of the topic.
        end: Position after the last one to read; None for no end.

    """

    topic: str
    start: Position | None = None
    end: Position | None = None

    def reads(self, key: RunKey) -> bool:
        """Return whether the consumer will read any entry of a run."""
        return (
            key.ledger.topic == self.topic
            and (
                self.start is None
                or self.start <= Position(key.ledger.id, key.run.last)
            )
            and (self.end is None or Position(key.ledger.id, key.run.first) < self.end)
        )

    def reads_topic(self, name: str) -> bool:
        """Return whether the consumer reads a topic of this name."""
        return is_named(self.topic, name)

    def remaining_after(self, reached: Position) -> Consumer | None:
        """Return the consumer from a reached position on; None if it is finished."""
        if self.end is not None and self.end <= reached:
            return None
        begins_later = self.start is not None and self.start >= reached
        return self if begins_later else replace(self, start=reached)


NOT_BEGUN = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """The consumers that were planned together, or what a stream has still to read.

    Attributes:
        id: The unique id. For a stream `run/query/plan`: the run of the query, with
            which the plan ends; the query, whose runs follow one another; the plan.
        consumers: The scans; for a stream, what it has not read yet, without an end.
        batch: 0 if the plan is not a stream's. For a stream a number above 0 that
            grows by at least two with each batch; the highest one is valid. `NOT_BEGUN`
            for the placeholder of a stream without a batch, which its plan replaces.

    """

    id: str
    consumers: tuple[Consumer, ...]
    batch: int = 0

    @property
    def has_begun(self) -> bool:
        """Whether tasks read for this plan; False for the placeholder of a stream."""
        return self.batch != NOT_BEGUN

    @property
    def is_stream(self) -> bool:
        """Whether the plan is a stream's."""
        return self.batch > 0

    @property
    def run(self) -> str:
        """The run of the query that reads the stream."""
        return self.id.partition("/")[0]

    def is_another_run(self, other: Plan) -> bool:
        """Return whether both plans are streams' of two runs of one query."""
        query, other_query = self.id.split("/")[1:-1], other.id.split("/")[1:-1]
        return any(query) and query == other_query and self.run != other.run

    @property
    def topics(self) -> dict[str, None]:
        """The topics of the consumers, each once."""
        return dict.fromkeys(consumer.topic for consumer in self.consumers)

    def reads(self, key: RunKey) -> bool:
        """Return whether any consumer will read any entry of a run."""
        return any(consumer.reads(key) for consumer in self.consumers)

    def matches(self, ids: Container[str]) -> bool:
        """Return whether one of these ids is that of the plan or of its run."""
        return self.id in ids or self.run in ids

    def remaining_after(self, reached: Mapping[str, Position]) -> Plan:
        """Return a stream's plan after a batch that has read topics to these positions.

        The keys of `reached` are names of topics, without their roots.
        """
        remaining = []
        for consumer in self.consumers:
            positions = [
                position
                for name, position in reached.items()
                if consumer.reads_topic(name)
            ]
            remaining.append(
                consumer.remaining_after(min(positions)) if positions else consumer
            )
        consumers = tuple(filter(None, remaining))
        if consumers == self.consumers:
            return self
        return replace(self, consumers=consumers, batch=self.batch + 1)


class Consumers:
    """Consumers by topic, in the order of their ends: to count costs a look at few.

    A consumer reads a run unless it begins after the run or ends before it. So those
    that have begun are counted, less those that have ended.
    """

    def __init__(self, consumers: Iterable[Consumer] = ()) -> None:
        self._by_topic: dict[str, _Ends] = {}
        for consumer in consumers:
            self.add(consumer)

    def __repr__(self) -> str:
        return f"Consumers(of {len(self._by_topic)} topics)"

    def add(self, consumer: Consumer) -> None:
        """Add a consumer; equal ones may be among these."""
        if consumer.topic not in self._by_topic:
            self._by_topic[consumer.topic] = _Ends()
        ends = self._by_topic[consumer.topic]
        ends.consumers += 1
        if consumer.start is not None:
            insort(ends.starts, _pair(consumer.start))
        if consumer.end is not None:
            insort(ends.stops, _pair(consumer.end))

    def remove(self, consumer: Consumer) -> None:
        """Remove one of the equals of a consumer."""
        ends = self._by_topic[consumer.topic]
        ends.consumers -= 1
        if consumer.start is not None:
            del ends.starts[bisect_left(ends.starts, _pair(consumer.start))]
        if consumer.end is not None:
            del ends.stops[bisect_left(ends.stops, _pair(consumer.end))]
        if not ends.consumers:
            del self._by_topic[consumer.topic]

    def reads(self, key: RunKey) -> int:
        """Return how many of the consumers read a run."""
        ledger, run = key.ledger, key.run
        ends = self._by_topic.get(ledger.topic)
        if ends is None:
            return 0
        later = over = 0
        if ends.starts:
            later = len(ends.starts) - bisect_right(ends.starts, (ledger.id, run.last))
        if ends.stops:
            over = bisect_right(ends.stops, (ledger.id, run.first))
        return ends.consumers - later - over


@dataclass(slots=True)
class _Ends:
    """Where the consumers of one topic begin and end, ascending."""

    consumers: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)
    stops: list[tuple[int, int]] = field(default_factory=list)


def _pair(position: Position) -> tuple[int, int]:
    return position.ledger, position.entry
