"""All that a node tells of itself, as JSON: for whoever has no Python at hand.

    {"node": "4711", "metrics": {"cache.gets": 12, ...}, "topics": [], "plans": []}

Metrics go by the names that they are published under; a histogram is several: how many
values, their mean, and bounds that half and all but 1 % of them are within.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from sparkcache.histogram import Histogram
from sparkcache.metric_names import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkcache.metrics import Metrics, TopicMetrics
    from sparkcache.node.plan_progress import PlanMetrics

MOST_TOPICS = 100


def encode(
    node: str,
    max_bytes: int,
    metrics: Metrics,
    topics: Sequence[TopicMetrics],
    plans: Iterable[PlanMetrics],
) -> bytes:
    """Return the JSON. Of many topics, those most served are told one by one."""
    told: dict[str, Any] = {
        "node": node,
        "metrics": published(metrics) | {"cache.limit.bytes": max_bytes},
        "topics": [
            asdict(topic)
            | {"saved_gets": topic.saved_gets, "saved_bytes": topic.saved_bytes}
            for topic in most_served(topics)
        ],
        "plans": [asdict(plan) for plan in plans],
    }
    return msgspec.json.encode(told)


def published(metrics: Metrics) -> dict[str, float]:
    """Return every number by the name that it is published under."""
    found: dict[str, float] = {}
    for field, name in NAMES.items():
        value = getattr(metrics, field)
        if isinstance(value, Histogram):
            found[f"{name}.count"] = value.count
            found[f"{name}.mean"] = value.mean
            found[f"{name}.p50"] = value.quantile(0.5)
            found[f"{name}.p99"] = value.quantile(0.99)
        else:
            found[name] = value
    return found


def most_served(topics: Sequence[TopicMetrics]) -> list[TopicMetrics]:
    """Return so many topics, and the others together."""
    order = sorted(topics, key=lambda topic: (not topic.topic, -topic.served_bytes))
    told, others = order[:MOST_TOPICS], order[MOST_TOPICS:]
    if others:
        rest = others.pop()
        for topic in others:
            rest += topic
        told.append(rest.unnamed())
    return told
