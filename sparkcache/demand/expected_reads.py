"""How many planned scans have still to read each run.

A stream is a plan that moves on: each batch replaces its consumers by what the stream
has still to read, which is everything after its offset. Reads before it are forgotten.

A plan says how many consumers read a run. Each consumer reads it in one task, whose
token is the same for every attempt, and whose runs come in a fixed order. So a token
that has finished its run k has finished all runs before it, and one number per token
distinguishes a read from its repetition.

Source: Apache Pulsar PIP-430 counts the cursors at or before an entry when it is
cached, and adds one when an entry is to be delivered again. Different here: the
consumers are counted before they exist, and a repeated read was never counted in the
first place, so nothing has to be added.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cachetools import FIFOCache

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
    """The reads to come of all active plans."""

    def __init__(self) -> None:
        self._active: dict[str, _Progress] = {}
        self._consumers = Consumers()  # of all active plans
        self._reads: dict[RunKey, int] = {}  # of all active plans
        self._ended: FIFOCache[str, None] = FIFOCache(_ENDED_REMEMBERED)

    def __repr__(self) -> str:
        return f"ExpectedReads({', '.join(self._active) or 'no plan'})"

    def begin(self, plan: Plan) -> bool:
        """Begin a plan; return False if it is known or over already."""
        if plan.id in self._active or plan.matches(self._ended):
            return False
        self._start(_Progress(plan, Consumers(plan.consumers)))
        return True

    def move(self, plan: Plan) -> Plan | None:
        """Move a stream to its next batch; return its previous plan, if it moved."""
        progress = self._active.get(plan.id)
        if progress is None or plan.batch <= progress.plan.batch:
            return None
        consumers = Consumers(plan.consumers)
        reads = Counter(
            {
                key: count
                for key, count in progress.reads.items()
                if consumers.reads(key)
            }
        )
        self._stop(progress)
        self._start(_Progress(plan, consumers, reads))
        return progress.plan

    def end(self, ids: Iterable[str]) -> list[Plan]:
        """End plans for good: late tasks do not bring them back."""
        ended_ids = dict.fromkeys(ids)
        ended = [
            progress.plan
            for progress in self._active.values()
            if progress.plan.matches(ended_ids)
        ]
        for plan in ended:
            self._stop(self._active[plan.id])
        self._ended.update(ended_ids)
        return ended

    def expected(self, key: RunKey) -> int:
        """Return how many planned reads of a run are still to come."""
        return self._consumers.reads(key) - self._reads.get(key, 0)

    def mark_read(
        self,
        plan_ids: Iterable[str],
        token: ReadToken,
        ordinal: int,
        key: RunKey,
        end: Position | None = None,
    ) -> bool:
        """Note that a task has finished its `ordinal`-th run.

        A stream has not finished a run whose entries continue after `end`, the end of
        its scan.

        Returns whether that was a planned read that had not been counted yet.
        """
        counted = False
        for plan_id in plan_ids:
            progress = self._active.get(plan_id)
            if progress is None or ordinal <= progress.done.get(token, -1):
                continue
            progress.done[token] = ordinal
            if progress.plan.is_stream and _continues_after(key, end):
                continue
            reads = progress.reads.get(key, 0)
            if reads < progress.consumers.reads(key):
                progress.reads[key] = reads + 1
                self._add(key, 1)
                counted = True
        return counted

    def catch_up(self, plan_ids: Iterable[str], key: RunKey, reads: int) -> None:
        """Note that so many planned reads of a run are done, wherever that was."""
        for plan_id in plan_ids:
            progress = self._active.get(plan_id)
            if progress is not None and not progress.plan.is_stream:
                known = progress.reads.get(key, 0)
                more = min(reads, progress.consumers.reads(key)) - known
                if more > 0:
                    progress.reads[key] = known + more
                    self._add(key, more)

    def streams(self, query: str) -> list[Plan]:
        """Return the plans of the streams that a query, named by its run, reads."""
        return [
            progress.plan
            for progress in self._active.values()
            if progress.plan.is_stream and progress.plan.matches((query,))
        ]

    def other_runs(self, plan: Plan) -> list[str]:
        """Return the other runs of a stream's query that have not ended yet."""
        active = (progress.plan for progress in self._active.values())
        return [other.run for other in active if plan.is_another_run(other)]

    def placeholders_for(self, stream: Plan) -> list[str]:
        """Return the placeholders that a stream replaces, at most one per topic."""
        active = (progress.plan for progress in self._active.values())
        placeholders = {
            topic: plan.id
            for plan in active
            if not plan.has_begun
            for topic in plan.topics
        }
        return [placeholders[topic] for topic in stream.topics if topic in placeholders]

    def is_stream(self, plan_id: str) -> bool:
        """Return whether a plan is the active plan of a stream."""
        progress = self._active.get(plan_id)
        return progress is not None and progress.plan.is_stream

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        assert not self._ended.keys() & self._active.keys()
        for progress in self._active.values():
            for key, reads in progress.reads.items():
                assert 0 <= reads <= progress.consumers.reads(key)
        total: Counter[RunKey] = Counter()
        for progress in self._active.values():
            total.update(progress.reads)
        assert self._reads == +total
        for key in total:
            readers = (active.consumers.reads(key) for active in self._active.values())
            assert self._consumers.reads(key) == sum(readers)

    def _start(self, progress: _Progress) -> None:
        self._active[progress.plan.id] = progress
        for consumer in progress.plan.consumers:
            self._consumers.add(consumer)
        for key, reads in progress.reads.items():
            self._add(key, reads)

    def _stop(self, progress: _Progress) -> None:
        del self._active[progress.plan.id]
        for consumer in progress.plan.consumers:
            self._consumers.remove(consumer)
        for key, reads in progress.reads.items():
            self._add(key, -reads)

    def _add(self, key: RunKey, reads: int) -> None:
        """Add to the reads of all plans; runs that have none are not listed."""
        total = self._reads.get(key, 0) + reads
        if total:
            self._reads[key] = total
        else:
            self._reads.pop(key, None)


def _continues_after(key: RunKey, end: Position | None) -> bool:
    """Return whether a run has entries at or after a position."""
    return end is not None and Position(key.ledger.id, key.run.last) >= end
