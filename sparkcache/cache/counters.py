"""Counters of the events in a cache."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counts since the cache was created. They only grow.

    Attributes:
        inserted: Runs inserted.
        refused: Reservations denied because the run could not fit.
        declined: Reservations denied because only runs read sooner could be evicted.
        expired: Runs removed because their time to live or maximum age was over.
        evicted: Runs removed to make room.
        rotated: Runs removed with their segment, in a ring.
        invalidated: Runs removed at the request of the caller.
        removed_by_last_read: Runs removed with their last planned read.
        removed_by_plan_end: Runs removed because the plan that expected to read them
            ended.
        removed_expected: Expired, evicted and rotated runs that had reads to come.
        wasted: Prefetched runs removed, for any reason, before they were looked up.
        wasted_bytes: Size of the wasted runs.
        requeued_expired: Runs spared although their time to live was over.
        requeued_evicted: Runs spared by a pass that made room.
        looked_at: Runs examined by passes, a measure of their work.

    """

    inserted: int = 0
    refused: int = 0
    declined: int = 0
    expired: int = 0
    evicted: int = 0
    rotated: int = 0
    invalidated: int = 0
    removed_by_last_read: int = 0
    removed_by_plan_end: int = 0
    removed_expected: int = 0
    wasted: int = 0
    wasted_bytes: int = 0
    requeued_expired: int = 0
    requeued_evicted: int = 0
    looked_at: int = 0
