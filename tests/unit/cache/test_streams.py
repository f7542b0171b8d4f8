"""Streams as consumers: what is held for them, until when."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from sparkcache.cache import PlannedCache, Policy, Settings
from sparkcache.demand import (
    NOT_BEGUN,
    Consumer,
    ExtentOffset,
    PartitionRead,
    Plan,
    ReaderIdentity,
)
from sparkcache.model import Position, ReadToken, RunKey, Slot
from tests.unit.cache.cache_cases import PULSAR
from tests.unit.cache.cache_cases import key as key_of

TTL = replace(PULSAR, create_s=1e9, after_read_s=5.0, expected_s=1e9)
SETTINGS = Settings(8, 100, TTL, Policy.NEXT_READ, continue_s=30.0)
RUNS = 8  # of the topic, of ten entries each
A, B = "run-a/query-a/1", "run-b/query-b/1"
A_AGAIN = "run-c/query-a/2"
TOPIC = "s3://bucket#a"


def key(index: int) -> RunKey:
    return key_of(index, topic=TOPIC)


class World:
    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.cache: PlannedCache[None] = PlannedCache(settings)
        self.now_s = 0.0
        self._stages = 0

    def begin(self, name: str, batch: int, first: int, scans: int = 1) -> None:
        """A stream begins a batch at an entry."""
        left = Consumer(TOPIC, Position(0, first))
        self.cache.begin([Plan(name, (left,) * scans, batch)], self.now_s)
        self.cache.check(self.now_s)

    def reach(self, query: str, topic: str, entry: int) -> list[int]:
        """A query has read a topic up to an entry; return what batches begin then."""
        moved = self.cache.reach(query, {topic: Position(0, entry)}, self.now_s)
        self.cache.check(self.now_s)
        return [plan.batch for plan in moved]

    def read(self, first: int, stop: int, *names: str) -> list[int]:
        """Read entries in a task; return the runs that had to be loaded."""
        self._stages += 1
        partition_read = self._open(first, stop, names)
        loaded = []
        for ordinal, index in enumerate(range(first // 10, -(-stop // 10))):
            where = key(index)
            if self.cache.take(partition_read, where, self.now_s) is None:
                loaded.append(index)
                self._load(where)
            self.cache.finish(partition_read, ordinal, where, self.now_s)
            self.cache.check(self.now_s)
        self.cache.close(partition_read)
        return loaded

    def batch(self, name: str, batch: int, first: int, stop: int) -> list[int]:
        self.begin(name, batch, first)
        return self.read(first, stop, name)

    def expected(self) -> list[int]:
        """How many reads each run is expected to have, if it was held."""
        return [self.cache._forecast.expected(key(index)) for index in range(RUNS)]

    def held(self) -> set[int]:
        self.cache.runs.expire(self.now_s)
        return {run.key.run.first // 10 for run in self.cache.runs.runs()}

    def _open(self, first: int, stop: int, names: tuple[str, ...]) -> PartitionRead:
        consumer = Consumer(TOPIC, Position(0, first), Position(0, stop))
        return self.cache.open(
            ReaderIdentity(ReadToken(self._stages, 0), "s", consumer, RUNS * 10.0),
            names,
            [ExtentOffset(0, 0, 10 * RUNS - 1, 0.0, 10 * RUNS)],
            Position(0, first),
            Position(0, stop),
        )

    def _load(self, where: RunKey) -> None:
        slot, _ = self.cache.reserve(where, 1, self.now_s)
        if slot is not None:
            self.cache.insert(where, None, slot=Slot(1), now_s=self.now_s)
            self.cache.runs.get(where, self.now_s)


def test_a_cursor_expects_what_it_has_not_read() -> None:
    world = World()
    world.begin(A, 1, 20)
    assert world.expected() == [0, 0, 1, 1, 1, 1, 1, 1]
    world.read(20, 40, A)
    assert world.expected() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_cursors_and_plans_count_together() -> None:
    world = World()
    world.begin(A, 1, 20)
    world.begin(B, 1, 50)
    world.cache.begin([Plan("job", (Consumer(TOPIC),))], 0.0)
    assert world.expected() == [1, 1, 2, 2, 2, 3, 3, 3]


def test_a_stream_that_begins_takes_the_place_of_one_that_was_to_come() -> None:
    world = World()
    to_come = [Plan(name, (Consumer(TOPIC),), NOT_BEGUN) for name in ("p", "q")]
    world.cache.begin([*to_come, Plan("job", (Consumer(TOPIC),))], 0.0)
    assert world.expected() == [3] * RUNS
    world.begin(A, 1, 20)
    assert world.expected() == [2, 2, 3, 3, 3, 3, 3, 3]
    world.begin(A, 3, 40)
    assert world.expected() == [2, 2, 2, 2, 3, 3, 3, 3]
    world.begin(B, 1, 0)
    assert world.expected() == [2, 2, 2, 2, 3, 3, 3, 3]
    world.begin("run-c/query-c/1", 1, 0)
    assert world.expected() == [3, 3, 3, 3, 4, 4, 4, 4]
    assert world.cache.begin(to_come, 0.0) == []


def test_streams_at_different_positions_share_runs() -> None:
    world = World()
    world.begin(A, 1, 0)
    world.begin(B, 1, 0)
    assert world.batch(A, 1, 0, 40) == [0, 1, 2, 3]
    world.now_s = 100.0
    assert world.batch(B, 1, 0, 20) == []
    assert world.batch(A, 2, 40, 60) == [4, 5]
    world.now_s = 200.0
    assert world.batch(B, 2, 20, 60) == []
    world.now_s = 300.0
    assert world.held() == set()


def test_a_stream_that_begins_soon_after_another_finds_what_it_has_read() -> None:
    """Unlike a plan, a cursor knows of nobody else."""
    world = World()
    assert world.batch(A, 1, 0, 40) == [0, 1, 2, 3]
    assert world.batch(B, 1, 0, 40) == []


def test_a_job_that_reads_last_leaves_what_streams_may_come_to() -> None:
    world = World()
    world.begin(A, 1, 40)
    world.cache.begin([Plan("job", (Consumer(TOPIC),))], 0.0)
    assert world.read(0, 40, "job") == [0, 1, 2, 3]
    assert world.batch(B, 1, 0, 40) == []


def test_a_batch_that_fails_is_expected_again() -> None:
    world = World()
    world.begin(A, 1, 0)
    partition_read = world._open(0, 40, (A,))
    world.cache.take(partition_read, key(0), 0.0)
    world.cache.close(partition_read)
    assert world.expected()[:4] == [1, 1, 1, 1]


def test_a_batch_that_is_read_again_counts_once() -> None:
    world = World()
    world.batch(A, 1, 0, 40)
    world.read(0, 40, A)
    assert world.expected() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_stream_that_is_scanned_twice_by_its_query() -> None:
    world = World()
    world.begin(A, 1, 0)
    world.begin(A, 2, 0, scans=2)
    world.read(0, 40, A)
    assert world.expected() == [1, 1, 1, 1, 2, 2, 2, 2]
    world.now_s = 100.0
    assert world.read(0, 40, A) == []
    assert world.expected() == [0, 0, 0, 0, 2, 2, 2, 2]


def test_a_run_that_two_batches_share_is_expected_until_the_second() -> None:
    world = World()
    world.batch(A, 1, 0, 15)
    assert world.expected()[:3] == [0, 1, 1]
    world.now_s = 100.0
    assert world.batch(A, 2, 15, 20) == []
    assert world.expected()[:3] == [0, 0, 1]


def test_what_others_have_read_for_a_stream_is_not_waited_for_here() -> None:
    world = World()
    world.begin(A, 1, 0)
    world.read(0, 40)
    assert world.held() == {0, 1, 2, 3}
    world.begin(A, 2, 30)
    world.now_s = 100.0
    assert world.held() == {3}


def test_what_a_query_has_read_elsewhere_is_not_waited_for() -> None:
    world = World()
    world.begin(A, 2, 0)
    world.begin(B, 2, 0)
    world.read(0, 80)
    assert world.reach("run-a", "b", 50) == []
    assert world.reach("run-a", "a", 50) == [3]
    assert world.expected() == [1] * 5 + [2] * 3
    assert world.reach("run-a", "a", 50) == world.reach("run-a", "a", 20) == []
    world.reach("run-b", "a", 80)
    world.now_s = 100.0
    assert world.held() == {5, 6, 7}
    world.begin(A, 2, 0)
    assert world.expected()[0] == 0
    world.begin(A, 4, 70)
    assert world.expected() == [0] * 7 + [1]


def test_a_part_that_came_late_is_read_before_the_others() -> None:
    late = Consumer(TOPIC, Position(0, 0), Position(0, 20))
    plan = Plan(A, (late, Consumer(TOPIC, Position(0, 60))), 2)
    assert plan.remaining_after({"a": Position(0, 20)}).consumers == plan.consumers[1:]
    assert plan.remaining_after({"a": Position(0, 10)}).consumers[0].start == Position(
        0, 10
    )


def test_a_task_of_an_earlier_batch_does_not_move_it_back() -> None:
    world = World()
    world.begin(A, 2, 40)
    world.begin(A, 1, 0)
    assert world.expected() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("name", ["run-a", A], ids=["the query's run", "itself"])
def test_a_stopped_stream_is_not_waited_for(name: str) -> None:
    world = World()
    world.begin(A, 1, 0)
    world.begin(B, 1, 0)
    world.read(0, 40)
    world.cache.end([name], world.now_s)
    assert world.expected() == [1] * RUNS
    world.cache.end([B], world.now_s)
    assert world.expected() == [0] * RUNS
    world.begin(A, 2, 0)
    assert world.expected() == [0] * RUNS
    world.now_s = 100.0
    assert world.held() == set()


def test_a_query_that_runs_again_is_not_waited_for_twice() -> None:
    world = World()
    world.begin(A, 2, 20)
    world.begin(B, 2, 40)
    world.begin(A_AGAIN, 2, 60)
    assert world.expected() == [0, 0, 0, 0, 1, 1, 2, 2]
    world.begin(A, 4, 0)
    assert world.expected() == [0, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("continue_s", "begins_again", "taken_in"),
    [
        pytest.param(30.0, False, True, id="the last cursor has left just now"),
        pytest.param(0.0, False, False, id="as if it had never been there"),
        pytest.param(20.0, False, False, id="the last cursor left long ago"),
        pytest.param(30.0, True, False, id="another one reads elsewhere"),
    ],
)
def test_runs_are_taken_in_for_a_while_after_the_last_cursor_left(
    continue_s: float, begins_again: bool, taken_in: bool
) -> None:
    world = World(replace(SETTINGS, max_bytes=2, continue_s=continue_s))
    world.cache.close(world._open(0, 10 * RUNS, ()))  # now it knows where runs lie
    world.begin(A, 1, 40)
    world.cache.end(["run-a"], 0.0)
    if begins_again:
        world.begin(B, 1, 70)
    world.now_s = 25.0
    world.cache.expire_ended_streams(world.now_s)
    assert (world.cache._forecast.ticks_until_read(TOPIC, 45.0) < inf) == taken_in
    assert world.expected()[4] == 0


def test_a_long_stream_leaves_nothing_behind() -> None:
    world = World()
    for batch in range(100):
        world.batch(A, batch + 1, batch % 8 * 10, batch % 8 * 10 + 10)
    forecast = world.cache._forecast
    assert len(forecast._topics[TOPIC].scans) <= 2
    progress = forecast._expected._active[A]
    assert len(progress.done) <= 1
    assert len(progress.reads) <= RUNS
