"""The policies that users could have instead.

General ones are libCacheSim's. LRC and MRD are for Spark's DAGs; here each planned scan
is a job that refers to the runs of its range, until it has read them:

    LRC     evicts the run with the fewest references left
    MRD     evicts the run whose next reference is farthest, in jobs, in the order in
            which they were planned

Both take in every run, and among equals evict the one that was not read for longest.

Source: Y. Yu et al., LRC: Dependency-aware cache management for data analytics
clusters, 2017. T. B. G. Perez et al., Reference-distance eviction and prefetching for
cache management in Spark, 2018.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING, Any

import libcachesim

from sparkcache.trace import Begin, Open, Put, Take

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache.demand import Consumer
    from sparkcache.model import RunKey
    from sparkcache.trace import Event, Trace

GENERAL: dict[str, Callable[..., Any]] = {
    "FIFO": libcachesim.FIFO,
    "LRU": libcachesim.LRU,
    "ARC": libcachesim.ARC,
    "S3-FIFO": libcachesim.S3FIFO,
    "SIEVE": libcachesim.Sieve,
    "W-TinyLFU": libcachesim.WTinyLFU,
}


def general(trace: Trace, policy: str, max_bytes: int) -> int:
    """Return the bytes that one of libCacheSim's policies reads from the storage."""
    cache = GENERAL[policy](cache_size=max_bytes, hashpower=16)
    request = libcachesim.Request()
    numbers = {key: number for number, key in enumerate(trace.runs)}
    loaded_bytes = 0
    for _, event in trace.events:
        if isinstance(event, Take | Put):
            request.obj_id = numbers[event.key]
            request.obj_size = trace.size_bytes(event.key)
            if not cache.get(request) and isinstance(event, Take):
                loaded_bytes += trace.runs[event.key].stored_bytes
    return loaded_bytes


class Jobs:
    """Who has still to read a run: the jobs by number, in the order planned."""

    def __init__(self) -> None:
        self._planned: list[Consumer] = []
        self._job_of_scan: dict[tuple[int, str], int] = {}
        self._job_of_task: dict[int, int | None] = {}
        self._left: dict[RunKey, list[int]] = {}

    def happen(self, event: Event) -> None:
        """Follow what jobs do."""
        match event:
            case Begin(plan):
                self._planned += plan.consumers
            case Open():
                self._job_of_task[event.task] = self._job(event)
            case Take(task, key):
                job = self._job_of_task[task]
                left = self.left(key)
                if job in left:
                    left.remove(job)

    def left(self, key: RunKey) -> list[int]:
        """Return the jobs that have still to read a run, the first one first."""
        left = self._left.get(key)
        if left is None:
            left = self._left[key] = [
                number for number, job in enumerate(self._planned) if job.reads(key)
            ]
        return left

    def _job(self, event: Open) -> int | None:
        if not event.plan_ids:
            return None
        scan = (event.reader.token.stage, event.reader.scan)
        if scan not in self._job_of_scan:
            taken = set(self._job_of_scan.values())
            self._job_of_scan[scan] = next(
                number
                for number, job in enumerate(self._planned)
                if job == event.reader.consumer and number not in taken
            )
        return self._job_of_scan[scan]


def fewest_references(left: list[int]) -> float:
    """LRC: the fewer, the sooner it goes."""
    return len(left)


def farthest_reference(left: list[int]) -> float:
    """MRD: the later its next job, the sooner it goes."""
    return -left[0] if left else -inf


def dag_aware(trace: Trace, max_bytes: int, worth: Callable[[list[int]], float]) -> int:
    """Return the bytes that LRC or MRD reads from the storage."""
    jobs = Jobs()
    by_worth: dict[float, OrderedDict[RunKey, None]] = {}
    held: dict[RunKey, float] = {}
    held_bytes = loaded_bytes = 0
    for _, event in trace.events:
        jobs.happen(event)
        if not isinstance(event, Take | Put):
            continue
        key, size_bytes = event.key, trace.size_bytes(event.key)
        if key in held:
            _drop(by_worth, held, key)
            held_bytes -= size_bytes
        elif isinstance(event, Take):
            loaded_bytes += trace.runs[key].stored_bytes
        while held and held_bytes + size_bytes > max_bytes:
            least = next(iter(by_worth[min(by_worth)]))
            _drop(by_worth, held, least)
            held_bytes -= trace.size_bytes(least)
        if held_bytes + size_bytes <= max_bytes:
            held[key] = worth(jobs.left(key))
            by_worth.setdefault(held[key], OrderedDict())[key] = None
            held_bytes += size_bytes
    return loaded_bytes


def _drop(
    by_worth: dict[float, OrderedDict[RunKey, None]],
    held: dict[RunKey, float],
    key: RunKey,
) -> None:
    value = held.pop(key)
    del by_worth[value][key]
    if not by_worth[value]:
        del by_worth[value]
