"""How many planned scans have still to read a run."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkcache.demand import Consumer, ExpectedReads, Plan
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey

TOPIC = "a"


def key(first: int, ledger: int = 5, topic: str = TOPIC) -> RunKey:
    """The run of entries 10 * first to 10 * first + 9."""
    found = Ledger("test", topic, ledger, ObjectId(f"mem://{ledger}", 1, "v1"))
    return RunKey(found, Run(10 * first, 10 * first + 9))


def token(stage: int) -> ReadToken:
    return ReadToken(stage, 0)


@pytest.mark.parametrize(
    ("consumer", "is_read"),
    [
        pytest.param(Consumer(TOPIC), True, id="all of the topic"),
        pytest.param(Consumer("b"), False, id="another topic"),
        pytest.param(
            Consumer(TOPIC, start=Position(5, 19)), True, id="from its last entry on"
        ),
        pytest.param(
            Consumer(TOPIC, start=Position(5, 20)), False, id="from the next run on"
        ),
        pytest.param(
            Consumer(TOPIC, start=Position(4, 99)), True, id="from an earlier ledger on"
        ),
        pytest.param(
            Consumer(TOPIC, end=Position(5, 11)), True, id="up to its first entry"
        ),
        pytest.param(
            Consumer(TOPIC, end=Position(5, 10)), False, id="up to the run before"
        ),
        pytest.param(
            Consumer(TOPIC, end=Position(6, 0)), True, id="up to the end of the ledger"
        ),
    ],
)
def test_a_consumer_reads_the_runs_in_its_range(
    consumer: Consumer, is_read: bool
) -> None:
    expected = ExpectedReads()
    expected.begin(Plan("p", (consumer,)))
    assert expected.expected(key(1)) == is_read


def test_a_token_counts_once_for_each_of_its_runs() -> None:
    expected = ExpectedReads()
    expected.begin(Plan("p", (Consumer(TOPIC),) * 3))
    assert expected.mark_read(["p"], token(1), 0, key(0))
    assert not expected.mark_read(["p"], token(1), 0, key(0))  # the second attempt
    assert expected.mark_read(["p"], token(1), 1, key(1))
    assert expected.mark_read(["p"], token(2), 0, key(0))  # the join's other side
    assert [expected.expected(key(n)) for n in range(3)] == [1, 2, 3]


def test_reads_beyond_the_plan_count_nothing() -> None:
    expected = ExpectedReads()
    expected.begin(Plan("p", (Consumer(TOPIC),)))
    assert expected.mark_read(["p"], token(1), 0, key(0))
    assert not expected.mark_read(["p"], token(2), 0, key(0))
    assert not expected.mark_read(["p"], token(2), 1, key(0, topic="b"))
    assert not expected.mark_read(["q"], token(3), 0, key(1))
    assert expected.expected(key(0)) == 0


def test_a_plan_begins_once_and_ends_for_good() -> None:
    expected, plan = ExpectedReads(), Plan("p", (Consumer(TOPIC),))
    assert expected.begin(plan)
    assert not expected.begin(plan)
    assert expected.end(["p", "unknown"]) == [plan]
    assert expected.end(["p"]) == []
    assert not expected.begin(plan)
    assert not expected.begin(Plan("unknown", ()))
    assert expected.expected(key(0)) == 0


def test_what_has_ended_long_ago_is_forgotten() -> None:
    expected = ExpectedReads()
    expected.end(map(str, range(10_001)))
    assert expected.begin(Plan("0", ()))
    assert not expected.begin(Plan("1", ()))


class ExpectedReadsMachine(RuleBasedStateMachine):
    """Agrees with a list of every read that ever took place."""

    def __init__(self) -> None:
        super().__init__()
        self.expected = ExpectedReads()
        self.plans: dict[str, Plan] = {}
        self.ended: set[str] = set()
        self.read: dict[str, set[tuple[ReadToken, int]]] = {}

    @rule(name=st.sampled_from("pqr"), consumers=st.integers(0, 3))
    def begin(self, name: str, consumers: int) -> None:
        plan = Plan(name, (Consumer(TOPIC),) * consumers)
        is_new = name not in self.plans and name not in self.ended
        assert self.expected.begin(plan) == is_new
        if is_new:
            self.plans[name], self.read[name] = plan, set()

    @rule(name=st.sampled_from("pqr"))
    def end(self, name: str) -> None:
        plan = self.plans.pop(name, None)
        assert self.expected.end([name]) == ([] if plan is None else [plan])
        self.ended.add(name)

    @rule(
        stage=st.integers(0, 3),
        runs=st.integers(1, 5),
        names=st.sets(st.sampled_from("pqr")),
    )
    def attempt(self, stage: int, runs: int, names: set[str]) -> None:
        """A task reads its first runs, in order, whether it did so before or not."""
        for run in range(runs):
            counted = [
                name
                for name in names & self.plans.keys()
                if (token(stage), run) not in self.read[name]
                and self.left(name, run) > 0
            ]
            for name in names & self.plans.keys():
                self.read[name].add((token(stage), run))
            is_counted = self.expected.mark_read(names, token(stage), run, key(run))
            assert is_counted == bool(counted)

    @invariant()
    def agrees(self) -> None:
        self.expected.check()
        for run in range(5):
            left = sum(self.left(name, run) for name in self.plans)
            assert self.expected.expected(key(run)) == left

    def left(self, name: str, run: int) -> int:
        done = sum(at == run for _, at in self.read[name])
        return max(len(self.plans[name].consumers) - done, 0)


TestExpectedReads = ExpectedReadsMachine.TestCase
