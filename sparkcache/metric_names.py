"""Published names of metrics; those of Micrometer where it has one.

They are used in Spark's metrics system, in OpenTelemetry and in Grafana. Counters only
grow, gauges go up and down, and histograms are distributions. The suffix of a field's
name is its unit.
"""

from __future__ import annotations

NAMES = {
    "requests": "cache.gets",
    "hits": "cache.gets.hit",
    "prefetch_hits": "cache.gets.prefetched",
    "waits": "cache.gets.coalesced",
    "misses": "cache.gets.miss",
    "streamed": "cache.streamed",
    "served_bytes": "cache.served.bytes",
    "reads": "cache.reads",
    "requested_bytes": "cache.requested.bytes",
    "loads": "cache.loads",
    "failures": "cache.load.failures",
    "gets": "storage.gets",
    "received_bytes": "storage.received.bytes",
    "retries": "storage.retries",
    "lost_entries": "cache.lost.entries",
    "inserts": "cache.puts",
    "loaded_bytes": "cache.puts.bytes",
    "loaded_ahead": "cache.prefetches",
    "wasted": "cache.prefetches.wasted",
    "wasted_bytes": "cache.prefetches.wasted.bytes",
    "evicted_by_size": "cache.evictions.size",
    "evicted_by_ttl": "cache.evictions.ttl",
    "evicted_by_last_read": "cache.evictions.last.read",
    "evicted_by_plan_end": "cache.evictions.plan.end",
    "evicted_by_ring": "cache.evictions.ring",
    "evicted_explicitly": "cache.evictions.explicit",
    "evicted_unread": "cache.evictions.unread",
    "requeued_by_ttl": "cache.requeues.ttl",
    "requeued_by_size": "cache.requeues.size",
    "not_admitted": "cache.rejections",
    "runs": "cache.size",
    "kept_bytes": "cache.size.bytes",
    "held_bytes": "cache.held.bytes",
    "peak_bytes": "cache.held.peak.bytes",
    "pinned_runs": "cache.pinned",
    "pinned_bytes": "cache.pinned.bytes",
    "in_flight": "cache.loads.active",
    "in_flight_bytes": "cache.loads.active.bytes",
    "load_s": "cache.load.duration",
    "hit_s": "cache.hit.duration",
    "evicted_age_s": "cache.eviction.age",
    "evicted_idle_s": "cache.eviction.idle",
    "evicted_reads": "cache.eviction.reads",
    "hit_ratio": "cache.hit.ratio",
    "saved_gets": "storage.gets.saved",
    "saved_bytes": "storage.saved.bytes",
    "prefetched_unread": "cache.prefetches.unread",
}
"""The published name of each field and property of `Metrics`."""

GAUGES = frozenset(
    {
        "runs",
        "kept_bytes",
        "held_bytes",
        "peak_bytes",
        "pinned_runs",
        "pinned_bytes",
        "in_flight",
        "in_flight_bytes",
        "hit_ratio",
        "saved_gets",
        "saved_bytes",
        "prefetched_unread",
    }
)
HISTOGRAMS = frozenset(
    {"load_s", "hit_s", "evicted_age_s", "evicted_idle_s", "evicted_reads"}
)


def unit(field: str) -> str:
    """Return the unit of a metric in UCUM notation; `1` for plain numbers."""
    if field.endswith("_bytes"):
        return "By"
    return "s" if field.endswith("_s") else "1"
