"""Metrics of a node and its topics: frozen records that can be added up."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from sparkcache.histogram import COUNTS, TIMES_S, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NO_TIMES = Histogram.empty(TIMES_S)
_NO_COUNTS = Histogram.empty(COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Counters since the node started, and gauges of what it holds now.

    requests = hits + prefetch_hits + waits + misses, inserts = runs + all evictions,
    and saved_gets + gets = reads.

    Attributes:
        requests: Runs that tasks asked for.
        hits: Requests served from memory at once.
        prefetch_hits: Requests served from memory at once, where the run was loaded
            ahead of this very reader, which is the first to read it.
        waits: Requests for runs that were already being loaded.
        misses: Requests for runs that were neither held nor being loaded.
        streamed: Runs served without being held, for lack of room.
        served_bytes: Size of all runs served.
        reads: GET requests that tasks would have made without a cache: one for each
            extent, and one for each jump within an extent.
        requested_bytes: Stored size of the runs that tasks asked for.
        loads: Loads started.
        failures: Loads that failed.
        gets: GET requests for content.
        received_bytes: Bytes of content received from the storage.
        retries: Requests to the storage that were repeated.
        lost_entries: Entries that could not be decoded, counted at each load.
        inserts: Runs admitted.
        loaded_bytes: Size of the runs admitted.
        loaded_ahead: Runs admitted before any reader waited for them.
        wasted: Runs loaded ahead and removed before any reader read them.
        wasted_bytes: Size of the wasted runs.
        evicted_by_size: Runs evicted to make room.
        evicted_by_ttl: Runs evicted after their time to live or maximum age.
        evicted_by_last_read: Runs evicted after their last planned read.
        evicted_by_plan_end: Runs evicted because the plan that expected to read them
            ended.
        evicted_by_ring: Runs overwritten by the engine `ring`.
        evicted_explicitly: Runs evicted by an explicit command.
        not_admitted: Runs not admitted, for lack of room or because the runs held are
            read sooner.
        evicted_unread: Runs evicted although reads were still expected.
        requeued_by_ttl: Runs spared when their time to live was over.
        requeued_by_size: Runs spared when room was needed.
        runs: Runs held now.
        kept_bytes: Size of the runs held now.
        held_bytes: Shared memory that exists or is granted now.
        peak_bytes: The maximum of `held_bytes` so far.
        pinned_runs: Held runs that tasks map now.
        pinned_bytes: Size of the pinned runs.
        in_flight: Loads in progress now.
        in_flight_bytes: Shared memory granted to the loads in progress.
        load_s: Time from the start of a load to its first run.
        hit_s: Time the node took to serve a run that it held.
        evicted_age_s: How long evicted runs had been held.
        evicted_idle_s: Time since evicted runs were last requested, or else inserted.
        evicted_reads: How often each evicted run was requested.

    """

    requests: int = 0
    hits: int = 0
    prefetch_hits: int = 0
    waits: int = 0
    misses: int = 0
    streamed: int = 0
    served_bytes: int = 0
    reads: int = 0
    requested_bytes: int = 0
    loads: int = 0
    failures: int = 0
    gets: int = 0
    received_bytes: int = 0
    retries: int = 0
    lost_entries: int = 0
    inserts: int = 0
    loaded_bytes: int = 0
    loaded_ahead: int = 0
    wasted: int = 0
    wasted_bytes: int = 0
    evicted_by_size: int = 0
    evicted_by_ttl: int = 0
    evicted_by_last_read: int = 0
    evicted_by_plan_end: int = 0
    evicted_by_ring: int = 0
    evicted_explicitly: int = 0
    not_admitted: int = 0
    evicted_unread: int = 0
    requeued_by_ttl: int = 0
    requeued_by_size: int = 0
    runs: int = 0
    kept_bytes: int = 0
    held_bytes: int = 0
    peak_bytes: int = 0
    pinned_runs: int = 0
    pinned_bytes: int = 0
    in_flight: int = 0
    in_flight_bytes: int = 0
    load_s: Histogram = _NO_TIMES
    hit_s: Histogram = _NO_TIMES
    evicted_age_s: Histogram = _NO_TIMES
    evicted_idle_s: Histogram = _NO_TIMES
    evicted_reads: Histogram = _NO_COUNTS

    @property
    def hit_ratio(self) -> float:
        """Share of requests for runs that an earlier read had already loaded."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def saved_gets(self) -> int:
        """GET requests avoided; negative if loading in parts needed more of them."""
        return self.reads - self.gets

    @property
    def saved_bytes(self) -> int:
        """Bytes not fetched; negative if more was fetched than was requested."""
        return self.requested_bytes - self.received_bytes

    @property
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetrics:
    """The part of a node's metrics that one topic, or several together, cause.

    requests = hits + prefetch_hits + waits + misses, saved_gets + gets = reads, and
    the sum over all topics is the node's count. All other attributes are as in
    `Metrics`.

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
