"""Counters of a node, and the metrics made from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sparkcache.cache import Counters
from sparkcache.metrics import METRICS, Metrics
from sparkcache.node.plan_progress import PlanProgress
from sparkcache.node.times import Times
from sparkcache.node.topic_counts import TopicCounts

if TYPE_CHECKING:
    from sparkcache.node.load_scheduler import LoadScheduler
    from sparkcache.node.run_store import RunStore

_OF_CORE = [spec.name for spec in fields(Counters) if spec.name in METRICS]


class Counts:
    """Counts since the node started.

    Attributes:
        loads: Counts of loads, by the names of `Metrics`.
        topics: Counts of each topic.
        times: Durations of hits and of residency.
        progress: How far each plan has been read.

    """

    def __init__(self) -> None:
        self.loads: Counter[str] = Counter()
        self.topics = TopicCounts()
        self.times = Times()
        self.progress = PlanProgress()

    def __repr__(self) -> str:
        return f"Counts({self.topics!r}, {self.times!r}, {self.progress!r})"

    def metrics(self, store: RunStore, loads: LoadScheduler) -> Metrics:
        """Return the metrics so far."""
        runs = store.runs
        core, accounting = runs.counters, runs.accounting
        counts: dict[str, Any] = {
            **self.loads,
            **self.topics.totals(),
            **self.times.histograms(),
            **{name: getattr(core, name) for name in _OF_CORE},
        }
        return Metrics(
            **counts,
            load_s=loads.load_s.histogram(),
            evicted_explicitly=core.invalidated
            - core.evicted_by_last_read
            - core.evicted_by_plan_end,
            runs=len(runs),
            kept_bytes=runs.kept_bytes,
            held_bytes=runs.held_bytes,
            peak_bytes=store.peak_bytes,
            pinned_runs=accounting.pinned.runs,
            pinned_bytes=accounting.pinned.bytes,
            in_flight=len(loads),
            in_flight_bytes=accounting.reserved.bytes,
        )

    def check(self, store: RunStore, loads: LoadScheduler) -> None:
        """Assert the identities. For tests."""
        metrics, topics = self.metrics(store, loads), self.topics.records()
        served = metrics.hits + metrics.prefetch_hits
        assert metrics.requests == served + metrics.waits + metrics.misses
        assert metrics.inserts == metrics.runs + metrics.evictions
        assert metrics.evictions == metrics.evicted_age_s.count
        assert metrics.hit_s.count == served
        assert sum(topic.runs for topic in topics) == metrics.runs
        assert sum(topic.kept_bytes for topic in topics) == metrics.kept_bytes
        assert sum(topic.evictions for topic in topics) == metrics.evictions
