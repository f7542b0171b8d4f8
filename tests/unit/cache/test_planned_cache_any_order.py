"""Plans, readers and runs in any order: invariants, and the right run goes."""

from __future__ import annotations

from dataclasses import replace
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

from sparkcache.cache import CachedRun, PlannedCache, Policy, Settings, Ttl
from sparkcache.demand import (
    Consumer,
    ExtentOffset,
    PartitionRead,
    Plan,
    ReaderIdentity,
)
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey, Slot
from tests.effort import tries

RUNS = 24  # of a topic, of one entry and 10 stored bytes each; a partition has 8
PART = 8
TOPICS = ("mem://#a", "mem://#b")
PLANS = ("p", "q", "r")
STREAMS = ("run-s", "run-t")
READ_UNDER = (*PLANS, *(f"{name}/1" for name in STREAMS))
CONTINUE_S = 40.0
TTL = Ttl(create_s=50, after_read_s=20, expected_s=100)

topics = st.sampled_from(TOPICS)
sizes = st.sampled_from((1, 3, 8))


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
        self.partition_reads: list[tuple[PartitionRead, str, int, int]] = []
        self.pinned: list[CachedRun[None]] = []
        self.stages = 0
        self.batches = 0
        self.seen: set[tuple[str, int]] = set()  # partitions that were ever opened

    @initialize(
        policy=st.sampled_from((Policy.NEXT_READ,) * 3 + tuple(Policy)),
        get_cost_bytes=st.sampled_from((0, 4)),
    )
    def choose(self, policy: Policy, get_cost_bytes: int) -> None:
        self.configure(20, 100, policy, get_cost_bytes=get_cost_bytes)

    @rule(
        name=st.sampled_from(PLANS),
        consumers=st.lists(
            st.builds(
                Consumer,
                topics,
                st.none() | st.just(Position(0, 10)),
                st.none() | st.just(Position(0, 20)),
            ),
            min_size=1,
            max_size=4,
        ),
    )
    def begin(self, name: str, consumers: list[Consumer]) -> None:
        self.cache.begin([Plan(name, tuple(consumers))], self.now_s)

    @rule(
        name=st.sampled_from(STREAMS),
        topic=topics,
        first=st.integers(0, RUNS),
        is_late=st.booleans(),
    )
    def stream(self, name: str, topic: str, first: int, is_late: bool) -> None:
        """A batch of a stream begins, or one of an earlier batch's tasks does."""
        self.batches += 0 if is_late else 2
        left = Consumer(topic, Position(0, first))
        batch = max(self.batches - is_late, 1)
        self.cache.begin([Plan(f"{name}/1", (left,), batch)], self.now_s)

    @rule(name=st.sampled_from(STREAMS), topic=topics, entry=st.integers(0, RUNS))
    def reach(self, name: str, topic: str, entry: int) -> None:
        """A stream has read what is before an entry, maybe elsewhere."""
        read = {topic.rpartition("#")[2]: Position(0, entry)}
        self.cache.reach(name, read, self.now_s)
        for plan in self.cache._forecast.streams(name):
            for consumer in plan.consumers:
                if consumer.topic == topic:
                    assert (consumer.start or Position(0, 0)) >= Position(0, entry)
                    assert consumer.end is None or consumer.end.entry > entry

    @rule(name=st.sampled_from((*PLANS, *STREAMS)))
    def end(self, name: str) -> None:
        for run in self.cache.end([name], self.now_s):
            assert run.expected_reads == 0

    @rule(topic=topics, part=st.integers(0, 2), again=st.booleans())
    def open_part(self, topic: str, part: int, again: bool) -> None:
        self.stages += not again
        reader = ReaderIdentity(
            ReadToken(self.stages, part, part), "s", Consumer(topic), RUNS * 10.0
        )
        partition_read = self.cache.open(
            reader,
            READ_UNDER,
            [ExtentOffset(0, part * PART, part * PART + PART - 1, part * 80.0, 80)],
            Position(0, part * PART),
            Position(0, part * PART + PART),
        )
        self.partition_reads.append((partition_read, topic, part * PART, 0))
        self.seen.add((topic, part))

    @precondition(lambda self: self.partition_reads)
    @rule(data=st.data(), size_bytes=sizes, is_finished=st.booleans())
    def read_on(self, data: st.DataObject, size_bytes: int, is_finished: bool) -> None:
        index = data.draw(st.integers(0, len(self.partition_reads) - 1))
        partition_read, topic, first, ordinal = self.partition_reads[index]
        if ordinal == PART:
            return
        where = key(topic, first + ordinal)
        if self.cache.take(partition_read, where, self.now_s) is None:
            self.load(where, size_bytes)
        if is_finished:
            self.cache.finish(partition_read, ordinal, where, self.now_s)
        self.partition_reads[index] = (partition_read, topic, first, ordinal + 1)

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), entry=st.integers(0, PART - 1), size_bytes=sizes)
    def load_ahead(self, data: st.DataObject, entry: int, size_bytes: int) -> None:
        topic, part = data.draw(st.sampled_from(sorted(self.seen)))
        where = key(topic, part * PART + entry)
        if self.cache.runs.peek(where, self.now_s) is None:
            self.load(where, size_bytes)

    def load(self, where: RunKey, size_bytes: int) -> None:
        runs, forecast = self.cache.runs, self.cache._forecast
        for topic in TOPICS:  # what stands still is looked at again, too
            runs.readers_moved(topic)
        ticks = {run: self.ticks_until_read(run.key) for run in runs.runs()}
        is_foreseen = runs.settings.policy is Policy.NEXT_READ
        fits, evicted = self.cache.reserve(where, size_bytes, self.now_s)
        if is_foreseen:
            farther = [run for run in evicted if run.expected_reads]
            spared = [run for run in runs.runs() if run.expected_reads and not run.pins]
            here = forecast.ticks_until_read(
                where.ledger.topic, forecast.offset_of(where)
            )
            assert all(ticks[run] > here for run in farther)
            if farther:
                assert not any(not r.expected_reads and not r.pins for r in runs.runs())
                least = min(ticks[run] for run in farther)
                assert all(ticks[run] <= least for run in spared)
        if fits:
            self.cache.insert(where, None, slot=Slot(size_bytes), now_s=self.now_s)

    def ticks_until_read(self, where: RunKey) -> float:
        forecast = self.cache._forecast
        return forecast.ticks_until_read(where.ledger.topic, forecast.offset_of(where))

    @precondition(lambda self: self.partition_reads)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.partition_reads) - 1))
        self.cache.close(self.partition_reads.pop(index)[0])

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

    @rule(
        seconds=st.sampled_from((1, 15, 60, 300)),
        most_runs=st.sampled_from((1, 3, inf)),
    )
    def expire(self, seconds: float, most_runs: float) -> None:
        self.now_s += seconds
        self.cache.expire_ended_streams(self.now_s)
        self.cache.runs.expire(self.now_s, most_runs)

    @rule(
        max_bytes=st.sampled_from((20, 20, 5, 0)),
        max_runs=st.sampled_from((100, 100, 3)),
        policy=st.sampled_from(Policy),
        max_life_s=st.sampled_from((inf, inf, 30, 150)),
        get_cost_bytes=st.sampled_from((0, 4, 100)),
    )
    def configure(
        self,
        max_bytes: int,
        max_runs: int,
        policy: Policy,
        max_life_s: float = inf,
        get_cost_bytes: int = 0,
    ) -> None:
        ttl = replace(TTL, max_life_s=max_life_s)
        settings = Settings(
            max_bytes,
            max_runs,
            ttl,
            policy,
            max_requeues=1,
            continue_s=CONTINUE_S,
            get_cost_bytes=get_cost_bytes,
        )
        self.cache.runs.configure(settings, self.now_s)

    @invariant()
    def holds(self) -> None:
        self.cache.check(self.now_s)
        for run in self.cache.runs.runs():
            assert 0.0 <= self.ticks_until_read(run.key) <= inf

    def teardown(self) -> None:
        for partition_read, *_ in self.partition_reads:
            self.cache.close(partition_read)
        for run in self.pinned:
            self.cache.runs.unpin(run)
        self.cache.end((*PLANS, *STREAMS), self.now_s)
        self.cache.expire_ended_streams(self.now_s + CONTINUE_S)
        self.cache.check(self.now_s)
        self.cache.runs.expire(self.now_s)  # what a short pass has left
        assert not any(run.expected_reads for run in self.cache.runs.runs())
        assert not self.cache._forecast._topics


TestPlannedCacheInAnyOrder = PlannedCacheMachine.TestCase
TestPlannedCacheInAnyOrder.settings = hypothesis_settings(
    max_examples=tries(37), stateful_step_count=50
)
