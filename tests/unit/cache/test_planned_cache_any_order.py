"""Plans, readers and runs in any order: invariants, and the right run goes.

Each decision is compared with a search over all runs held, by the same forecast. Before
it the cache is told that the readers of every topic moved: where nothing happened it
may go by what it found when it last looked (see `NextRead`), which is not wrong then.
"""

from __future__ import annotations

from math import inf

import hypothesis.strategies as st
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sparkcache.cache import CachedRun, Place, PlannedCache, Policy, Settings, Ttl
from sparkcache.consumers import Consumer, Located, Plan, Reader, Reading
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey

RUNS = 24  # of a topic, of one entry and 10 stored bytes each; a partition has 8
PART = 8
TOPICS = ("a", "b")
TTL = Ttl(create_s=50, after_read_s=20, expected_s=100)
SAME = 1e-6  # ticks; times are added and subtracted on the way

topics = st.sampled_from(TOPICS)
sizes = st.sampled_from((1, 3, 8))
policies = st.sampled_from((Policy.NEXT_READ,) * 5 + tuple(Policy))
some_consumers = st.lists(
    st.builds(
        Consumer,
        topics,
        st.none() | st.just(Position(0, 10)),
        st.none() | st.just(Position(0, 20)),
    ),
    min_size=1,
    max_size=4,
)


def key(topic: str, entry: int) -> RunKey:
    ledger = Ledger("test", topic, 0, ObjectId(f"mem://{topic}", 1, "v1"))
    return RunKey(ledger, Run(entry, entry))


class PlannedCacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.cache: PlannedCache[None] = PlannedCache(
            Settings(20, 100, TTL, Policy.NEXT_READ, max_requeues=1)
        )
        self.readings: list[tuple[Reading, str, int, int]] = []
        self.pinned: list[CachedRun[None]] = []
        self.stages = 0
        self.plans: list[str] = []  # ever begun, in this order
        for topic in TOPICS:  # whoever loads a run has said before where it lies
            self.cache.close(self.opened(topic, 0, 0, RUNS))

    @initialize(policy=policies, consumers=some_consumers)
    def choose(self, policy: Policy, consumers: list[Consumer]) -> None:
        self.configure(20, 100, policy, TTL, 1)
        self.begin(consumers)

    @rule(consumers=some_consumers)
    def begin(self, consumers: list[Consumer]) -> None:
        self.plans.append(f"p{len(self.plans)}")
        plan = Plan(self.plans[-1], tuple(consumers))
        assert self.cache.begin([plan], self.now_s) == [plan]

    @rule(data=st.data())
    def begin_again(self, data: st.DataObject) -> None:
        """Under way or over: another task only says so again."""
        plan = Plan(data.draw(st.sampled_from(self.plans)), (Consumer("a"),))
        assert self.cache.begin([plan], self.now_s) == []

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.plans))
        for run in self.cache.end([name], self.now_s):
            assert run.expected_reads == 0

    @rule(topic=topics, part=st.integers(0, 2), again=st.booleans())
    def open_part(self, topic: str, part: int, again: bool) -> None:
        self.stages += not again
        reading = self.opened(topic, part, part * PART, part * PART + PART)
        self.readings.append((reading, topic, part * PART, 0))

    def opened(self, topic: str, part: int, first: int, stop: int) -> Reading:
        return self.cache.open(
            Reader(
                ReadToken(self.stages, part, part), "s", Consumer(topic), RUNS * 10.0
            ),
            self.plans,
            [
                Located(0, at, at + PART - 1, at * 10.0, 80)
                for at in range(first, stop, PART)
            ],
            Position(0, first),
            Position(0, stop),
        )

    @precondition(lambda self: self.readings)
    @rule(data=st.data(), steps=st.lists(st.tuples(sizes, st.booleans()), max_size=5))
    def read_on(self, data: st.DataObject, steps: list[tuple[int, bool]]) -> None:
        index = data.draw(st.integers(0, len(self.readings) - 1))
        for size_bytes, is_finished in steps:
            self.read_one(index, size_bytes, is_finished)

    def read_one(self, index: int, size_bytes: int, is_finished: bool) -> None:
        reading, topic, first, ordinal = self.readings[index]
        if ordinal == PART:
            return
        where = key(topic, first + ordinal)
        if self.cache.take(reading, where, self.now_s) is None:
            self.load(where, size_bytes)
        if is_finished:
            self.cache.finish(reading, ordinal, where, self.now_s)
        self.readings[index] = (reading, topic, first, ordinal + 1)

    @rule(
        wanted=st.lists(
            st.tuples(topics, st.integers(0, RUNS - 1), sizes), min_size=1, max_size=8
        )
    )
    def load_ahead(self, wanted: list[tuple[str, int, int]]) -> None:
        for topic, entry, size_bytes in wanted:
            if self.cache.runs.peek(key(topic, entry), self.now_s) is None:
                self.load(key(topic, entry), size_bytes)

    def load(self, where: RunKey, size_bytes: int) -> None:
        runs = self.cache.runs
        for topic in TOPICS:
            runs.readers_moved(topic)
        before, held_bytes, held_runs = runs.runs(), runs.held_bytes, self.held_runs()
        fits, evicted = self.cache.reserve(where, size_bytes, self.now_s)
        if runs.settings.policy is Policy.NEXT_READ:
            excess_bytes = held_bytes + size_bytes - runs.settings.max_bytes
            excess_runs = held_runs + 1 - runs.settings.max_runs
            if fits:
                self.is_right(where, before, evicted, excess_bytes, excess_runs)
            else:
                assert evicted == []
                self.is_right_to_decline(where, before, excess_bytes, excess_runs)
        if fits:
            self.cache.insert(where, None, size_bytes=size_bytes, now_s=self.now_s)

    def held_runs(self) -> int:
        lent = {run for run in self.pinned if run.place is Place.LENT}
        return len(self.cache.runs) + len(lent)

    def is_right(
        self,
        where: RunKey,
        before: list[CachedRun[None]],
        evicted: list[CachedRun[None]],
        excess_bytes: int,
        excess_runs: int,
    ) -> None:
        """First what nobody expects, the oldest first; then the farthest; no more."""
        here = self.ticks_until_read(where)
        could_go = [run for run in before if not run.pins]
        for run in evicted:
            assert excess_bytes > 0 or excess_runs > 0
            unexpected = [other for other in could_go if not other.expected_reads]
            if unexpected:
                assert run is unexpected[0]
            else:
                ticks = self.ticks_until_read(run.key)
                latest = max(self.ticks_until_read(other.key) for other in could_go)
                assert ticks >= latest - SAME
                assert ticks > here - SAME
            could_go.remove(run)
            excess_bytes -= run.size_bytes
            excess_runs -= 1
        assert excess_bytes <= 0
        assert excess_runs <= 0

    def is_right_to_decline(
        self,
        where: RunKey,
        before: list[CachedRun[None]],
        excess_bytes: int,
        excess_runs: int,
    ) -> None:
        """All that may go for it would not be enough."""
        here = self.ticks_until_read(where)
        may_go = [
            run
            for run in before
            if not run.pins
            and (not run.expected_reads or self.ticks_until_read(run.key) > here + SAME)
        ]
        freed_bytes = sum(run.size_bytes for run in may_go)
        assert freed_bytes < excess_bytes or len(may_go) < excess_runs

    def ticks_until_read(self, where: RunKey) -> float:
        forecast = self.cache._forecast
        return forecast.ticks_until_read(where.ledger.topic, forecast.place(where))

    @precondition(lambda self: self.readings)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.readings) - 1))
        self.cache.close(self.readings.pop(index)[0])

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        held = self.cache.runs.runs()
        if held:
            self.pinned.append(data.draw(st.sampled_from(held)))
            self.cache.runs.pin(self.pinned[-1])

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        run = self.pinned.pop(data.draw(st.integers(0, len(self.pinned) - 1)))
        self.cache.runs.unpin(run)

    @rule(seconds=st.sampled_from((1, 1, 1, 15, 60)), is_seen=st.booleans())
    def pass_time(self, seconds: float, is_seen: bool) -> None:
        self.now_s += seconds
        if is_seen:
            self.cache.runs.expire(self.now_s)

    @rule(
        max_bytes=st.sampled_from((20, 20, 20, 40, 10, 0)),
        max_runs=st.sampled_from((100, 100, 4)),
        policy=policies,
        ttl=st.sampled_from((TTL, TTL, Ttl(5, None, 10), Ttl(500, 200, 1000))),
        max_requeues=st.integers(0, 2),
    )
    def configure(
        self, max_bytes: int, max_runs: int, policy: Policy, ttl: Ttl, max_requeues: int
    ) -> None:
        settings = Settings(max_bytes, max_runs, ttl, policy, max_requeues=max_requeues)
        self.cache.runs.configure(settings, self.now_s)

    @invariant()
    def holds(self) -> None:
        self.cache.check(self.now_s)
        for run in self.cache.runs.runs():
            assert 0.0 <= self.ticks_until_read(run.key) <= inf

    def teardown(self) -> None:
        for reading, *_ in self.readings:
            self.cache.close(reading)
        for run in self.pinned:
            self.cache.runs.unpin(run)
        self.cache.end(self.plans, self.now_s)
        self.cache.check(self.now_s)
        assert not any(run.expected_reads for run in self.cache.runs.runs())
        assert not self.cache._forecast._topics


TestPlannedCacheInAnyOrder = PlannedCacheMachine.TestCase
TestPlannedCacheInAnyOrder.settings = hypothesis_settings(
    max_examples=150, stateful_step_count=50, deadline=None
)
