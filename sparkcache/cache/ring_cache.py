"""The ring engine: the runs of one node in segments, with no state per topic.

Runs are evicted in the order of insertion, a whole segment at a time, regardless of
topic and reader. So the engine maintains one look-up table and no order: no queue, no
deadlines, no forecast. Plans are used where that costs nothing: the last planned read
removes a run, and a segment that has lost all its runs in this way is written next.

Times to live are ignored, except for the maximum age, if there is one. Like `RunCache`,
`RingCache` is an `Engine`.

Source: Apache Pulsar PIP-174. Different here: memory is reserved before a run exists;
inserting a run that is kept already costs nothing; it is known how much of each topic
is kept.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeVar

from sparkcache.cache.cached_run import (
    Bundle,
    CachedRun,
    Residency,
    require_reads,
)
from sparkcache.cache.copied_segments import CopiedSegments
from sparkcache.cache.counters import Counters
from sparkcache.cache.engine import Engine
from sparkcache.cache.listed_segments import ListedSegments
from sparkcache.cache.memory_accounting import MemoryAccounting

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sparkcache.cache.settings import Settings
    from sparkcache.model import RunKey, Slot

V = TypeVar("V")


class RingCache(Engine[V]):
    """Runs by key, in segments that are evicted one after the other.

    Args:
        settings: The limits; `settings.ring` describes the segments.
        counters: The counters to use; None for new ones.

    Attributes:
        counters: The events so far.
        accounting: The memory that is held.

    """

    def __init__(self, settings: Settings, counters: Counters | None = None) -> None:
        assert settings.ring is not None, "settings of a ring"
        self.counters = Counters() if counters is None else counters
        self._settings = settings
        self._runs: dict[RunKey, CachedRun[V]] = {}
        self.accounting = MemoryAccounting()
        self._segments: CopiedSegments[V] | ListedSegments[V] = (
            CopiedSegments(settings)
            if settings.ring.copies
            else ListedSegments(settings, self.accounting)
        )
        self._ceiling_bytes = settings.max_bytes

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return (
            f"<RingCache of {len(self)} runs: {self.held_bytes} of "
            f"{self._settings.max_bytes} bytes held, {self.kept_bytes} kept>"
        )

    @property
    def settings(self) -> Settings:
        """The limits in force."""
        return self._settings

    @property
    def segments(self) -> Collection[int]:
        """Numbers of the segments whose memory is in use."""
        return self._segments.numbers

    @property
    def held_bytes(self) -> int:
        """Bytes that count towards the limit."""
        return self._segments.held_bytes

    def get(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run to read it, which counts as an access."""
        run = self.peek(key, now_s)
        if run is not None:
            run.unread = run.ahead = False
            run.lookups += 1
            run.looked_up_s = now_s
        return run

    def peek(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run without any effect."""
        run = self._runs.get(key)
        return None if run is None or self._is_overdue(run, now_s) else run

    def keys_of(self, topics: Collection[str]) -> list[RunKey]:
        """Return the keys of the runs of some topics, found by scanning all runs."""
        return [key for key in self._runs if key.ledger.topic in topics]

    def runs(self) -> list[CachedRun[V]]:
        """List the kept runs, the next to be evicted first."""
        return list(self._segments.runs())

    def readers_moved(self, topic: str) -> None:
        """Note that the forecast of a topic has changed; a ring ignores it."""

    def reserve(
        self, size_bytes: int, now_s: float, key: RunKey | None = None
    ) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Reserve memory for a run about to be created; evict the oldest runs for it.

        Returns the slot, if any, and the evicted runs. A run that is larger than a
        segment is refused and evicts nothing.
        """
        slot, evicted = self._segments.reserve(size_bytes)
        self._evict(evicted)
        if slot is None:
            self.counters.refused += 1
        else:
            self.accounting.reserve(slot.size_bytes)
        return slot, evicted

    def would_admit(self, key: RunKey, size_bytes: int) -> bool:
        """Return whether a run fits in a segment: older runs always make room."""
        ring = self._settings.ring
        return ring is not None and size_bytes <= ring.segment_bytes

    def has_spare(self, size_bytes: int) -> bool:
        """Return whether a run fits without evicting any run."""
        return self._segments.has_spare(size_bytes)

    def unreserve(self, slot: Slot) -> None:
        """Return a reservation that is not used."""
        self._segments.unreserve(slot)
        self.accounting.unreserve(slot.size_bytes)

    def bundle(self, slot: Slot, sizes: Sequence[int]) -> Bundle:
        """Raise ValueError: a ring has segments instead."""
        raise ValueError(f"no bundle of {len(sizes)} runs in {slot} of a ring")

    def insert(
        self,
        key: RunKey,
        value: V,
        *,
        slot: Slot,
        expected_reads: int,
        now_s: float,
        ahead: bool = False,
        bundle: Bundle | None = None,
    ) -> CachedRun[V] | None:
        """Keep a run in its reserved slot.

        Returns None if the run is kept already. The kept run then stays in its slot,
        its age restarts, the reservation is returned, and the caller must free `value`.
        """
        require_reads(expected_reads)
        old = self._runs.get(key)
        if old is not None:
            self.unreserve(slot)
            old.expected_reads = expected_reads
            old.inserted_s = now_s
            return None
        run = CachedRun(
            key,
            value,
            slot,
            expected_reads,
            unread=ahead,
            ahead=ahead,
            prefetched=ahead,
            inserted_s=now_s,
        )
        self.accounting.keep(run)
        self._segments.keep(run)
        self._runs[key] = run
        self.counters.inserted += 1
        return run

    def abandon(self, run: CachedRun[V]) -> None:
        """Note that the reader that a kept run was prefetched for is not coming."""
        run.ahead = False

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps the run."""
        self.accounting.pin(run)
        self._segments.pin(run)

    def unpin(self, run: CachedRun[V]) -> bool:
        """Note that a reader unmapped the run; return whether its bytes are freed."""
        is_gone = self.accounting.unpin(run)
        self._segments.unpin(run)
        return is_gone

    def mark_read(self, key: RunKey, now_s: float) -> int | None:
        """Note that a planned read is done; return how many remain.

        Returns None if the run is not held. Reads beyond the expected ones leave 0.
        """
        run = self.peek(key, now_s)
        if run is None:
            return None
        run.expected_reads = max(run.expected_reads - 1, 0)
        return run.expected_reads

    def set_expected(self, key: RunKey, expected_reads: int, now_s: float) -> bool:
        """Set how many reads are to come; return whether the run is held."""
        require_reads(expected_reads)
        run = self.peek(key, now_s)
        if run is None:
            return False
        run.expected_reads = expected_reads
        return True

    def expire(
        self, now_s: float, most_runs: float = inf, most_bytes: float = inf
    ) -> list[CachedRun[V]]:
        """Evict runs that a lowered limit could not evict at once."""
        return self._evict(self._segments.shrink())

    def expire_run(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Remove a run past the maximum age; return None if missing or younger."""
        run = self._runs.get(key)
        if run is None or not self._is_overdue(run, now_s):
            return None
        self._remove([run])
        self.counters.evicted_by_ttl += 1
        return run

    def next_deadline_s(self) -> float | None:
        """Return None: a ring never has runs to expire by time."""
        return None

    def has_overdue(self, now_s: float) -> bool:
        """Return False: a ring never has overdue work."""
        return False

    def remove(self, key: RunKey) -> CachedRun[V] | None:
        """Remove a run even if reads are expected; return None if it is missing."""
        run = self._runs.get(key)
        if run is not None:
            self._invalidate([run])
        return run

    def invalidate_topic(self, topic: str) -> list[CachedRun[V]]:
        """Remove all runs of all ledgers of a topic."""
        return self._invalidate([r for r in self.runs() if r.key.ledger.topic == topic])

    def clear(self) -> list[CachedRun[V]]:
        """Remove all runs. Reservations stay, since their loads are running."""
        return self._invalidate(self.runs())

    def configure(self, settings: Settings, now_s: float) -> list[CachedRun[V]]:
        """Change the limits; return the runs that no longer fit.

        Reserved, lent and pinned runs may exceed a lowered limit until they are
        released.
        """
        overdue = [run for run in self.runs() if self._is_overdue(run, now_s)]
        self._remove(overdue)
        self.counters.evicted_by_ttl += len(overdue)
        self._settings = settings
        evicted = self._evict(self._segments.configure(settings))
        self._ceiling_bytes = max(settings.max_bytes, self.held_bytes)
        return overdue + evicted

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        self.accounting.check()
        self._segments.check()
        listed = self.runs()
        assert len(listed) == len(set(listed)) == len(self._runs)
        assert all(self._runs[run.key] is run for run in listed)
        assert all(run.residency is Residency.KEPT for run in listed)
        assert all(run.expected_reads >= 0 and run.pins >= 0 for run in listed)
        assert self.kept_bytes == sum(run.size_bytes for run in listed)
        assert self.accounting.held.bytes <= self.held_bytes <= self._ceiling_bytes

    def _is_overdue(self, run: CachedRun[V], now_s: float) -> bool:
        return now_s >= run.inserted_s + self._settings.ttl.max_life_s

    def _evict(self, runs: list[CachedRun[V]]) -> list[CachedRun[V]]:
        """Forget the runs that the segments have evicted."""
        for run in runs:
            self._forget(run)
        self.counters.evicted_by_ring += len(runs)
        self.counters.evicted_unread += sum(run.expected_reads > 0 for run in runs)
        return runs

    def _remove(self, runs: list[CachedRun[V]]) -> None:
        for run in runs:
            self._segments.drop(run)
            self._forget(run)

    def _invalidate(self, runs: list[CachedRun[V]]) -> list[CachedRun[V]]:
        self._remove(runs)
        self.counters.invalidated += len(runs)
        return runs

    def _forget(self, run: CachedRun[V]) -> None:
        """Forget a run that is no longer in a segment."""
        self.accounting.drop(run)
        del self._runs[run.key]
        if run.unread:
            self.counters.wasted += 1
            self.counters.wasted_bytes += run.size_bytes
