"""The node's metrics, topics, plans and losses as JSON, for clients without Python.

    {"node": "4711", "metrics": {"cache.gets": 12, ...}, "topics": [], "plans": [],
     "losses": []}

Metrics have their published names. A histogram becomes several numbers: how many values
it has, their mean, the median, and the 99th percentile.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from sparkcache.histogram import Histogram
from sparkcache.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkcache.metrics import Metrics, TopicMetrics
    from sparkcache.node.plan_progress import PlanMetrics
    from sparkcache.reported_loss import ReportedLoss

LIMIT = "cache.limit.bytes"
"""The published name of the node's `maxBytes`, which stands beside its metrics."""

MAX_TOPICS = 100
MAX_LOSSES = 100


def encode(
    node: str,
    max_bytes: int,
    metrics: Metrics,
    topics: Sequence[TopicMetrics],
    plans: Iterable[PlanMetrics],
    losses: Sequence[ReportedLoss],
) -> bytes:
    """Return the JSON; of many topics and losses, the most served and the last."""
    record: dict[str, Any] = {
        "node": node,
        "metrics": published(metrics) | {LIMIT: max_bytes},
        "topics": [topic.by_name() for topic in most_served(topics)],
        "plans": [asdict(plan) for plan in plans],
        "losses": [_loss(reported) for reported in losses[-MAX_LOSSES:]],
    }
    return msgspec.json.encode(record)


def _loss(reported: ReportedLoss) -> dict[str, str | float | None]:
    loss = reported.loss
    return {
        "topic": reported.topic,
        "object": loss.uri,
        "entries": loss.entries,
        "rows": loss.rows,
        "reason": loss.reason,
        "time_ms": 1000 * reported.time_s,
    }


def published(metrics: Metrics) -> dict[str, float]:
    """Return every number under its published name."""
    numbers: dict[str, float] = {}
    for field, metric in METRICS.items():
        name, value = metric.name, getattr(metrics, field)
        if isinstance(value, Histogram):
            numbers[f"{name}.count"] = value.count
            numbers[f"{name}.mean"] = value.mean
            numbers[f"{name}.p50"] = value.quantile(0.5)
            numbers[f"{name}.p99"] = value.quantile(0.99)
        else:
            numbers[name] = value
    return numbers


def most_served(topics: Sequence[TopicMetrics]) -> list[TopicMetrics]:
    """Return the most served topics, and one sum of all others."""
    ordered = sorted(topics, key=lambda topic: (not topic.topic, -topic.served_bytes))
    listed, others = ordered[:MAX_TOPICS], ordered[MAX_TOPICS:]
    if others:
        rest = others.pop()
        for topic in others:
            rest += topic
        listed.append(rest.unnamed())
    return listed
