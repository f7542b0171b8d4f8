"""Counts per topic. Their sums over all topics are the node's own counts.

A node may serve very many topics: each queue of RocketMQ is one. The first topics are
counted one by one and all others together, which bounds memory and messages.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from sparkcache.homes import Place
from sparkcache.metric_definition import Kind
from sparkcache.metrics import METRICS, TopicMetrics

if TYPE_CHECKING:
    from sparkcache.node.reader_session import ReaderSession

MAX_TOPICS = 1000

_COUNTERS = [
    spec.name
    for spec in fields(TopicMetrics)
    if spec.name in METRICS and METRICS[spec.name].kind is Kind.COUNTER
]


class TopicCounts:
    """The counts of all topics of a node.

    Args:
        max_topics: How many topics are counted one by one.

    """

    def __init__(self, max_topics: int = MAX_TOPICS) -> None:
        self._max_topics = max_topics
        self._topics: dict[str, TopicMetrics] = {}
        self._others = TopicMetrics()

    def __repr__(self) -> str:
        return f"TopicCounts({len(self._topics)} topics)"

    def set_group(self, topic: str, group: str) -> None:
        """Set the owner of a topic, if the task has sent one."""
        count = self.for_topic(topic)
        if group and count is not self._others:
            count.group = group

    def for_topic(self, topic: str) -> TopicMetrics:
        """Return the counts of a topic, to be incremented."""
        count = self._topics.get(topic)
        if count is not None:
            return count
        if len(self._topics) >= self._max_topics:
            return self._others
        count = self._topics[topic] = TopicMetrics(topic=topic)
        return count

    def ask(
        self, topic: str, session: ReaderSession, run_index: tuple[int, int]
    ) -> TopicMetrics:
        """Count a requested run, which the task would fetch itself without a cache."""
        run_slice = session.slices[run_index[0]]
        count = self.for_topic(topic)
        count.requests += 1
        count.reads += run_index[1] == run_slice.start or not session.is_in_order
        count.requested_bytes += run_slice.stored_bytes(run_index[1])
        count.home_requests += session.place in (Place.HOME, Place.HEIR)
        count.away_requests += session.place is Place.AWAY
        return count

    def insert(self, topic: str, size_bytes: int) -> None:
        """Count a run that is held from now on."""
        count = self.for_topic(topic)
        count.inserts += 1
        count.loaded_bytes += size_bytes
        count.runs += 1
        count.kept_bytes += size_bytes

    def evict(self, topic: str, size_bytes: int) -> None:
        """Count a run that is no longer held."""
        count = self.for_topic(topic)
        count.evictions += 1
        count.runs -= 1
        count.kept_bytes -= size_bytes

    def records(self) -> tuple[TopicMetrics, ...]:
        """Return the metrics of each topic, and of the others if there are any."""
        counts = list(self._topics.values())
        if self._others != TopicMetrics():
            counts.append(self._others)
        return tuple(replace(count) for count in counts)

    def totals(self) -> dict[str, int]:
        """Return the sums of counters over all topics, by the names of `Metrics`."""
        counts = [*self._topics.values(), self._others]
        return {
            name: sum(getattr(count, name) for count in counts) for name in _COUNTERS
        }
