"""Metrics of a node and its topics: records that can be added up.

This is where a metric is defined; tables, the UI and exporters read `METRICS`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from sparkcache.histogram import COUNTS, TIMES_S, Histogram
from sparkcache.metric_definition import (
    counter,
    definitions,
    derived,
    distribution,
    gauge,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Counters since the node started, and gauges of what it holds now.

    requests = hits + prefetch_hits + waits + misses, inserts = runs + all evictions,
    and saved_gets + gets = reads.

    A field or property is declared with all there is to know about the metric, and
    listed in `METRICS`.
    """

    requests: int = counter("cache.gets", "Runs that tasks asked for.")
    hits: int = counter("cache.gets.hit", "Requests served from memory at once.")
    prefetch_hits: int = counter(
        "cache.gets.prefetched",
        "Requests served from memory at once, where the run was loaded ahead of this "
        "very reader, which is the first to read it.",
    )
    waits: int = counter(
        "cache.gets.coalesced", "Requests for runs that were already being loaded."
    )
    misses: int = counter(
        "cache.gets.miss", "Requests for runs that were neither held nor being loaded."
    )
    streamed: int = counter(
        "cache.streamed", "Runs served without being held, for lack of room."
    )
    direct: int = counter(
        "cache.direct",
        "Runs that a task loaded itself, since they would not have been held and "
        "nobody else waited for them.",
    )
    served_bytes: int = counter("cache.served.bytes", "Size of all runs served.")
    reads: int = counter(
        "cache.reads",
        "GET requests that tasks would have made without a cache: one for each "
        "extent, and one for each jump within an extent.",
    )
    requested_bytes: int = counter(
        "cache.requested.bytes", "Stored size of the runs that tasks asked for."
    )
    home_requests: int = counter(
        "cache.gets.home", "Requests for runs that this executor is the home of."
    )
    away_requests: int = counter(
        "cache.gets.away", "Requests for runs that another executor is the home of."
    )
    away_bytes: int = counter(
        "cache.away.bytes",
        "Stored size of the runs that were loaded here for a task away from their "
        "home, and not kept.",
    )
    home_bytes: int = gauge(
        "cache.home.bytes",
        "Stored size of the extents that this executor is the home of, as far as its "
        "tasks have opened them; of very many, those opened last.",
    )
    loads: int = counter("cache.loads", "Loads started.")
    failures: int = counter("cache.load.failures", "Loads that failed.")
    gets: int = counter("storage.gets", "GET requests for content.")
    received_bytes: int = counter(
        "storage.received.bytes", "Bytes of content received from the storage."
    )
    retries: int = counter(
        "storage.retries", "Requests to the storage that were repeated."
    )
    lost_entries: int = counter(
        "cache.lost.entries", "Entries that could not be decoded, counted at each load."
    )
    inserts: int = counter("cache.puts", "Runs admitted.")
    loaded_bytes: int = counter("cache.puts.bytes", "Size of the runs admitted.")
    loaded_ahead: int = counter(
        "cache.prefetches", "Runs admitted before any reader waited for them."
    )
    wasted: int = counter(
        "cache.prefetches.wasted",
        "Runs loaded ahead and removed before any reader read them.",
    )
    wasted_bytes: int = counter(
        "cache.prefetches.wasted.bytes", "Size of the wasted runs."
    )
    evicted_by_size: int = counter("cache.evictions.size", "Runs evicted to make room.")
    evicted_by_ttl: int = counter(
        "cache.evictions.ttl", "Runs evicted after their time to live or maximum age."
    )
    evicted_by_last_read: int = counter(
        "cache.evictions.last.read", "Runs evicted after their last planned read."
    )
    evicted_by_plan_end: int = counter(
        "cache.evictions.plan.end",
        "Runs evicted because the plan that expected to read them ended.",
    )
    evicted_by_ring: int = counter(
        "cache.evictions.ring", "Runs overwritten by the engine `ring`."
    )
    evicted_explicitly: int = counter(
        "cache.evictions.explicit", "Runs evicted by an explicit command."
    )
    evicted_unread: int = counter(
        "cache.evictions.unread", "Runs evicted although reads were still expected."
    )
    requeued_by_ttl: int = counter(
        "cache.requeues.ttl", "Runs spared when their time to live was over."
    )
    requeued_by_size: int = counter(
        "cache.requeues.size", "Runs spared when room was needed."
    )
    not_admitted: int = counter(
        "cache.rejections",
        "Runs not admitted, for lack of room or because the runs held are read sooner.",
    )
    runs: int = gauge("cache.size", "Runs held now.")
    kept_bytes: int = gauge("cache.size.bytes", "Size of the runs held now.")
    held_bytes: int = gauge(
        "cache.held.bytes", "Shared memory that exists or is granted now."
    )
    peak_bytes: int = gauge(
        "cache.held.peak.bytes", "The maximum of `held_bytes` so far.", is_held=False
    )
    pinned_runs: int = gauge("cache.pinned", "Held runs that tasks map now.")
    pinned_bytes: int = gauge("cache.pinned.bytes", "Size of the pinned runs.")
    in_flight: int = gauge("cache.loads.active", "Loads in progress now.")
    in_flight_bytes: int = gauge(
        "cache.loads.active.bytes", "Shared memory granted to the loads in progress."
    )
    loaders: int = gauge("cache.loaders", "Loader processes now.")
    loader_bytes: int = gauge(
        "cache.loaders.bytes",
        "Memory of the loader processes beside shared memory and files. Memory that "
        "a loader shares with the node that forked it counts in full.",
    )
    load_s: Histogram = distribution(
        "cache.load.duration",
        "Time from the start of a load to its first run.",
        TIMES_S,
    )
    hit_s: Histogram = distribution(
        "cache.hit.duration", "Time the node took to serve a run that it held.", TIMES_S
    )
    evicted_age_s: Histogram = distribution(
        "cache.eviction.age", "How long evicted runs had been held.", TIMES_S
    )
    evicted_idle_s: Histogram = distribution(
        "cache.eviction.idle",
        "Time since evicted runs were last requested, or else inserted.",
        TIMES_S,
    )
    evicted_reads: Histogram = distribution(
        "cache.eviction.reads", "How often each evicted run was requested.", COUNTS
    )

    @property
    @derived("cache.hit.ratio")
    def hit_ratio(self) -> float:
        """Share of requests for runs that an earlier read had already loaded."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    @derived("cache.home.ratio")
    def home_ratio(self) -> float:
        """Share of requests for runs that have a home, at which they were made."""
        placed = self.home_requests + self.away_requests
        return self.home_requests / placed if placed else 0.0

    @property
    @derived("storage.gets.saved")
    def saved_gets(self) -> int:
        """GET requests avoided; negative if loading in parts needed more of them."""
        return self.reads - self.gets

    @property
    @derived("storage.saved.bytes")
    def saved_bytes(self) -> int:
        """Bytes not fetched; negative if more was fetched than was requested."""
        return self.requested_bytes - self.received_bytes

    @property
    @derived("cache.prefetches.unread", is_held=True)
    def prefetched_unread(self) -> int:
        """Runs held now that were loaded ahead and not requested yet."""
        return self.loaded_ahead - self.prefetch_hits - self.wasted

    @property
    def evictions(self) -> int:
        """Runs evicted, for any reason."""
        return (
            self.evicted_by_size
            + self.evicted_by_ttl
            + self.evicted_by_last_read
            + self.evicted_by_plan_end
            + self.evicted_by_ring
            + self.evicted_explicitly
        )

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics(
            **{
                spec.name: getattr(self, spec.name) + getattr(other, spec.name)
                for spec in fields(self)
            }
        )

    def __sub__(self, earlier: Metrics) -> Metrics:
        """Return the difference to earlier metrics, for counters and gauges alike."""
        return Metrics(
            **{
                spec.name: getattr(self, spec.name) - getattr(earlier, spec.name)
                for spec in fields(self)
            }
        )


METRICS = definitions(Metrics)
"""What is known of each metric, by its field or property."""


@dataclass(slots=True, kw_only=True)
class TopicMetrics:
    """The part of a node's metrics that one topic, or several together, cause.

    requests = hits + prefetch_hits + waits + misses, saved_gets + gets = reads, and
    the sum over all topics is the node's count. All other attributes are metrics of
    `Metrics`. A node counts in such records and hands out copies.

    Attributes:
        topic: The topic's qualified name; empty for topics that are counted together.
        group: The group it belongs to, such as tenant and namespace; empty if unknown.
        evictions: Runs evicted, for any reason.

    """

    topic: str = ""
    group: str = ""
    requests: int = 0
    hits: int = 0
    prefetch_hits: int = 0
    waits: int = 0
    misses: int = 0
    served_bytes: int = 0
    reads: int = 0
    requested_bytes: int = 0
    home_requests: int = 0
    away_requests: int = 0
    away_bytes: int = 0
    loads: int = 0
    gets: int = 0
    received_bytes: int = 0
    inserts: int = 0
    loaded_bytes: int = 0
    evictions: int = 0
    runs: int = 0
    kept_bytes: int = 0

    @property
    def saved_gets(self) -> int:
        """See `Metrics`."""
        return self.reads - self.gets

    @property
    def saved_bytes(self) -> int:
        """See `Metrics`."""
        return self.requested_bytes - self.received_bytes

    def by_name(self) -> dict[str, str | float]:
        """Return all attributes and what is derived from them."""
        saved = {"saved_gets": self.saved_gets, "saved_bytes": self.saved_bytes}
        return asdict(self) | saved

    def unnamed(self) -> TopicMetrics:
        """Return the same counts without topic and group, as part of a sum."""
        return replace(self, topic="", group="")

    def __add__(self, other: TopicMetrics) -> TopicMetrics:
        """Return the sum of both; names that differ become empty."""
        return TopicMetrics(
            topic=self.topic if self.topic == other.topic else "",
            group=self.group if self.group == other.group else "",
            **{
                spec.name: getattr(self, spec.name) + getattr(other, spec.name)
                for spec in fields(self)
                if spec.name not in ("topic", "group")
            },
        )


def by_topic(records: Iterable[TopicMetrics]) -> list[TopicMetrics]:
    """Add up the records of several nodes by topic; return them ordered by name."""
    return _added_up(records, lambda record: record.topic)


def by_group(records: Iterable[TopicMetrics]) -> list[TopicMetrics]:
    """Add up records by group of topics; return them ordered by name."""
    return _added_up(records, lambda record: record.group)


def _added_up(
    records: Iterable[TopicMetrics], name: Callable[[TopicMetrics], str]
) -> list[TopicMetrics]:
    sums: dict[str, TopicMetrics] = {}
    for record in records:
        earlier = sums.get(name(record))
        sums[name(record)] = record if earlier is None else earlier + record
    return [sums[key] for key in sorted(sums)]
