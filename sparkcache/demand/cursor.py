"""Cursors: how far a scan that has begun has read, and when it will reach an offset.

Spark runs the partitions of a scan in order, several at once. So a scan has several
offsets: one in each open partition, and its frontier, the end of the last partition
that was opened, for all that follows. Anything before the frontier was read here, or
was left unread by a task that ended early, or is read by another executor.

So a scan approaches the offsets after it in several ways (see `Approach`): each open
partition at its share of the scan's pace, what an ended task has left the later the
longer nobody resumes it, and what follows the frontier once the open partitions are
read. `Cursor._ways` is that rule.

An offset is a number of stored bytes from the beginning of the topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from sparkcache.demand.approach import Approach
from sparkcache.demand.speed import Speed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.demand.approach import Approaches
    from sparkcache.demand.reader_identity import ReaderIdentity
    from sparkcache.demand.topic_pace import TopicPace
    from sparkcache.model import ReadToken

# A speed is estimated again before it has changed by 2 %: after that share of its half-
# life, or of the scan's ticks so far.
_SPEED_SHARE = 0.02

ScanId: TypeAlias = "tuple[int, str, int]"  # stage, plan of partitions, copy


@dataclass(eq=False, slots=True)
class PartitionRead:
    """One attempt to read one partition.

    Attributes:
        cursor: The cursor of the scan.
        token: The token of the partition.
        plan_ids: The plans for which it reads.
        offset: The offset that it reads next.
        end: The offset where it ends.
        closed_tick: When its task ended, if it ended early.
        approach: How the rest of it is approached.

    """

    cursor: Cursor
    token: ReadToken
    plan_ids: tuple[str, ...]
    offset: float
    end: float
    closed_tick: int = 0
    approach: Approach | None = None


class Cursor:
    """A scan that has begun, as far as one node knows it.

    Args:
        approaches: Those of the topic, among which it keeps its own.
        topic_pace: How fast scans of the topic usually are.

    Attributes:
        scan: The id of the scan, unique in its topic.
        topic: The topic that it reads.
        end: The position before which it ends; None for the end of the topic.
        plan_ids: The plans in which it was counted.
        shift: Bytes to add to the offsets that the scan reports: see `TopicLayout`.
        approaches: Its own.
        least_pace: Its pace when it was estimated last: since then it only slowed down.

    """

    def __init__(
        self,
        scan: ScanId,
        reader: ReaderIdentity,
        plan_ids: tuple[str, ...],
        tick: int,
        approaches: Approaches,
        topic_pace: TopicPace,
    ) -> None:
        self.scan = scan
        self.topic = reader.consumer.topic
        self.end = reader.consumer.end
        self.plan_ids = plan_ids
        self.shift = 0.0
        self.least_pace = 0.0
        self._frontier = -inf
        self._planned_end = reader.end
        self._speed = Speed(tick)
        self._recent: float | None = None  # its speed, as estimated last
        self._begun_tick = tick
        self._until_tick = -inf  # when it is to be estimated again
        self._has_moved = False
        self._topic_approaches = approaches
        self._topic_pace = topic_pace
        self.approaches: list[Approach] = []
        self._rest: Approach | None = None  # after the frontier, if apart
        self._tokens: dict[int, ReadToken] = {}
        self._done: set[ReadToken] = set()
        self._open: list[PartitionRead] = []
        self._unfinished: dict[ReadToken, PartitionRead] = {}

    def __repr__(self) -> str:
        offsets = ", ".join(
            f"{partition_read.offset:.0f}" for partition_read in self._open
        )
        return (
            f"<scan of {self.topic} at {offsets or 'no offset'}, frontier "
            f"{self._frontier:.0f} of {self._end:.0f}, {len(self._unfinished)} "
            "unfinished>"
        )

    @property
    def _end(self) -> float:
        return self._planned_end + self.shift

    @property
    def is_open(self) -> bool:
        """Whether any task reads a partition of it now."""
        return bool(self._open)

    @property
    def is_over(self) -> bool:
        """Whether the scan will read nothing more on this node."""
        return not (self._open or self._unfinished or self._frontier < self._end)

    def owns(self, token: ReadToken) -> bool:
        """Return whether a partition with the scan's id belongs to this scan.

        Both sides of a union of a DataFrame with itself share one id, but their
        partitions are separate tasks.
        """
        return self._tokens.get(token.part, token) == token

    def open(
        self, token: ReadToken, plan_ids: tuple[str, ...], offset: float, end: float
    ) -> PartitionRead:
        """Begin to read a partition, or another attempt at it."""
        partition_read = PartitionRead(self, token, plan_ids, offset, end)
        self._tokens[token.part] = token
        self._unfinished.pop(token, None)
        self._open.append(partition_read)
        self._frontier = max(self._frontier, end)
        self._approach()
        return partition_read

    def advance(self, partition_read: PartitionRead, offset: float, tick: int) -> None:
        """Note that an attempt has reached an offset."""
        passed = max(offset - partition_read.offset, 0.0)
        self._speed.add(passed, tick)
        if passed:
            self._has_moved = True
            partition_read.offset = offset
            if partition_read.approach is not None:
                self._topic_approaches.move(partition_read.approach, offset)
            if self._rest is not None:
                self._rest.origin = self._rest_origin()
        self._estimate(tick)
        if self._recent is not None:
            self._topic_pace.note(self._recent)

    def close(self, partition_read: PartitionRead, tick: int) -> None:
        """End an attempt; the next attempt, if any, reads the rest of the partition."""
        self._open.remove(partition_read)
        if partition_read.offset >= partition_read.end:
            self._done.add(partition_read.token)
        has_other = any(other.token == partition_read.token for other in self._open)
        if not has_other and partition_read.token not in self._done:
            partition_read.closed_tick = tick
            self._unfinished[partition_read.token] = partition_read
        self._approach()

    def leave(self) -> None:
        """Take its approaches back: nothing is known of the scan any longer."""
        self._topic_approaches.replace(self.approaches, ())
        self.approaches = []

    def speed(self, tick: int) -> float | None:
        """Return the recent speed of the scan in bytes per tick."""
        if tick >= self._until_tick:
            self._estimate(tick)
        return self._recent

    def pace(self, tick: int) -> float:
        """Return the ticks that a byte takes; infinite if it stands still for long."""
        speed = self.speed(tick)
        if speed is not None:
            return 1.0 / speed
        return inf if self._has_moved else self._topic_pace.pace(tick)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        for partition_read in (*self._open, *self._unfinished.values()):
            assert partition_read.cursor is self
            assert partition_read.end <= self._frontier
            assert self._tokens[partition_read.token.part] == partition_read.token
        open_tokens = {partition_read.token for partition_read in self._open}
        assert not open_tokens & self._unfinished.keys()
        assert not self._done & self._unfinished.keys()
        kept = self._topic_approaches.all()
        assert all(approach in kept for approach in self.approaches)
        assert list(map(str, self.approaches)) == [str(way) for _, way in self._ways()]

    def _estimate(self, tick: int) -> None:
        self._recent = self._speed.at(tick)
        self.least_pace = 0.0 if self._recent is None else 1.0 / self._recent
        ticks = min(self._speed.half_life, tick - self._begun_tick)
        self._until_tick = tick + max(_SPEED_SHARE * ticks, 1)

    def _approach(self) -> None:
        """Approach what the scan has still to read."""
        old, self.approaches, self._rest = self.approaches, [], None
        for partition_read, approach in self._ways():
            self.approaches.append(approach)
            if partition_read is None:
                self._rest = approach
            else:
                partition_read.approach = approach
        self._topic_approaches.replace(old, self.approaches)

    def _ways(self) -> Iterator[tuple[PartitionRead | None, Approach]]:
        """Yield how it comes to what it has still to read: partitions, and the rest."""
        share, has_rest = len(self._open), self._frontier < self._end
        for part in self._open:
            end = part.end
            if share == 1 and has_rest and end == self._frontier:
                end, has_rest = self._end, False  # the rest follows without a break
            yield part, Approach(part.offset, end, part.offset, self, share)
        for part in self._unfinished.values():
            closed_tick = part.closed_tick
            yield (
                part,
                Approach(part.offset, part.end, part.offset, self, 1, closed_tick),
            )
        if has_rest:
            yield None, Approach(self._frontier, self._end, self._rest_origin(), self)

    def _rest_origin(self) -> float:
        """Return the offset from which the way to what follows is counted."""
        return self._frontier - sum(
            max(part.end - part.offset, 0.0) for part in self._open
        )
