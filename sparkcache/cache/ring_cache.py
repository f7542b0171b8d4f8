"""The runs of one node in a ring: the second engine, which does nothing by topic.

Runs go in the order in which they came, a whole segment at a time, whatever they are
and whoever reads them. So there is one look-up table and nothing else to keep in order:
no queue, no deadlines, no forecast. What a plan says is used where it costs nothing: a
run goes with its last planned read, and a segment that has lost all its runs so is
written next.

How long a run lives is not asked, except for its whole life where that has a cap. It
is an `Engine`, as `RunCache` is.

Source: Apache Pulsar PIP-174. Different here: room is made before a run exists; a run
that is here already costs nothing; it is known how much of each topic is here.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeVar

from sparkcache.cache.cached_run import CachedRun, Residency, require_reads
from sparkcache.cache.copied_segments import CopiedSegments
from sparkcache.cache.counters import Counters
from sparkcache.cache.engine import Engine
from sparkcache.cache.listed_segments import ListedSegments
from sparkcache.cache.memory_accounting import MemoryAccounting

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkcache.cache.settings import Settings
    from sparkcache.model import Ledger, RunKey, Slot

V = TypeVar("V")


class RingCache(Engine[V]):
    """Runs by key, in segments that are given up one after the other.

    Args:
        settings: The limits; `settings.ring` says what the segments are like.
        counters: What to count in.

    Attributes:
        counters: What has happened so far.
        holdings: What is held.

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
        """What counts towards the limit."""
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
        return None if run is None or self._is_dead(run, now_s) else run

    def keys_of(self, topics: Collection[str]) -> list[RunKey]:
        """The runs here of some topics, found by looking at all; no effect."""
        return [key for key in self._runs if key.ledger.topic in topics]

    def runs(self) -> list[CachedRun[V]]:
        """List the runs kept, the next to go first."""
        return list(self._segments.runs())

    def readers_moved(self, topic: str) -> None:
        """Note that what is foreseen of a topic has changed, which is all the same."""

    def reserve(
        self, size_bytes: int, now_s: float, key: RunKey | None = None
    ) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Make room for a run that is about to be created, at the cost of the oldest.

        Returns the room, if there is any, and what was evicted for it. A run that is
        larger than a segment is refused and evicts nothing.
        """
        slot, evicted = self._segments.reserve(size_bytes)
        self._evict(evicted)
        if slot is None:
            self.counters.refused += 1
        else:
            self.accounting.reserve(slot.size_bytes)
        return slot, evicted

    def has_spare(self, size_bytes: int) -> bool:
        """Whether a run fits and nothing has to go for it."""
        return self._segments.has_spare(size_bytes)

    def unreserve(self, slot: Slot) -> None:
        """Give back a reservation that comes to nothing."""
        self._segments.unreserve(slot)
        self.accounting.unreserve(slot.size_bytes)

    def insert(
        self,
        key: RunKey,
        value: V,
        *,
        slot: Slot,
        expected_reads: int,
        now_s: float,
        ahead: bool = False,
    ) -> CachedRun[V] | None:
        """Keep a run in the room that was made for it.

        None if the run is here already. That one stays where it is, its life begins
        anew, the reservation is given back, and `value` is the caller's to free.
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
        """Note that nobody comes any more to a kept run that was loaded ahead."""
        run.ahead = False

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps the run."""
        self.accounting.pin(run)
        self._segments.pin(run)

    def unpin(self, run: CachedRun[V]) -> bool:
        """Note that a reader let go; returns whether the run's bytes went with it."""
        is_gone = self.accounting.unpin(run)
        self._segments.unpin(run)
        return is_gone

    def mark_read(self, key: RunKey, now_s: float) -> int | None:
        """Note that a planned read is done; returns how many are left.

        None if the run is not held. Reads beyond the expected ones leave it at 0.
        """
        run = self.peek(key, now_s)
        if run is None:
            return None
        run.expected_reads = max(run.expected_reads - 1, 0)
        return run.expected_reads

    def set_expected(self, key: RunKey, expected_reads: int, now_s: float) -> bool:
        """Say anew how many reads are to come; returns whether the run is held."""
        require_reads(expected_reads)
        run = self.peek(key, now_s)
        if run is None:
            return False
        run.expected_reads = expected_reads
        return True

    def expire(
        self, now_s: float, most_runs: float = inf, most_bytes: float = inf
    ) -> list[CachedRun[V]]:
        """Free what a lowered limit could not free at once."""
        return self._evict(self._segments.shrink())

    def expire_run(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Remove a run whose life is over; None if it is not here, or lives."""
        run = self._runs.get(key)
        if run is None or not self._is_dead(run, now_s):
            return None
        self._remove([run])
        self.counters.expired += 1
        return run

    def next_deadline_s(self) -> float | None:
        """When `expire` will have work by itself: never."""
        return None

    def is_behind(self, now_s: float) -> bool:
        """Whether `expire` has work that is overdue: never."""
        return False

    def remove(self, key: RunKey) -> CachedRun[V] | None:
        """Remove a run, whatever is expected of it; None if it is not here."""
        run = self._runs.get(key)
        if run is not None:
            self._invalidate([run])
        return run

    def invalidate_ledger(self, ledger: Ledger) -> list[CachedRun[V]]:
        """Remove all runs of a ledger."""
        return self._invalidate([r for r in self.runs() if r.key.ledger == ledger])

    def invalidate_topic(self, topic: str) -> list[CachedRun[V]]:
        """Remove all runs of all ledgers of a topic."""
        return self._invalidate([r for r in self.runs() if r.key.ledger.topic == topic])

    def clear(self) -> list[CachedRun[V]]:
        """Remove all runs. Reservations stay: their loads are under way."""
        return self._invalidate(self.runs())

    def configure(self, settings: Settings, now_s: float) -> list[CachedRun[V]]:
        """Change the limits; returns what no longer fits.

        What is reserved, lent or pinned may exceed a lowered limit until it is let go.
        """
        overdue = [run for run in self.runs() if self._is_dead(run, now_s)]
        self._remove(overdue)
        self.counters.expired += len(overdue)
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
        assert all(run.place is Residency.KEPT for run in listed)
        assert all(run.expected_reads >= 0 and run.pins >= 0 for run in listed)
        assert self.kept_bytes == sum(run.size_bytes for run in listed)
        assert self.accounting.held.bytes <= self.held_bytes <= self._ceiling_bytes

    def _is_dead(self, run: CachedRun[V], now_s: float) -> bool:
        return now_s >= run.inserted_s + self._settings.ttl.max_life_s

    def _evict(self, runs: list[CachedRun[V]]) -> list[CachedRun[V]]:
        """Forget what the segments have given up."""
        for run in runs:
            self._let_go(run)
        self.counters.rotated += len(runs)
        self.counters.given_up += sum(run.expected_reads > 0 for run in runs)
        return runs

    def _remove(self, runs: list[CachedRun[V]]) -> None:
        for run in runs:
            self._segments.drop(run)
            self._let_go(run)

    def _invalidate(self, runs: list[CachedRun[V]]) -> list[CachedRun[V]]:
        self._remove(runs)
        self.counters.invalidated += len(runs)
        return runs

    def _let_go(self, run: CachedRun[V]) -> None:
        """Forget a run that is in no segment any more."""
        self.accounting.drop(run)
        del self._runs[run.key]
        if run.unread:
            self.counters.wasted += 1
            self.counters.wasted_bytes += run.size_bytes
