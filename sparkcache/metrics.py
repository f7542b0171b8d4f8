"""What a node has counted: frozen records, which can be added to others."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Counters since the node began, and what it holds now.

    requests = hits + waits + misses.

    Attributes:
        requests: Runs that tasks asked for.
        hits: Served from memory at once.
        waits: Asked for while they were being loaded already.
        misses: Asked for when they were neither held nor being loaded.
        streamed: Served without being kept, for want of room.
        served_bytes: Size of all runs served.
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
        not_admitted: Runs not taken in: for want of room, or others are read sooner.
        evicted_unread: Runs evicted although reads were still expected.
        requeues: Runs queued again instead of being evicted.
        runs: Runs held now.
        kept_bytes: Their size.
        held_bytes: Shared memory that exists now, or has been granted.
        peak_bytes: The most it ever was.

    """

    requests: int = 0
    hits: int = 0
    waits: int = 0
    misses: int = 0
    streamed: int = 0
    served_bytes: int = 0
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
    not_admitted: int = 0
    evicted_unread: int = 0
    requeues: int = 0
    runs: int = 0
    kept_bytes: int = 0
    held_bytes: int = 0
    peak_bytes: int = 0

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

    requests = hits + waits + misses, and over all topics each count is the node's.
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
    waits: int = 0
    misses: int = 0
    served_bytes: int = 0
    loads: int = 0
    gets: int = 0
    received_bytes: int = 0
    inserts: int = 0
    loaded_bytes: int = 0
    evictions: int = 0
    runs: int = 0
    kept_bytes: int = 0

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
