"""What has happened in a cache."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counts since the cache was made. They only grow.

    Attributes:
        inserted: Runs taken in.
        refused: Reservations for which there was no room.
        declined: Reservations for which nothing that is read sooner would go.
        expired: Runs removed because their time was over.
        evicted: Runs removed to make room.
        rotated: Runs removed with their segment, in a ring.
        invalidated: Runs removed because the caller said so.
        read_out: Runs removed with their last planned read.
        called_off: Runs removed because the plan that waited for them ended.
        given_up: Runs among the expired, evicted and rotated that had reads to come.
        wasted: Runs loaded ahead that were removed, whatever for, before anybody looked
            them up.
        wasted_bytes: Their size.
        requeued_expired: Runs whose time was over, and that were spared.
        requeued_evicted: Runs that stood in the way of others, and were spared.
        looked_at: Runs that passes looked at: their work.

    """

    inserted: int = 0
    refused: int = 0
    declined: int = 0
    expired: int = 0
    evicted: int = 0
    rotated: int = 0
    invalidated: int = 0
    read_out: int = 0
    called_off: int = 0
    given_up: int = 0
    wasted: int = 0
    wasted_bytes: int = 0
    requeued_expired: int = 0
    requeued_evicted: int = 0
    looked_at: int = 0
