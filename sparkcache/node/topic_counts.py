"""Counts per topic. Their sums over all topics are the node's own counts.

A node may serve very many topics: each queue of RocketMQ is one. The first topics are
counted one by one and all others together, which bounds memory and messages.
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
    """Counts of one topic, or of several. They never decrease."""

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

    def ask(self, session: ReaderSession, run_index: tuple[int, int]) -> None:
        """Count a requested run, which the task would fetch itself without a cache."""
        run_slice = session.slices[run_index[0]]
        self.requests += 1
        self.reads += run_index[1] == run_slice.start or not session.is_in_order
        self.requested_bytes += run_slice.stored_bytes(run_index[1])

    def insert(self, size_bytes: int) -> None:
        """Count a run that is held from now on."""
        self.inserts += 1
        self.loaded_bytes += size_bytes

    def evict(self, size_bytes: int, runs: int = 1) -> None:
        """Count evicted runs, with their total size."""
        self.evictions += runs
        self.evicted_bytes += size_bytes

    def record(self, topic: str) -> TopicMetrics:
        """Return the counts, and what is held."""
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
    """The counts of all topics of a node.

    Args:
        most: How many topics are counted one by one.

    """

    def __init__(self, most: int = MOST_TOPICS) -> None:
        self._most = most
        self._topics: dict[str, TopicCount] = {}
        self._others = TopicCount()

    def __repr__(self) -> str:
        return f"TopicCounts({len(self._topics)} topics)"

    def set_group(self, topic: str, group: str) -> None:
        """Set the owner of a topic, if the task has sent one."""
        count = self.for_topic(topic)
        if group and count is not self._others:
            count.group = group

    def for_topic(self, topic: str) -> TopicCount:
        """Return the counts of a topic, to be incremented."""
        count = self._topics.get(topic)
        if count is not None:
            return count
        if len(self._topics) >= self._most:
            return self._others
        count = self._topics[topic] = TopicCount()
        return count

    def records(self) -> tuple[TopicMetrics, ...]:
        """Return the metrics of each topic, and of the others if there are any."""
        records = [count.record(topic) for topic, count in self._topics.items()]
        if self._others != TopicCount():
            records.append(self._others.record(""))
        return tuple(records)

    def totals(self) -> dict[str, int]:
        """Return the sums over all topics, by the names of `Metrics`."""
        counts = [*self._topics.values(), self._others]
        return {name: sum(getattr(count, name) for count in counts) for name in _TOTALS}
