"""Counters of the events in a cache."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counts since the cache was created. They only grow.

    Those that are not listed here are the metrics of the same names: see `Metrics`.

    Attributes:
        inserted: Runs inserted.
        refused: Reservations denied because the run could not fit.
        declined: Reservations denied because only runs read sooner could be evicted.
        invalidated: Runs removed at the request of the caller, which says why.
        examined: Runs examined by passes, a measure of their work.

    """

    inserted: int = 0
    refused: int = 0
    declined: int = 0
    invalidated: int = 0
    examined: int = 0
    evicted_by_size: int = 0
    evicted_by_ttl: int = 0
    evicted_by_last_read: int = 0
    evicted_by_plan_end: int = 0
    evicted_by_ring: int = 0
    evicted_unread: int = 0
    requeued_by_ttl: int = 0
    requeued_by_size: int = 0
    wasted: int = 0
    wasted_bytes: int = 0
