"""How far the consumers of each plan have read, as seen by this node."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.demand import PartitionRead, Plan, ReaderIdentity
    from sparkcache.model import ReadToken

_MAX_PLANS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMetrics:
    """What the tasks of one node have read of a topic for a plan.

    Attributes:
        plan: The plan's id.
        topic: The topic's name and URI.
        consumers: How many of the plan's scans read the topic.
        read_bytes: Stored bytes they have read so far.
        end_bytes: Where in the topic the last of these scans ends; 0 if none began.
        is_over: Whether the plan has ended.

    """

    plan: str
    topic: str
    consumers: int
    read_bytes: int
    end_bytes: int
    is_over: bool


@dataclass(slots=True)
class _Progress:
    plan: Plan
    is_over: bool = False
    read_bytes: dict[str, int] = field(default_factory=dict)
    end_bytes: dict[str, int] = field(default_factory=dict)
    done: dict[ReadToken, int] = field(default_factory=dict)


class PlanProgress:
    """The latest plans that the node knows, and what was read for them."""

    def __init__(self) -> None:
        self._plans: dict[str, _Progress] = {}

    def __repr__(self) -> str:
        return f"PlanProgress({len(self._plans)} plans)"

    def begin(self, plans: Iterable[Plan]) -> None:
        """Add new plans; plans of earlier runs of the same queries end."""
        for plan in (plan for plan in plans if plan.has_begun):
            known = [progress.plan for progress in self._plans.values()]
            self.end(other.run for other in known if plan.is_another_run(other))
            self._plans[plan.id] = _Progress(plan)
        while len(self._plans) > _MAX_PLANS:
            over = (id_ for id_, known in self._plans.items() if known.is_over)
            del self._plans[next(over, next(iter(self._plans)))]

    def end(self, plan_ids: Iterable[str]) -> None:
        """Mark plans as over."""
        ids = list(plan_ids)
        for progress in self._plans.values():
            if progress.plan.matches(ids):
                progress.is_over = True
                progress.done.clear()

    def move(self, plans: Iterable[Plan]) -> None:
        """Move known streams to their next batches."""
        for plan in plans:
            progress = self._plans.get(plan.id)
            if progress is not None and plan.batch > progress.plan.batch:
                progress.plan = plan
                progress.done.clear()

    def open(self, partition_read: PartitionRead, reader: ReaderIdentity) -> None:
        """Record that a task begins to read for its plans."""
        topic = reader.consumer.topic
        for progress in self._active(partition_read):
            known = progress.end_bytes.get(topic, 0)
            end = int(reader.end) if isfinite(reader.end) else 0
            progress.end_bytes[topic] = max(known, end)

    def read(
        self, partition_read: PartitionRead, topic: str, ordinal: int, stored_bytes: int
    ) -> None:
        """Record that a task has read its `ordinal`-th run."""
        for progress in self._active(partition_read):
            if ordinal > progress.done.get(partition_read.token, -1):
                progress.done[partition_read.token] = ordinal
                previous = progress.read_bytes.get(topic, 0)
                progress.read_bytes[topic] = previous + stored_bytes

    def records(self) -> list[PlanMetrics]:
        """Return the progress of each plan in each of its topics."""
        return [
            PlanMetrics(
                plan=progress.plan.id,
                topic=topic,
                consumers=sum(
                    consumer.topic == topic for consumer in progress.plan.consumers
                ),
                read_bytes=progress.read_bytes.get(topic, 0),
                end_bytes=progress.end_bytes.get(topic, 0),
                is_over=progress.is_over,
            )
            for progress in self._plans.values()
            for topic in dict.fromkeys(
                consumer.topic for consumer in progress.plan.consumers
            )
        ]

    def _active(self, partition_read: PartitionRead) -> list[_Progress]:
        known = map(self._plans.get, partition_read.plan_ids)
        return [progress for progress in known if progress and not progress.is_over]
