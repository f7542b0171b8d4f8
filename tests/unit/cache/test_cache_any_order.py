"""Any order of calls: the same as a slow cache does, with all invariants."""

from __future__ import annotations

from math import inf

import hypothesis.strategies as st
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sparkcache.cache import CachedRun, Residency, RunCache, Settings, Ttl
from sparkcache.model import Run, RunKey, Slot
from tests.effort import tries
from tests.unit.cache.cache_cases import ROOMY, SlowCache, SlowRun, key, ledger

ledgers = st.sampled_from((ledger(0, "a"), ledger(1, "a"), ledger(0, "b")))
runs = st.sampled_from((Run(0, 0), Run(1, 2), Run(3, 5), Run(0, 3), Run(1, 1)))
run_keys = st.builds(RunKey, ledgers, runs)
sizes = st.sampled_from((1, 7, 20, 34, 60))
reads = st.sampled_from((0, 0, 0, 1, 2))
seconds = st.sampled_from((0, 0, 0.5, 1, 1, 2, 3, 5))
times = st.sampled_from((0, 1, 2, 3, 5, 8))
lives = st.sampled_from((inf, inf, 1, 4, 8))
ttls = st.builds(Ttl, times, st.none() | times, times, lives)
all_settings = st.builds(
    Settings,
    max_bytes=st.sampled_from((200, 200, 200, 100, 50, 0)),
    max_runs=st.sampled_from((100, 100, 100, 5, 3, 0)),
    ttl=ttls,
    trigger=st.sampled_from((0.98, 0.98, 1.0)),
    watermark=st.sampled_from((0.9, 0.9, 0.5)),
    max_requeues=st.integers(0, 2),
    extend_recently_accessed=st.booleans(),
)


class RunCacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        start = Settings(max_bytes=200, max_runs=100, ttl=Ttl(3, 2, 5), max_requeues=2)
        self.cache: RunCache[SlowRun | None] = RunCache(start)
        self.slow = SlowCache(start)
        self.now_s = 0.0
        self.twins: dict[CachedRun[SlowRun | None], SlowRun] = {}
        self.pinned: list[CachedRun[SlowRun | None]] = []

    def same(self, got: list[CachedRun[SlowRun | None]], wanted: list[SlowRun]) -> None:
        assert [self.twins[run] for run in got] == wanted
        for run in got:
            assert run.residency is (Residency.LENT if run.pins else Residency.GONE)

    @initialize(settings=all_settings)
    def begin(self, settings: Settings) -> None:
        """Half of the time with other settings than Pulsar's."""
        if settings.extend_recently_accessed:
            self.configure(settings)

    @rule(loads=st.lists(st.tuples(run_keys, sizes, reads), min_size=1, max_size=6))
    def load_some(self, loads: list[tuple[RunKey, int, int]]) -> None:
        for where, size_bytes, expected_reads in loads:
            self.load(where, size_bytes, expected_reads)

    def load(self, where: RunKey, size_bytes: int, expected_reads: int) -> None:
        if self.make_room(size_bytes):
            self.insert(where, size_bytes, expected_reads)

    @rule(size_bytes=sizes)
    def reserve(self, size_bytes: int) -> None:
        self.make_room(size_bytes)

    def make_room(self, size_bytes: int) -> bool:
        slot, removed = self.cache.reserve(size_bytes, self.now_s)
        fits, slow_removed = self.slow.reserve(size_bytes, self.now_s)
        assert slot == (Slot(size_bytes) if fits else None)
        self.same(removed, slow_removed)
        return fits

    @precondition(lambda self: self.slow.reserved)
    @rule(data=st.data(), where=run_keys, expected_reads=reads)
    def loaded(self, data: st.DataObject, where: RunKey, expected_reads: int) -> None:
        size_bytes = data.draw(st.sampled_from(self.slow.reserved))
        self.insert(where, size_bytes, expected_reads)

    def insert(self, where: RunKey, size_bytes: int, expected_reads: int) -> None:
        run = self.cache.insert(
            where,
            None,
            slot=Slot(size_bytes),
            expected_reads=expected_reads,
            now_s=self.now_s,
        )
        slow = self.slow.insert(where, size_bytes, expected_reads, self.now_s)
        assert (run is None) == (slow is None)
        if run is not None and slow is not None:
            self.twins[run] = slow

    @precondition(lambda self: self.slow.kept)
    @rule(data=st.data(), expected_reads=reads)
    def load_again(self, data: st.DataObject, expected_reads: int) -> None:
        where = data.draw(st.sampled_from(self.slow.kept)).key
        self.load(where, 1, expected_reads)

    @precondition(lambda self: self.slow.reserved)
    @rule(data=st.data())
    def unreserve(self, data: st.DataObject) -> None:
        size_bytes = data.draw(st.sampled_from(self.slow.reserved))
        self.cache.unreserve(Slot(size_bytes))
        self.slow.reserved.remove(size_bytes)

    def pin(self, run: CachedRun[SlowRun | None]) -> None:
        self.cache.pin(run)
        self.twins[run].pins += 1
        self.pinned.append(run)

    @precondition(lambda self: self.slow.kept)
    @rule(data=st.data())
    def pin_kept(self, data: st.DataObject) -> None:
        self.pin(data.draw(st.sampled_from(self.cache.runs())))

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.pinned))
        self.pinned.remove(run)
        assert self.cache.unpin(run) == self.slow.unpin(self.twins[run])

    @rule(where=run_keys)
    def get(self, where: RunKey) -> None:
        run = self.cache.get(where, self.now_s)
        assert (run and self.twins[run]) is self.slow.get(where, self.now_s)

    @precondition(lambda self: self.slow.kept)
    @rule(data=st.data(), seconds=seconds)
    def get_kept(self, data: st.DataObject, seconds: float) -> None:
        self.now_s += seconds
        self.get(data.draw(st.sampled_from(self.slow.kept)).key)

    @rule(where=run_keys)
    def peek(self, where: RunKey) -> None:
        run = self.cache.peek(where, self.now_s)
        assert (run and self.twins[run]) is self.slow.find(where, self.now_s)

    @rule(topic=st.sampled_from(("a", "b", "c")))
    def keys_of(self, topic: str) -> None:
        assert set(self.cache.keys_of([topic])) == {
            run.key for run in self.slow.kept if run.key.ledger.topic == topic
        }

    @precondition(lambda self: self.slow.kept)
    @rule(data=st.data(), seconds=seconds)
    def mark_read(self, data: st.DataObject, seconds: float) -> None:
        self.now_s += seconds
        where = data.draw(st.sampled_from(self.slow.kept)).key
        left = self.cache.mark_read(where, self.now_s)
        assert left == self.slow.mark_read(where, self.now_s)

    @precondition(lambda self: self.slow.kept)
    @rule(data=st.data(), expected_reads=reads)
    def set_expected(self, data: st.DataObject, expected_reads: int) -> None:
        where = data.draw(st.sampled_from(self.slow.kept)).key
        held = self.cache.set_expected(where, expected_reads, self.now_s)
        assert held == self.slow.set_expected(where, expected_reads, self.now_s)

    @rule(seconds=seconds)
    def expire(self, seconds: float) -> None:
        self.now_s += seconds
        examined, before = self.cache.counters.examined, len(self.cache)
        self.same(self.cache.expire(self.now_s), self.slow.expire(self.now_s))
        assert self.cache.counters.examined - examined <= self.bound(before) + 4
        assert not self.cache.has_overdue(self.now_s)

    @rule(
        seconds=seconds,
        most_runs=st.sampled_from((1, 2, 5)),
        most_bytes=st.sampled_from((1, 30, inf)),
    )
    def expire_some(self, seconds: float, most_runs: int, most_bytes: float) -> None:
        self.now_s += seconds
        most = (self.now_s, most_runs, most_bytes)
        self.same(self.cache.expire(*most), self.slow.expire(*most))
        has_overdue = self.slow.next_over(self.now_s) is not None
        assert self.cache.has_overdue(self.now_s) == has_overdue

    @precondition(lambda self: self.slow.kept)
    @rule(data=st.data())
    def expire_run(self, data: st.DataObject) -> None:
        slow = data.draw(st.sampled_from(self.slow.kept))
        run = self.cache.expire_run(slow.key, self.now_s)
        assert (run is not None) == self.slow.is_dead(slow, self.now_s)
        if run is not None:
            self.same([run], self.slow.invalidate([slow]))

    @rule(size_bytes=sizes)
    def evict(self, size_bytes: int) -> None:
        examined, before = self.cache.counters.examined, len(self.cache)
        removed = self.cache.evict(size_bytes, self.now_s)
        self.same(removed, self.slow.shrink(size_bytes, 0, self.now_s))
        assert self.cache.counters.examined - examined <= self.bound(before)

    def bound(self, before: int) -> int:
        # Twice: after its time is over, a run may still stand in the way of a limit.
        return 2 * (before + 1) * (self.cache.settings.max_requeues + 2)

    @rule(
        what=st.sampled_from(("run", "run", "run", "topic", "topic", "all")),
        where=run_keys,
    )
    def invalidate(self, what: str, where: RunKey) -> None:
        kept = self.slow.kept
        match what:
            case "run":
                removed = [run for run in [self.cache.remove(where)] if run]
                slow = [run for run in kept if run.key == where]
            case "topic":
                topic = where.ledger.topic
                removed = self.cache.invalidate_topic(topic)
                slow = [run for run in kept if run.key.ledger.topic == topic]
            case _:
                removed = self.cache.clear()
                slow = list(kept)
        assert {self.twins[run] for run in removed} == set(self.slow.invalidate(slow))

    @rule(settings=all_settings)
    def configure(self, settings: Settings) -> None:
        removed = self.cache.configure(settings, self.now_s)
        overdue = self.slow.expire(self.now_s)
        self.slow.settings = settings
        self.same(removed, overdue + self.slow.shrink_to_limit(self.now_s))

    @invariant()
    def is_what_the_slow_cache_is(self) -> None:
        self.cache.check()
        assert self.cache.held_bytes == self.slow.held_bytes
        assert self.cache.kept_bytes == self.slow.kept_bytes
        assert [self.twins[run] for run in self.cache.runs()] == self.slow.kept
        for run in self.cache.runs():
            slow = self.twins[run]
            assert run.key == slow.key
            assert run.size_bytes == slow.size_bytes
            assert run.expected_reads == slow.expected_reads
            assert run.pins == slow.pins
            assert run.requeues == slow.requeues
            assert run.accessed == slow.accessed
            assert run.since_s == slow.since_s
            assert run.inserted_s == slow.inserted_s

    @invariant()
    def wakes_when_there_is_work(self) -> None:
        deadlines = [self.slow.deadline_s(run) for run in self.slow.kept]
        assert self.cache.next_deadline_s() == min(deadlines, default=None)

    def teardown(self) -> None:
        """Whatever happened, everything can be given back."""
        self.cache.clear()
        for run in self.pinned:
            self.cache.unpin(run)
        for size_bytes in self.slow.reserved:
            self.cache.unreserve(Slot(size_bytes))
        self.cache.check()
        assert self.cache.held_bytes == self.cache.kept_bytes == len(self.cache) == 0


TestRunCacheMachine = RunCacheMachine.TestCase
TestRunCacheMachine.settings = hypothesis_settings(
    max_examples=tries(100), stateful_step_count=50
)


@pytest.mark.parametrize("removed", [0, 3, 7], ids=lambda index: f"run {index} of 8")
def test_removal_from_anywhere_in_the_queue_leaves_nothing(removed: int) -> None:
    """Why there is no verdict MISSING: passes never meet what is not there."""
    cache: RunCache[str] = RunCache(ROOMY)
    for index in range(8):
        assert cache.reserve(1, 0)[0]
        cache.insert(key(index), "", slot=Slot(1), expected_reads=0, now_s=0)
    gone = cache.remove(key(removed))
    assert gone is not None
    assert gone.deadlines is None
    assert gone not in cache.runs()
    assert len(cache.evict(100, 0)) == 7
    assert cache.counters.examined == 7
    cache.check()
