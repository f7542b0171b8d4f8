"""How many planned scans have still to read each run.

A stream is a plan that moves on: with each of its batches it says anew what it has
still to read, which is everything behind. What was read before is forgotten then.

A plan says how many consumers read a run. Each of them reads it in one task, whose
token is the same for every attempt at it, and whose runs come in a fixed order. So
a token that has finished with its run k has finished with all before it, and one
number per token tells a read from its repetition.

Source: Apache Pulsar PIP-430 counts the cursors at or before an entry when it is
cached, and adds one when an entry is to be delivered again. Different here: the
consumers are counted before they exist, and a read that is repeated was never
counted in the first place, so nothing is to be added.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.demand.plan import Consumers
from sparkcache.model import Position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.demand.plan import Plan
    from sparkcache.model import ReadToken, RunKey

_ENDED_REMEMBERED = 10_000


@dataclass(slots=True)
class _Progress:
    plan: Plan
    consumers: Consumers
    reads: Counter[RunKey] = field(default_factory=Counter)
    done: dict[ReadToken, int] = field(default_factory=dict)


class ExpectedReads:
    """The reads to come of every plan that is under way."""

    def __init__(self) -> None:
        self._active: dict[str, _Progress] = {}
        self._ended: dict[str, None] = {}  # in the order in which they did

    def __repr__(self) -> str:
        return f"ExpectedReads({', '.join(self._active) or 'no plan'})"

    def begin(self, plan: Plan) -> bool:
        """Take up a plan; False if it is known or over already."""
        if plan.id in self._active or plan.is_named(self._ended):
            return False
        self._active[plan.id] = _Progress(plan, Consumers(plan.consumers))
        return True

    def move(self, plan: Plan) -> Plan | None:
        """Take up the next batch of a stream; return what it was before, if that."""
        progress = self._active.get(plan.id)
        if progress is None or plan.batch <= progress.plan.batch:
            return None
        consumers = Consumers(plan.consumers)
        reads = Counter(
            {key: n for key, n in progress.reads.items() if consumers.reads(key)}
        )
        self._active[plan.id] = _Progress(plan, consumers, reads)
        return progress.plan

    def end(self, ids: Iterable[str]) -> list[Plan]:
        """Forget plans, for good: tasks that come late do not bring them back."""
        given = dict.fromkeys(ids)
        ended = [
            progress.plan
            for progress in self._active.values()
            if progress.plan.is_named(given)
        ]
        for plan in ended:
            del self._active[plan.id]
        self._ended |= given
        while len(self._ended) > _ENDED_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        return ended

    def expected(self, key: RunKey) -> int:
        """Return how many planned reads of a run are still to come."""
        return sum(
            max(progress.consumers.reads(key) - progress.reads[key], 0)
            for progress in self._active.values()
        )

    def mark_read(
        self,
        plan_ids: Iterable[str],
        token: ReadToken,
        ordinal: int,
        key: RunKey,
        end: Position | None = None,
    ) -> bool:
        """Note that a task has finished with the run that is its `ordinal`-th.

        Where its scan ended before the run did, a stream has not finished with it.

        Returns whether that was a planned read that had not been counted.
        """
        counted = False
        for plan_id in plan_ids:
            progress = self._active.get(plan_id)
            if progress is None or ordinal <= progress.done.get(token, -1):
                continue
            progress.done[token] = ordinal
            if progress.plan.is_stream and _goes_on(key, end):
                continue
            if progress.reads[key] < progress.consumers.reads(key):
                progress.reads[key] += 1
                counted = True
        return counted

    def streams(self, query: str) -> list[Plan]:
        """Return the plans of the streams that a query reads."""
        return [
            progress.plan
            for progress in self._active.values()
            if progress.plan.is_stream and progress.plan.is_named((query,))
        ]

    def other_runs(self, plan: Plan) -> list[str]:
        """Return the other runs of a stream's query that nobody has ended yet."""
        active = (progress.plan for progress in self._active.values())
        return [other.run for other in active if plan.is_another_run(other)]

    def awaited(self, stream: Plan) -> list[str]:
        """Return plans that stood for a stream until now, of each topic one at most."""
        coming = (it.plan for it in self._active.values() if not it.plan.is_read_for)
        found = {topic: plan.id for plan in coming for topic in plan.topics}
        return [found[topic] for topic in stream.topics if topic in found]

    def is_stream(self, plan_id: str) -> bool:
        """Tell whether a plan is that of a stream that is under way."""
        progress = self._active.get(plan_id)
        return progress is not None and progress.plan.is_stream

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        assert not self._ended.keys() & self._active.keys()
        for progress in self._active.values():
            for key, reads in progress.reads.items():
                assert 0 <= reads <= progress.consumers.reads(key)


def _goes_on(key: RunKey, end: Position | None) -> bool:
    """Tell whether a run has entries at a position or behind it."""
    return end is not None and Position(key.ledger.id, key.run.last) >= end
