"""Metrics that the tab of Spark's UI plots over time."""

from __future__ import annotations

from sparkcache.metrics import METRICS

PLOTTED = tuple(
    METRICS[field].name
    for field in ("requests", "hits", "held_bytes", "saved_gets", "saved_bytes")
)
"""Their published names."""
