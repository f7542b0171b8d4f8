"""The runs engine: which runs of a node are held, for how long, and in what order.

The pure core. It touches no memory: a run's `value` belongs to the caller, and a method
that returns runs means "these are no longer kept, free them". It reads no clock:
`now_s` is an argument and never goes backwards. It has one caller: calls never overlap.

The life of a run:

    reserve -> insert -> get, mark_read... -> expire or reserve or remove
    reserve -> unreserve

A run is pinned while a reader maps it. A run that is removed while pinned becomes lent:
it is returned at once, so that the caller can close its descriptor, and its bytes count
until the last unpin.

`Expiry` decides which runs are overdue, `EvictionPolicy` which runs are evicted when
memory is needed; both spare runs by the same rule, and sparing restarts the time to
live. A run is held if and only if a pass at this moment would keep it. Whether that
pass has run makes no difference to a look-up, only to the memory.

Source: Apache Pulsar PIP-430 (order, trigger, watermark, requeues) and RocketMQ's dual
time to live. Different here: the limit is hard, because memory is reserved before a run
exists; a run that could never fit evicts nothing; and a pass over overdue runs can be
split into short passes.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeVar

from sparkcache.cache.cached_run import Bundle, CachedRun, Residency, require_reads
from sparkcache.cache.counters import Counters
from sparkcache.cache.engine import Engine
from sparkcache.cache.eviction_policy import EvictionPolicy
from sparkcache.cache.expiry import Expiry
from sparkcache.cache.memory_accounting import MemoryAccounting
from sparkcache.demand import Forecast
from sparkcache.model import Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sparkcache.cache.next_read import ReadForecast
    from sparkcache.cache.settings import Settings
    from sparkcache.model import RunKey

V = TypeVar("V")


class RunCache(Engine[V]):
    """Runs by key, within a limit of bytes and of runs.

    Args:
        settings: The limits and the policy.
        forecast: Forecast for the policy NEXT_READ; None for an empty one.
        counters: The counters to use; None for new ones.

    Attributes:
        counters: The events so far.
        accounting: The memory that is held.

    """

    def __init__(
        self,
        settings: Settings,
        forecast: ReadForecast | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.counters = Counters() if counters is None else counters
        self._settings = settings
        self._runs: dict[RunKey, CachedRun[V]] = {}
        self._topics: dict[str, dict[CachedRun[V], None]] = {}
        self._evictions: EvictionPolicy[V] = EvictionPolicy(
            settings, self.counters, Forecast() if forecast is None else forecast
        )
        self._expiry: Expiry[V] = Expiry(settings.ttl, self.counters)
        self.accounting = MemoryAccounting()
        self._ceiling_bytes = settings.max_bytes
        self._ceiling_runs = settings.max_runs

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return (
            f"<RunCache of {len(self)} runs of {len(self._topics)} topics: "
            f"{self.held_bytes} of {self._settings.max_bytes} bytes held, "
            f"{self.kept_bytes} kept>"
        )

    @property
    def settings(self) -> Settings:
        """The limits and the policy in force."""
        return self._settings

    @property
    def held_bytes(self) -> int:
        """Bytes that count towards the limit: kept, reserved and lent."""
        return self.accounting.held.bytes

    def get(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run to read it, which counts as an access."""
        run = self.peek(key, now_s)
        if run is not None:
            run.unread = False
            run.lookups += 1
            run.looked_up_s = now_s
            self._evictions.access(run)
            self._expiry.read(run, now_s)
        return run

    def peek(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run without any effect."""
        run = self._runs.get(key)
        if run is None or now_s < self._expiry.end_s(run):
            return run  # as mostly
        return None if self._is_overdue(run, now_s) else run

    def keys_of(self, topics: Collection[str]) -> list[RunKey]:
        """Return the keys of all runs of some topics, overdue runs included."""
        return [run.key for topic in topics for run in self._topics.get(topic, ())]

    def runs(self) -> list[CachedRun[V]]:
        """List the kept runs, the next to be evicted first."""
        return self._evictions.all()

    def readers_moved(self, topic: str) -> None:
        """Note that the forecast of a topic has changed."""
        self._evictions.readers_moved(topic)

    def reserve(
        self, size_bytes: int, now_s: float, key: RunKey | None = None
    ) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Reserve memory for a run that is about to be created.

        Returns the slot, if any, and the evicted runs. A run that cannot fit beside the
        reserved, lent and pinned runs is refused and evicts nothing. NEXT_READ also
        refuses a run for which only runs that are read sooner could be evicted; `key`
        names the new run, None stands for a run that is read at once.
        """
        settings, accounting = self._settings, self.accounting
        size_bytes = settings.rounded(size_bytes)
        if self.has_spare(size_bytes):
            accounting.reserve(size_bytes)
            return Slot(size_bytes), []
        if not accounting.could_fit(size_bytes, settings.max_bytes, settings.max_runs):
            self.counters.refused += 1
            return None, []
        swept = self._sweep(size_bytes, 1, settings.trigger_bytes, now_s)
        more_bytes = size_bytes - sum(run.size_bytes for run in swept)
        excess = self._excess(more_bytes, 1 - len(swept))
        farther = (
            self._evictions.evict_for(*excess, new_key=key, new_bytes=size_bytes)
            if excess
            else []
        )
        if farther is None:
            self._evictions.put_back(swept)
            self.counters.declined += 1
            return None, []
        removed = self._finish_eviction(swept + farther)
        if self._excess(size_bytes, 1):  # readers map other runs of their bundles
            self.counters.refused += 1
            return None, removed
        accounting.reserve(size_bytes)
        return Slot(size_bytes), removed

    def would_admit(self, key: RunKey, size_bytes: int) -> bool:
        """Return whether memory for a run would be reserved now, without any effect.

        What would be evicted for it is not added up, so it may be refused all the same.
        """
        settings = self._settings
        size_bytes = settings.rounded(size_bytes)
        limits = settings.max_bytes, settings.max_runs
        if not self.accounting.could_fit(size_bytes, *limits):
            return False
        return self.has_spare(size_bytes) or self._evictions.would_evict_for(
            key, size_bytes
        )

    def has_spare(self, size_bytes: int) -> bool:
        """Return whether a run fits without evicting any run."""
        accounting, settings = self.accounting, self._settings
        then_bytes = accounting.held.bytes + settings.rounded(size_bytes)
        has_file = accounting.files < settings.max_runs
        return then_bytes <= settings.trigger_bytes and has_file

    def unreserve(self, slot: Slot) -> None:
        """Return a reservation that is not used."""
        self.accounting.unreserve(slot.size_bytes)

    def bundle(self, slot: Slot, sizes: Sequence[int]) -> Bundle:
        """Divide reserved memory among runs, each of which is then inserted."""
        self.accounting.divide(slot.size_bytes, sizes)
        return Bundle()

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

        A run that is prefetched (`ahead`) is evicted after all comparable runs, until
        it is looked up.

        Returns None if the run is kept already. The kept run then counts as inserted
        just now, even if it was overdue: a key names bytes that never change. The
        reservation is returned, unless it is part of a bundle, and the caller must free
        `value`.
        """
        require_reads(expected_reads)
        old = self._runs.get(key)
        if old is not None:
            if bundle is None:
                self.accounting.unreserve(slot.size_bytes)
            else:
                self.accounting.waste(slot.size_bytes, bundle)
            old.expected_reads = expected_reads
            old.was_read = False
            self._evictions.renew(old)
            self._expiry.insert(old, now_s)
            return None
        run = CachedRun(
            key,
            value,
            slot,
            expected_reads,
            unread=ahead,
            ahead=ahead,
            prefetched=ahead,
            bundle=bundle,
        )
        self.accounting.keep(run)
        self._runs[key] = run
        self._topics.setdefault(key.ledger.topic, {})[run] = None
        self._evictions.add(run)
        self._expiry.insert(run, now_s)
        self.counters.inserted += 1
        return run

    def abandon(self, run: CachedRun[V]) -> None:
        """Note that the reader that a kept run was prefetched for is not coming."""
        self._evictions.abandon(run)

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps the run."""
        self.accounting.pin(run)
        self._evictions.pins_changed(run)

    def unpin(self, run: CachedRun[V]) -> bool:
        """Note that a reader unmapped the run; return whether its bytes are freed."""
        self._evictions.pins_changed(run)
        return self.accounting.unpin(run)

    def mark_read(self, key: RunKey, now_s: float) -> int | None:
        """Note that a planned read is done; return how many remain.

        Returns None if the run is not held. Reads beyond the expected ones leave 0.
        """
        run = self.peek(key, now_s)
        if run is None:
            return None
        if run.expected_reads:
            run.expected_reads -= 1
            if not run.expected_reads:
                self._evictions.expect(run)
        self._expiry.read(run, now_s)
        return run.expected_reads

    def set_expected(self, key: RunKey, expected_reads: int, now_s: float) -> bool:
        """Set how many reads are to come; return whether the run is held.

        A change from none to some, or from some to none, restarts its time to live.
        """
        require_reads(expected_reads)
        run = self.peek(key, now_s)
        if run is None:
            return False
        changes_state = bool(run.expected_reads) != bool(expected_reads)
        run.expected_reads = expected_reads
        if changes_state:
            run.requeues = 0
            self._evictions.expect(run)
            self._expiry.start(run, now_s)
        return True

    def expire(
        self, now_s: float, most_runs: float = inf, most_bytes: float = inf
    ) -> list[CachedRun[V]]:
        """Remove overdue runs; requeue those with reads to come.

        Also evicts runs that a lowered limit could not evict at once. A pass ends early
        once it has processed `most_runs` or removed `most_bytes`; see `has_overdue`.
        """
        removed = []
        for run in self._expiry.overdue(now_s):
            if self._expiry.is_past_max_age(run, now_s) or not self._evictions.spares(
                run
            ):
                self._remove(run)
                removed.append(run)
                most_bytes -= run.size_bytes
            else:
                self._evictions.requeue(run)
                self._expiry.start(run, now_s)
                self.counters.requeued_by_ttl += 1
            most_runs -= 1
            if most_runs <= 0 or most_bytes <= 0:
                break
        self._count_expired(removed)
        return removed if self.has_overdue(now_s) else removed + self._fit(now_s)

    def expire_run(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Remove one overdue run now; return None if missing or kept by a pass."""
        run = self._runs.get(key)
        if run is None or not self._is_overdue(run, now_s):
            return None
        self._remove(run)
        self._count_expired([run])
        return run

    def next_deadline_s(self) -> float | None:
        """Return when `expire` will have work; None if never."""
        return self._expiry.next_deadline_s()

    def has_overdue(self, now_s: float) -> bool:
        """Return whether `expire` has work, as it ended early or was not called."""
        deadline_s = self._expiry.next_deadline_s()
        return deadline_s is not None and deadline_s <= now_s

    def evict(self, size_bytes: int, now_s: float) -> list[CachedRun[V]]:
        """Evict runs of at least this many bytes, if possible; return them."""
        if size_bytes <= 0:
            raise ValueError(f"size_bytes is {size_bytes}: use 1 or more")
        removed = self._finish_eviction(self._sweep_order(size_bytes, 0, now_s))
        return removed + self._evict_expected(
            size_bytes - sum(r.size_bytes for r in removed), 0
        )

    def remove(self, key: RunKey) -> CachedRun[V] | None:
        """Remove a run even if reads are expected; return None if it is missing."""
        run = self._runs.get(key)
        if run is not None:
            self._invalidate([run])
        return run

    def invalidate_topic(self, topic: str) -> list[CachedRun[V]]:
        """Remove all runs of all ledgers of a topic."""
        return self._invalidate(list(self._topics.get(topic, ())))

    def clear(self) -> list[CachedRun[V]]:
        """Remove all runs. Reservations stay, since their loads are running."""
        return self._invalidate(self.runs())

    def configure(self, settings: Settings, now_s: float) -> list[CachedRun[V]]:
        """Change the limits and the policy; return the runs that no longer fit.

        Reserved, lent and pinned runs may exceed a lowered limit until they are
        released. Runs that are overdue by the old settings are removed first: look-ups
        already missed them, so the new settings must not bring them back.
        """
        overdue = self.expire(now_s)
        self._settings = settings
        self._evictions.configure(settings)
        self._expiry.configure(settings.ttl)
        removed = self._fit(now_s)
        self._ceiling_bytes = max(settings.max_bytes, self.accounting.held.bytes)
        self._ceiling_runs = max(settings.max_runs, self.accounting.files)
        return overdue + removed

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        self.accounting.check()
        self._expiry.check()
        queued = self.runs()
        indexed = [run for runs in self._topics.values() for run in runs]
        self._evictions.check()
        assert set(queued) == set(indexed) == set(self._runs.values())
        assert len(queued) == len(indexed) == len(self._runs) == len(self._expiry)
        assert all(self._runs[run.key] is run for run in queued)
        assert all(run.deadlines is not None for run in queued)
        for topic, runs in self._topics.items():
            assert runs
            assert all(run.key.ledger.topic == topic for run in runs)
        kept, pinned = self.accounting.kept, self.accounting.pinned
        assert kept.runs == len(queued)
        assert kept.bytes == sum(run.size_bytes for run in queued)
        assert pinned.runs == sum(run.pins > 0 for run in queued)
        assert pinned.bytes == sum(run.size_bytes for run in queued if run.pins)
        assert all(run.residency is Residency.KEPT for run in queued)
        assert all(run.expected_reads >= 0 and run.pins >= 0 for run in queued)
        assert self.accounting.held.bytes <= self._ceiling_bytes
        assert self.accounting.files <= self._ceiling_runs
        self._check_bundles()

    def _check_bundles(self) -> None:
        bundles = {id(run.bundle): run.bundle for run in self.runs() if run.bundle}
        for bundle in bundles.values():
            assert all(self._runs[run.key] is run for run in bundle.kept)
            assert 0 <= bundle.lent <= self.accounting.lent.runs
        for run in self.runs():
            assert run.bundle is None or run in run.bundle.kept
        assert sum(each.idle_bytes for each in bundles.values()) <= (
            self.accounting.idle.bytes
        )

    def _is_overdue(self, run: CachedRun[V], now_s: float) -> bool:
        if self._expiry.is_past_max_age(run, now_s):
            return True
        return self._expiry.is_past_ttl(run, now_s) and not self._evictions.spares(run)

    def _fit(self, now_s: float) -> list[CachedRun[V]]:
        """Evict runs until the limits are met, as far as possible."""
        removed = self._finish_eviction(
            self._sweep(0, 0, self._settings.max_bytes, now_s)
        )
        excess = self._excess(0, 0)
        return removed + self._evict_expected(*excess) if excess else removed

    def _excess(self, size_bytes: int, runs: int) -> tuple[int, int] | None:
        """Return the bytes and runs above the limits after adding these, else None."""
        held, settings = self.accounting.held, self._settings
        excess_bytes = held.bytes + size_bytes - settings.max_bytes
        excess_runs = self.accounting.files + runs - settings.max_runs
        if excess_bytes <= 0 and excess_runs <= 0:
            return None
        return excess_bytes, excess_runs

    def _sweep(
        self, size_bytes: int, runs: int, trigger_bytes: int, now_s: float
    ) -> list[CachedRun[V]]:
        """Choose runs to evict if adding these would exceed the limit or the trigger.

        Runs whose next read is forecast stay. The chosen runs leave the eviction order
        but are not forgotten yet.
        """
        then_bytes = self.accounting.held.bytes + size_bytes
        excess_runs = self.accounting.files + runs - self._settings.max_runs
        excess_bytes = 0
        if then_bytes > trigger_bytes:
            excess_bytes = then_bytes - self._settings.watermark_bytes
        if excess_bytes <= 0 and excess_runs <= 0:
            return []
        return self._sweep_order(excess_bytes, excess_runs, now_s)

    def _sweep_order(
        self, size_bytes: int, runs: int, now_s: float
    ) -> list[CachedRun[V]]:
        removed, requeued = self._evictions.sweep(size_bytes, runs)
        for run in requeued:
            self._expiry.start(run, now_s)
        return removed

    def _evict_expected(self, size_bytes: int, runs: int) -> list[CachedRun[V]]:
        """Evict runs whose next read is forecast, as far as possible."""
        return self._finish_eviction(self._evictions.shrink(size_bytes, runs))

    def _finish_eviction(self, removed: list[CachedRun[V]]) -> list[CachedRun[V]]:
        """Forget evicted runs, and the rest of their bundles, or nothing were freed."""
        for run in removed:
            self._forget(run)
        bundles = {id(run.bundle): run.bundle for run in removed if run.bundle}
        for bundle in bundles.values():
            for run in list(bundle.kept):
                self._remove(run)
                removed.append(run)
        self.counters.evicted_by_size += len(removed)
        self._count_evicted_unread(removed)
        return removed

    def _invalidate(self, runs: list[CachedRun[V]]) -> list[CachedRun[V]]:
        for run in runs:
            self._remove(run)
        self.counters.invalidated += len(runs)
        return runs

    def _remove(self, run: CachedRun[V]) -> None:
        self._evictions.remove(run)
        self._forget(run)

    def _forget(self, run: CachedRun[V]) -> None:
        """Forget a run that has left the eviction order."""
        self._expiry.stop(run)
        self.accounting.drop(run)
        if run.unread:
            self.counters.wasted += 1
            self.counters.wasted_bytes += run.size_bytes
        del self._runs[run.key]
        topic = run.key.ledger.topic
        runs = self._topics[topic]
        del runs[run]
        if not runs:
            del self._topics[topic]

    def _count_expired(self, removed: list[CachedRun[V]]) -> None:
        self.counters.evicted_by_ttl += len(removed)
        self._count_evicted_unread(removed)

    def _count_evicted_unread(self, removed: list[CachedRun[V]]) -> None:
        self.counters.evicted_unread += sum(run.expected_reads > 0 for run in removed)
