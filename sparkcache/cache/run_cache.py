"""The runs of one node: which are held, for how long, and which goes next.

The pure core. It touches no memory: a run's `value` is the caller's, and whatever
returns runs says "these are no longer kept, free them". It reads no clock: `now_s` is
an argument and never goes backwards. It has one caller: nothing happens in between.

A run lives like this:

    reserve -> insert -> get, mark_read... -> expire or reserve or remove
    reserve -> unreserve

and is pinned while a reader maps it. A run that is removed under its readers is lent
from then on: it is returned at once, so that the caller can close its descriptor, and
its bytes count until the last unpin.

`Expiry` knows whose time is over, `EvictionPolicy` who goes when room is needed; both
spare runs by the same rule, and being spared begins a run's time anew. A run is held if
and only if a pass at this moment would keep it. Whether that pass has taken place makes
no difference to a look-up, only to the memory.

Source: Apache Pulsar PIP-430 (order, trigger, watermark, requeues) and RocketMQ's dual
time to live. Different here: the limit is hard, because room is made before a run
exists; what could never fit evicts nothing; and a pass over what is over can be cut
into short ones.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeVar

from sparkcache.cache.cached_run import CachedRun, Residency, require_reads
from sparkcache.cache.counters import Counters
from sparkcache.cache.engine import Engine
from sparkcache.cache.eviction_policy import EvictionPolicy
from sparkcache.cache.expiry import Expiry
from sparkcache.cache.memory_accounting import MemoryAccounting
from sparkcache.demand import Forecast
from sparkcache.model import Slot

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkcache.cache.next_read import ReadForecast
    from sparkcache.cache.settings import Settings
    from sparkcache.model import Ledger, RunKey

V = TypeVar("V")


class RunCache(Engine[V]):
    """Runs by key, within a limit of bytes and of runs.

    Args:
        settings: The limits and the policy.
        foreseen: What the policy NEXT_READ goes by. If None, nothing is.
        counters: What to count in.

    Attributes:
        counters: What has happened so far.
        holdings: What is held.

    """

    def __init__(
        self,
        settings: Settings,
        foreseen: ReadForecast | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.counters = Counters() if counters is None else counters
        self._settings = settings
        self._runs: dict[RunKey, CachedRun[V]] = {}
        self._topics: dict[str, dict[CachedRun[V], None]] = {}
        self._order: EvictionPolicy[V] = EvictionPolicy(
            settings, self.counters, Forecast() if foreseen is None else foreseen
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
        """What counts towards the limit: kept, reserved and lent."""
        return self.accounting.held.bytes

    def get(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run to read it, which counts as an access."""
        run = self.peek(key, now_s)
        if run is not None:
            run.unread = False
            run.lookups += 1
            run.looked_up_s = now_s
            self._order.access(run)
            self._expiry.read(run, now_s)
        return run

    def peek(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Look up a run without any effect."""
        run = self._runs.get(key)
        return None if run is None or self._is_dead(run, now_s) else run

    def keys_of(self, topics: Collection[str]) -> list[RunKey]:
        """The runs here of some topics, overdue ones too; no effect."""
        return [run.key for topic in topics for run in self._topics.get(topic, ())]

    def runs(self) -> list[CachedRun[V]]:
        """List the runs kept, the next to go first."""
        return self._order.all()

    def readers_moved(self, topic: str) -> None:
        """Note that what is foreseen of a topic has changed."""
        self._order.moved(topic)

    def reserve(
        self, size_bytes: int, now_s: float, key: RunKey | None = None
    ) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Make room for a run that is about to be created.

        Returns the room, if there is any, and what was evicted for it. What cannot fit
        beside the reserved, the lent and the pinned is refused and evicts nothing.
        With NEXT_READ a run is refused too if room could be made only by evicting what
        is read sooner; `key` says which run it is, None any that is read at once.
        """
        settings, accounting = self._settings, self.accounting
        size_bytes = settings.rounded(size_bytes)
        if not accounting.could_fit(size_bytes, settings.max_bytes, settings.max_runs):
            self.counters.refused += 1
            return None, []
        swept = self._sweep(size_bytes, 1, settings.trigger_bytes, now_s)
        more_bytes = size_bytes - sum(run.size_bytes for run in swept)
        excess = self._excess(more_bytes, 1 - len(swept))
        farther = self._order.evict_for(*excess, to=key) if excess else []
        if farther is None:
            self._order.put_back(swept)
            self.counters.declined += 1
            return None, []
        removed = self._evicted(swept + farther)
        accounting.reserve(size_bytes)
        return Slot(size_bytes), removed

    def has_spare(self, size_bytes: int) -> bool:
        """Whether a run fits and nothing has to go for it."""
        held, settings = self.accounting.held, self._settings
        then_bytes = held.bytes + settings.rounded(size_bytes)
        return then_bytes <= settings.trigger_bytes and held.runs < settings.max_runs

    def unreserve(self, slot: Slot) -> None:
        """Give back a reservation that comes to nothing."""
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

        One that is loaded `ahead` of a reader goes after all others that are as good,
        until it is looked up.

        None if the run is here already. That one stays, as if inserted just now, even
        if its time was over: a key names bytes that never change. The reservation is
        given back then, and `value` is the caller's to free.
        """
        require_reads(expected_reads)
        old = self._runs.get(key)
        if old is not None:
            self.accounting.unreserve(slot.size_bytes)
            old.expected_reads = expected_reads
            old.was_read = False
            self._order.renew(old)
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
        )
        self.accounting.keep(run)
        self._runs[key] = run
        self._topics.setdefault(key.ledger.topic, {})[run] = None
        self._order.add(run)
        self._expiry.insert(run, now_s)
        self.counters.inserted += 1
        return run

    def abandon(self, run: CachedRun[V]) -> None:
        """Note that nobody comes any more to a kept run that was loaded ahead."""
        self._order.abandon(run)

    def pin(self, run: CachedRun[V]) -> None:
        """Note that a reader maps the run."""
        self.accounting.pin(run)
        self._order.moved(run.key.ledger.topic)

    def unpin(self, run: CachedRun[V]) -> bool:
        """Note that a reader let go; returns whether the run's bytes went with it."""
        self._order.moved(run.key.ledger.topic)
        return self.accounting.unpin(run)

    def mark_read(self, key: RunKey, now_s: float) -> int | None:
        """Note that a planned read is done; returns how many are left.

        None if the run is not held. Reads beyond the expected ones leave it at 0.
        """
        run = self.peek(key, now_s)
        if run is None:
            return None
        if run.expected_reads:
            run.expected_reads -= 1
            if not run.expected_reads:
                self._order.expect(run)
        self._expiry.read(run, now_s)
        return run.expected_reads

    def set_expected(self, key: RunKey, expected_reads: int, now_s: float) -> bool:
        """Say anew how many reads are to come; returns whether the run is held.

        The first to be expected, and the last to be called off, begin its time anew.
        """
        require_reads(expected_reads)
        run = self.peek(key, now_s)
        if run is None:
            return False
        changes_state = bool(run.expected_reads) != bool(expected_reads)
        run.expected_reads = expected_reads
        if changes_state:
            run.requeues = 0
            self._order.expect(run)
            self._expiry.start(run, now_s)
        return True

    def expire(
        self, now_s: float, most_runs: float = inf, most_bytes: float = inf
    ) -> list[CachedRun[V]]:
        """Remove the runs whose time is over; requeue those with reads to come.

        Also frees what a lowered limit could not free at once. A pass ends early once
        it has dealt with so many runs, or removed so many bytes; see `is_behind`.
        """
        removed = []
        for run in self._expiry.over(now_s):
            if self._expiry.is_at_end(run, now_s) or not self._order.spares(run):
                self._remove(run)
                removed.append(run)
                most_bytes -= run.size_bytes
            else:
                self._order.requeue(run)
                self._expiry.start(run, now_s)
                self.counters.requeued_expired += 1
            most_runs -= 1
            if most_runs <= 0 or most_bytes <= 0:
                break
        self._count_expired(removed)
        return removed if self.is_behind(now_s) else removed + self._fit(now_s)

    def expire_run(self, key: RunKey, now_s: float) -> CachedRun[V] | None:
        """Remove a run before its turn; None if it is not here, or a pass keeps it."""
        run = self._runs.get(key)
        if run is None or not self._is_dead(run, now_s):
            return None
        self._remove(run)
        self._count_expired([run])
        return run

    def next_deadline_s(self) -> float | None:
        """When `expire` will have work; None if never."""
        return self._expiry.next_deadline_s()

    def is_behind(self, now_s: float) -> bool:
        """Whether `expire` has work, because it ended early or was not called."""
        deadline_s = self._expiry.next_deadline_s()
        return deadline_s is not None and deadline_s <= now_s

    def evict(self, size_bytes: int, now_s: float) -> list[CachedRun[V]]:
        """Free at least so many bytes, if so many can be freed."""
        if size_bytes <= 0:
            raise ValueError(f"size_bytes is {size_bytes}: use 1 or more")
        removed = self._evicted(self._swept(size_bytes, 0, now_s))
        return removed + self._give(size_bytes - sum(r.size_bytes for r in removed), 0)

    def remove(self, key: RunKey) -> CachedRun[V] | None:
        """Remove a run, whatever is expected of it; None if it is not here."""
        run = self._runs.get(key)
        if run is not None:
            self._invalidate([run])
        return run

    def invalidate_ledger(self, ledger: Ledger) -> list[CachedRun[V]]:
        """Remove all runs of a ledger."""
        of_topic = self._topics.get(ledger.topic, ())
        return self._invalidate([run for run in of_topic if run.key.ledger == ledger])

    def invalidate_topic(self, topic: str) -> list[CachedRun[V]]:
        """Remove all runs of all ledgers of a topic."""
        return self._invalidate(list(self._topics.get(topic, ())))

    def clear(self) -> list[CachedRun[V]]:
        """Remove all runs. Reservations stay: their loads are under way."""
        return self._invalidate(self.runs())

    def configure(self, settings: Settings, now_s: float) -> list[CachedRun[V]]:
        """Change the limits and the policy; returns what no longer fits.

        What is reserved, lent or pinned may exceed a lowered limit until it is let go.
        What is overdue by the settings so far goes: nothing that is done meanwhile was
        done to it, so it must not be found again.
        """
        overdue = self.expire(now_s)
        self._settings = settings
        self._order.configure(settings)
        self._expiry.configure(settings.ttl)
        removed = self._fit(now_s)
        self._ceiling_bytes = max(settings.max_bytes, self.accounting.held.bytes)
        self._ceiling_runs = max(settings.max_runs, self.accounting.held.runs)
        return overdue + removed

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        self.accounting.check()
        self._expiry.check()
        queued = self.runs()
        indexed = [run for runs in self._topics.values() for run in runs]
        self._order.check()
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
        assert all(run.place is Residency.KEPT for run in queued)
        assert all(run.expected_reads >= 0 and run.pins >= 0 for run in queued)
        assert self.accounting.held.bytes <= self._ceiling_bytes
        assert self.accounting.held.runs <= self._ceiling_runs

    def _is_dead(self, run: CachedRun[V], now_s: float) -> bool:
        if self._expiry.is_at_end(run, now_s):
            return True
        return self._expiry.is_over(run, now_s) and not self._order.spares(run)

    def _fit(self, now_s: float) -> list[CachedRun[V]]:
        """Evict until what is held is within the limits, if that can be."""
        removed = self._evicted(self._sweep(0, 0, self._settings.max_bytes, now_s))
        excess = self._excess(0, 0)
        return removed + self._give(*excess) if excess else removed

    def _excess(self, size_bytes: int, runs: int) -> tuple[int, int] | None:
        """Return what would be too much, in bytes and in runs, with so much more."""
        held, settings = self.accounting.held, self._settings
        excess_bytes = held.bytes + size_bytes - settings.max_bytes
        excess_runs = held.runs + runs - settings.max_runs
        if excess_bytes <= 0 and excess_runs <= 0:
            return None
        return excess_bytes, excess_runs

    def _sweep(
        self, size_bytes: int, runs: int, trigger_bytes: int, now_s: float
    ) -> list[CachedRun[V]]:
        """Choose what goes if with so much more the limit or the trigger was exceeded.

        What is read next at a time that is foreseen stays. What goes is out of the
        removal order, and no more than that.
        """
        then_bytes = self.accounting.held.bytes + size_bytes
        excess_runs = self.accounting.held.runs + runs - self._settings.max_runs
        excess_bytes = 0
        if then_bytes > trigger_bytes:
            excess_bytes = then_bytes - self._settings.watermark_bytes
        if excess_bytes <= 0 and excess_runs <= 0:
            return []
        return self._swept(excess_bytes, excess_runs, now_s)

    def _swept(self, size_bytes: int, runs: int, now_s: float) -> list[CachedRun[V]]:
        removed, requeued = self._order.sweep(size_bytes, runs)
        for run in requeued:
            self._expiry.start(run, now_s)
        return removed

    def _give(self, size_bytes: int, runs: int) -> list[CachedRun[V]]:
        """Evict what is foreseen, as far as it can go."""
        return self._evicted(self._order.shrink(size_bytes, runs))

    def _evicted(self, removed: list[CachedRun[V]]) -> list[CachedRun[V]]:
        for run in removed:
            self._let_go(run)
        self.counters.evicted += len(removed)
        self._count_given_up(removed)
        return removed

    def _invalidate(self, runs: list[CachedRun[V]]) -> list[CachedRun[V]]:
        for run in runs:
            self._remove(run)
        self.counters.invalidated += len(runs)
        return runs

    def _remove(self, run: CachedRun[V]) -> None:
        self._order.remove(run)
        self._let_go(run)

    def _let_go(self, run: CachedRun[V]) -> None:
        """Forget a run that is out of the removal order."""
        self._expiry.stop(run)
        self.accounting.drop(run)
        if run.unread:
            self.counters.wasted += 1
            self.counters.wasted_bytes += run.size_bytes
        del self._runs[run.key]
        topic = run.key.ledger.topic
        del self._topics[topic][run]
        if not self._topics[topic]:
            del self._topics[topic]

    def _count_expired(self, removed: list[CachedRun[V]]) -> None:
        self.counters.expired += len(removed)
        self._count_given_up(removed)

    def _count_given_up(self, removed: list[CachedRun[V]]) -> None:
        self.counters.given_up += sum(run.expected_reads > 0 for run in removed)
