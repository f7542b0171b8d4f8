"""Cursors: how far a scan that has begun has read, and when it will reach an offset.

Spark runs the partitions of a scan in order, several at once. So a scan has several
offsets: one in each open partition, and its frontier, the end of the last partition
that was opened, for all that follows. Anything before the frontier was read here, or
was left unread by a task that ended early, or is read by another executor.

An offset is a number of stored bytes from the beginning of the topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from sparkcache.demand.speed import Speed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.demand.reader_identity import ReaderIdentity
    from sparkcache.model import ReadToken

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

    """

    cursor: Cursor
    token: ReadToken
    plan_ids: tuple[str, ...]
    offset: float
    end: float
    closed_tick: int = 0


class Cursor:
    """A scan that has begun, as far as one node knows it.

    Attributes:
        scan: The id of the scan, unique in its topic.
        topic: The topic that it reads.
        end: The position before which it ends; None for the end of the topic.
        plan_ids: The plans in which it was counted.
        shift: Bytes to add to the offsets that the scan reports: see `TopicLayout`.

    """

    def __init__(
        self, scan: ScanId, reader: ReaderIdentity, plan_ids: tuple[str, ...], tick: int
    ) -> None:
        self.scan = scan
        self.topic = reader.consumer.topic
        self.end = reader.consumer.end
        self.plan_ids = plan_ids
        self.shift = 0.0
        self._frontier = -inf
        self._planned_end = reader.end
        self._speed = Speed(tick)
        self._has_moved = False
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
        return partition_read

    def advance(self, partition_read: PartitionRead, offset: float, tick: int) -> None:
        """Note that an attempt has reached an offset."""
        self._speed.add(max(offset - partition_read.offset, 0.0), tick)
        self._has_moved = self._has_moved or offset > partition_read.offset
        partition_read.offset = max(partition_read.offset, offset)

    def close(self, partition_read: PartitionRead, tick: int) -> None:
        """End an attempt; the next attempt, if any, reads the rest of the partition."""
        self._open.remove(partition_read)
        if partition_read.offset >= partition_read.end:
            self._done.add(partition_read.token)
        has_other = any(other.token == partition_read.token for other in self._open)
        if not has_other and partition_read.token not in self._done:
            partition_read.closed_tick = tick
            self._unfinished[partition_read.token] = partition_read

    def speed(self, tick: int) -> float | None:
        """Return the recent speed of the scan in bytes per tick."""
        return self._speed.at(tick)

    def breakpoints(self) -> Iterator[float]:
        """Yield the offsets between which the scan reads in ascending order."""
        for partition_read in (*self._open, *self._unfinished.values()):
            yield partition_read.offset
            yield partition_read.end
        if self._frontier < self._end:
            yield self._frontier
            yield self._end

    def ticks_until(self, offset: float, tick: int, usual_speed: float) -> float:
        """Estimate the ticks until the scan reaches an offset; infinite if never here.

        The longer nobody resumes an unfinished partition, the later it is expected.
        """
        speed = self.speed(tick)
        if speed is None:
            if self._has_moved:
                return inf  # it has stood still too long to have a speed
            speed = usual_speed
        nearest = max(
            (
                partition_read.offset
                for partition_read in self._open
                if partition_read.offset <= offset < partition_read.end
            ),
            default=None,
        )
        if nearest is not None:
            return (offset - nearest) * len(self._open) / speed
        for partition_read in self._unfinished.values():
            if partition_read.offset <= offset < partition_read.end:
                return (
                    tick
                    - partition_read.closed_tick
                    + (offset - partition_read.offset) / speed
                )
        if self._frontier <= offset < self._end:
            before = sum(
                partition_read.end - partition_read.offset
                for partition_read in self._open
            )
            return (before + offset - self._frontier) / speed
        return inf

    def check(self) -> None:
        """Assert the invariants. For tests."""
        for partition_read in (*self._open, *self._unfinished.values()):
            assert partition_read.cursor is self
            assert partition_read.end <= self._frontier
            assert self._tokens[partition_read.token.part] == partition_read.token
        open_tokens = {partition_read.token for partition_read in self._open}
        assert not open_tokens & self._unfinished.keys()
        assert not self._done & self._unfinished.keys()
