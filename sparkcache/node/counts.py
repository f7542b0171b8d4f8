"""Counters of a node, and the metrics made from them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sparkcache.metrics import Metrics
from sparkcache.node.home_extents import HomeExtents
from sparkcache.node.plan_progress import PlanProgress
from sparkcache.node.times import Times
from sparkcache.node.topic_counts import TopicCounts

if TYPE_CHECKING:
    from sparkcache.cache import CachedRun
    from sparkcache.node.load_scheduler import LoadScheduler
    from sparkcache.node.run_store import RunStore


class Counts:
    """Counts since the node started.

    Attributes:
        loads: Counts of loads, by the names of `Metrics`.
        topics: Counts of each topic.
        times: Durations of hits and of residency.
        progress: How far each plan has been read.
        homes: What the executor is home of.

    """

    def __init__(self) -> None:
        self.loads: Counter[str] = Counter()
        self.topics = TopicCounts()
        self.times = Times()
        self.progress = PlanProgress()
        self.homes = HomeExtents()

    def __repr__(self) -> str:
        return f"Counts({self.topics!r}, {self.times!r}, {self.progress!r})"

    def inserted(self, run: CachedRun[int]) -> None:
        """Count a run that is held from now on."""
        self.topics.insert(run.key.ledger.topic, run.size_bytes)
        self.loads["loaded_ahead"] += run.ahead

    def freed(self, run: CachedRun[int], now_s: float) -> None:
        """Count a run that is no longer held."""
        self.times.evicted(run, now_s)
        self.topics.evict(run.key.ledger.topic, run.size_bytes)

    def metrics(self, store: RunStore, loads: LoadScheduler) -> Metrics:
        """Return the metrics so far."""
        counts: dict[str, Any] = {
            **self.loads,
            **self.topics.totals(),
            **self.times.histograms(),
            **loads.metrics(),
            **store.metrics(),
            "home_bytes": self.homes.size_bytes,
        }
        return Metrics(**counts)

    def check(self, store: RunStore, loads: LoadScheduler) -> None:
        """Assert the identities. For tests."""
        self.homes.check()
        metrics, topics = self.metrics(store, loads), self.topics.records()
        served = metrics.hits + metrics.prefetch_hits
        assert metrics.requests == served + metrics.waits + metrics.misses
        assert metrics.inserts == metrics.runs + metrics.evictions
        assert metrics.evictions == metrics.evicted_age_s.count
        assert metrics.hit_s.count == served
        assert sum(topic.runs for topic in topics) == metrics.runs
        assert sum(topic.kept_bytes for topic in topics) == metrics.kept_bytes
        assert sum(topic.evictions for topic in topics) == metrics.evictions
