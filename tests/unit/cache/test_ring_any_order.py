"""Any order of calls: what is found and what is mapped is what was written."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparkcache.cache import CachedRun, Residency, Ring, RingCache, Settings, Ttl
from sparkcache.model import Run, RunKey
from tests.effort import tries
from tests.unit.cache.cache_cases import ledger

if TYPE_CHECKING:
    from sparkcache.model import Slot

KEYS = [
    RunKey(ledger(number, topic), Run(first, first))
    for number, topic in ((0, "a"), (1, "a"), (0, "b"))
    for first in range(5)
]
run_keys = st.sampled_from(KEYS)
sizes = st.sampled_from((0, 1, 64, 65, 128, 200, 300, 600))
limits = st.sampled_from((1024, 1024, 1024, 2048, 320, 0))
pieces = st.sampled_from((256, 256, 320, 512, 1024))


def settings_of(max_bytes: int, segment_bytes: int, copies: bool) -> Settings:
    ring = Ring(min(segment_bytes, max_bytes), copies)
    return Settings(max_bytes, 12, Ttl(inf, None, inf), ring=ring)


class Memory:
    """What a node has: bytes of segments, or of runs that have their own."""

    def __init__(self) -> None:
        self.segments: dict[int, bytearray] = {}
        self.own: dict[int, bytes] = {}
        self.mapped: dict[int, int] = {}

    def write(self, slot: Slot, value: int) -> None:
        content = value.to_bytes(8, "little") * (slot.size_bytes // 8)
        if slot.segment is None:
            self.own[value] = content
            return
        number, size_bytes = slot.segment
        segment = self.segments.setdefault(number, bytearray(size_bytes))
        assert len(segment) == size_bytes
        end = slot.offset + slot.size_bytes
        assert end <= size_bytes
        segment[slot.offset : end] = content

    def is_whole(self, run: CachedRun[int]) -> bool:
        slot, content = run.slot, run.value.to_bytes(8, "little")
        if slot.segment is None:
            found = self.own[run.value]
        else:
            begin = slot.offset
            segment = self.segments[slot.segment.number]
            found = bytes(segment[begin : begin + slot.size_bytes])
        return found == content * (slot.size_bytes // 8)

    def size_bytes(self) -> int:
        return sum(map(len, (*self.segments.values(), *self.own.values())))


class RingMachine(RuleBasedStateMachine):
    copies = True

    def __init__(self) -> None:
        super().__init__()
        self.cache: RingCache[int] = RingCache(settings_of(1024, 256, self.copies))
        self.memory = Memory()
        self.reserved: list[Slot] = []
        self.pinned: list[CachedRun[int]] = []
        self.held: dict[RunKey, CachedRun[int]] = {}
        self.ceiling_bytes = 1024
        self.values = 0

    def free(self, removed: list[CachedRun[int]]) -> None:
        for run in removed:
            assert self.held.pop(run.key) is run
            assert run.residency is (Residency.LENT if run.pins else Residency.GONE)
            if run not in self.pinned:
                self.memory.own.pop(run.value, None)
        self.follow()

    def follow(self) -> None:
        for number in self.memory.segments.keys() - set(self.cache.segments):
            del self.memory.segments[number]

    @rule(size_bytes=sizes)
    def reserve(self, size_bytes: int) -> None:
        spare = self.cache.has_spare(size_bytes)
        slot, evicted = self.cache.reserve(size_bytes, 0)
        self.free(evicted)
        if spare:
            assert slot is not None
            assert not evicted
        if slot is not None:
            assert slot.size_bytes >= size_bytes
            self.reserved.append(slot)

    @rule(loads=st.lists(st.tuples(run_keys, sizes), min_size=1, max_size=8))
    def load(self, loads: list[tuple[RunKey, int]]) -> None:
        for where, size_bytes in loads:
            before = len(self.reserved)
            self.reserve(size_bytes)
            if len(self.reserved) > before:
                self.insert(self.reserved.pop(), where)

    @precondition(lambda self: self.reserved)
    @rule(data=st.data(), where=run_keys)
    def loaded(self, data: st.DataObject, where: RunKey) -> None:
        slot = data.draw(st.sampled_from(self.reserved))
        self.reserved.remove(slot)
        self.insert(slot, where)

    def insert(self, slot: Slot, where: RunKey) -> None:
        self.values += 1
        self.memory.write(slot, self.values)
        run = self.cache.insert(
            where, self.values, slot=slot, expected_reads=0, now_s=0
        )
        assert (run is None) == (where in self.held)
        if run is None:
            self.memory.own.pop(self.values, None)
        else:
            self.held[where] = run

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.reserved))
        self.reserved.remove(slot)
        self.cache.unreserve(slot)

    @rule(where=run_keys)
    def get(self, where: RunKey) -> None:
        assert self.cache.get(where, 0) is self.held.get(where)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(list(self.held.values())))
        self.cache.pin(run)
        self.pinned.append(run)

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.pinned))
        self.pinned.remove(run)
        is_gone = self.cache.unpin(run)
        is_held = self.held.get(run.key) is run
        assert is_gone == (run not in self.pinned and not is_held)
        if is_gone:
            self.memory.own.pop(run.value, None)

    @rule(what=st.sampled_from(("run", "run", "topic", "topic", "all")), where=run_keys)
    def remove(self, what: str, where: RunKey) -> None:
        match what:
            case "run":
                removed = [run for run in [self.cache.remove(where)] if run]
                left = [key for key in self.held if key != where]
            case "topic":
                topic = where.ledger.topic
                removed = self.cache.invalidate_topic(topic)
                left = [key for key in self.held if key.ledger.topic != topic]
            case _:
                removed, left = self.cache.clear(), []
        self.free(removed)
        assert list(self.held) == left

    @rule(max_bytes=limits, segment_bytes=pieces)
    def configure(self, max_bytes: int, segment_bytes: int) -> None:
        settings = settings_of(max_bytes, segment_bytes, self.copies)
        self.free(self.cache.configure(settings, 0))
        self.ceiling_bytes = max(max_bytes, self.cache.held_bytes)

    @rule()
    def expire(self) -> None:
        self.free(self.cache.expire(0))

    @invariant()
    def holds_what_was_written(self) -> None:
        self.cache.check()
        assert len(self.cache) == len(self.held)
        for run in (*self.held.values(), *self.pinned):
            assert self.memory.is_whole(run)

    @invariant()
    def stays_within_the_limit(self) -> None:
        assert self.memory.size_bytes() <= self.cache.held_bytes <= self.ceiling_bytes

    def teardown(self) -> None:
        """Whatever happened, everything can be given back."""
        self.free(self.cache.clear())
        while self.pinned:
            run = self.pinned.pop()
            self.cache.unpin(run)
        for slot in self.reserved:
            self.cache.unreserve(slot)
        self.free(self.cache.expire(0))
        assert self.cache.is_idle
        assert self.cache.held_bytes <= self.cache.settings.max_bytes
        self.cache.check()


class ListsMachine(RingMachine):
    copies = False


TestRingMachine = RingMachine.TestCase
TestListsMachine = ListsMachine.TestCase
TestRingMachine.settings = TestListsMachine.settings = hypothesis_settings(
    max_examples=tries(37), stateful_step_count=50
)
