"""What a node has counted: frozen records, which can be added to others."""

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
    """Counters since the node began, and what it holds now.

    requests = hits + prefetch_hits + waits + misses, inserts = runs + all evictions,
    and saved_gets + gets = reads.

    Attributes:
        requests: Runs that tasks asked for.
        hits: Served from memory at once.
        prefetch_hits: The same, but loaded ahead of this very reader: it is the first.
        waits: Asked for while they were being loaded already.
        misses: Asked for when they were neither held nor being loaded.
        streamed: Served without being kept, for want of room.
        served_bytes: Size of all runs served.
        reads: GET requests that tasks would have made without a cache: one for each
            extent, and for each jump in it.
        requested_bytes: What the runs that tasks asked for take in the storage.
        loads: Loads begun.
        failures: Loads that failed.
        gets: GET requests for content.
        received_bytes: Bytes of content received from the storage.
        retries: Requests to the storage made again.
        lost_entries: Entries that could not be decoded, counted at each load.
        inserts: Runs taken in.
        loaded_bytes: Their size.
        loaded_ahead: Those among them that nobody waited for yet.
        wasted: Those among these that were removed before anybody read them.
        wasted_bytes: Their size.
        evicted_by_size: Runs evicted to make room.
        evicted_by_ttl: Runs that outlived their time.
        evicted_by_last_read: Runs let go of when their last planned reader had read.
        evicted_by_plan_end: Runs dropped because the plan that waited for them ended.
        evicted_by_ring: Runs overwritten, where the engine is the ring.
        evicted_explicitly: Runs dropped because somebody said so.
        not_admitted: Runs not taken in: for want of room, or others are read sooner.
        evicted_unread: Runs evicted although reads were still expected.
        requeued_by_ttl: Runs whose time was over, and that were spared.
        requeued_by_size: Runs that stood in the way of others, and were spared.
        runs: Runs held now.
        kept_bytes: Their size.
        held_bytes: Shared memory that exists now, or has been granted.
        peak_bytes: The most it ever was.
        pinned_runs: Runs among those held that tasks map now.
        pinned_bytes: Their size.
        in_flight: Loads under way now.
        in_flight_bytes: Shared memory granted to them.
        load_s: How long loads took from their beginning to their first run.
        hit_s: How long the node took to serve what it held.
        evicted_age_s: How long evicted runs had been held.
        evicted_idle_s: How long since they were last asked for, or inserted.
        evicted_reads: How often each was asked for.

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
        """Share of the requests that somebody before had paid for."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def saved_gets(self) -> int:
        """GET requests that were not made; negative if loading in parts cost more."""
        return self.reads - self.gets

    @property
    def saved_bytes(self) -> int:
        """Bytes that were not fetched, or if negative, fetched and not asked for."""
        return self.requested_bytes - self.received_bytes

    @property
    def prefetched_unread(self) -> int:
        """Runs held now that were loaded ahead, and that nobody asked for yet."""
        return self.loaded_ahead - self.prefetch_hits - self.wasted

    @property
    def evictions(self) -> int:
        """Runs let go of, for whatever reason."""
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
        """Return what was counted since; what is held now is a difference too."""
        return Metrics(
            **{
                spec.name: getattr(self, spec.name) - getattr(earlier, spec.name)
                for spec in fields(self)
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetrics:
    """What of the counts is a topic's share: of one, or of several together.

    requests = hits + prefetch_hits + waits + misses, saved_gets + gets = reads, and
    over all topics each count is the node's.
    Those that are not said here are as in `Metrics`.

    Attributes:
        topic: Its name and place; empty for the topics that are counted together.
        group: Whose it is, such as tenant and namespace; empty if nobody said so.
        evictions: Runs let go of, for whatever reason.

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
        """Return the same as of topics that are counted together."""
        return replace(self, topic="", group="")

    def __add__(self, other: TopicMetrics) -> TopicMetrics:
        """Return both together; a name that differs is dropped."""
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
    """Return one record for each topic, by name, from those of several nodes."""
    return _together(records, lambda record: record.topic)


def by_group(records: Iterable[TopicMetrics]) -> list[TopicMetrics]:
    """Return one record for each group of topics, by name."""
    return _together(records, lambda record: record.group)


def _together(
    records: Iterable[TopicMetrics], name: Callable[[TopicMetrics], str]
) -> list[TopicMetrics]:
    found: dict[str, TopicMetrics] = {}
    for record in records:
        before = found.get(name(record))
        found[name(record)] = record if before is None else before + record
    return [found[key] for key in sorted(found)]
