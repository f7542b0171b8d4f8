"""What is counted of each topic. The sums over all topics are the node's own counts.

A node may meet very many topics: each queue of RocketMQ is one. The first ones are
counted one by one and all others together, so that what is remembered, and what is
said of it, has an end.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sparkcache.metrics import TopicMetrics

if TYPE_CHECKING:
    from sparkcache.node.reader_session import ReaderSession

MOST_TOPICS = 1000


@dataclass(slots=True)
class TopicCount:
    """Counts of one topic, or of several. They only grow."""

    group: str = ""
    requests: int = 0
    hits: int = 0
    prefetch_hits: int = 0
    waits: int = 0
    misses: int = 0
    served_bytes: int = 0
    reads: int = 0
    requested_bytes: int = 0
    loads: int = 0
    gets: int = 0
    received_bytes: int = 0
    inserts: int = 0
    loaded_bytes: int = 0
    evictions: int = 0
    evicted_bytes: int = 0

    def ask(self, session: ReaderSession, place: tuple[int, int]) -> None:
        """Count what a task asks for, which without a cache it would fetch itself."""
        run_slice = session.slices[place[0]]
        self.requests += 1
        self.reads += place[1] == run_slice.start or not session.is_in_order
        self.requested_bytes += run_slice.stored_bytes(place[1])

    def insert(self, size_bytes: int) -> None:
        """Count a run that is held from now on."""
        self.inserts += 1
        self.loaded_bytes += size_bytes

    def evict(self, size_bytes: int, runs: int = 1) -> None:
        """Count runs that are held no longer, of that size together."""
        self.evictions += runs
        self.evicted_bytes += size_bytes

    def record(self, topic: str) -> TopicMetrics:
        """Return what was counted, and what is held."""
        counts = {name: getattr(self, name) for name in _RECORDED}
        return TopicMetrics(
            topic=topic,
            group=self.group,
            runs=self.inserts - self.evictions,
            kept_bytes=self.loaded_bytes - self.evicted_bytes,
            **counts,
        )


_COUNTS = [spec.name for spec in fields(TopicCount) if spec.name != "group"]
_RECORDED = [name for name in _COUNTS if name != "evicted_bytes"]
_TOTALS = [name for name in _RECORDED if name != "evictions"]


class TopicCounts:
    """The counts of all topics that a node has met.

    Args:
        most: How many topics are counted one by one.

    """

    def __init__(self, most: int = MOST_TOPICS) -> None:
        self._most = most
        self._topics: dict[str, TopicCount] = {}
        self._others = TopicCount()

    def __repr__(self) -> str:
        return f"TopicCounts({len(self._topics)} topics)"

    def meet(self, topic: str, group: str) -> None:
        """Note whose a topic is, if a task says so."""
        count = self.of(topic)
        if group and count is not self._others:
            count.group = group

    def of(self, topic: str) -> TopicCount:
        """Return the counts of a topic, to be counted up."""
        count = self._topics.get(topic)
        if count is not None:
            return count
        if len(self._topics) >= self._most:
            return self._others
        count = self._topics[topic] = TopicCount()
        return count

    def records(self) -> tuple[TopicMetrics, ...]:
        """Return what was counted of each topic, and of the others if there are any."""
        found = [count.record(topic) for topic, count in self._topics.items()]
        if self._others != TopicCount():
            found.append(self._others.record(""))
        return tuple(found)

    def totals(self) -> dict[str, int]:
        """Return what was counted of all topics together, by the names of `Metrics`."""
        counts = [*self._topics.values(), self._others]
        return {name: sum(getattr(one, name) for one in counts) for name in _TOTALS}
