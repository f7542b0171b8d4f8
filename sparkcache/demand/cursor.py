"""Where a scan is that has begun, and when it will come to a place.

Spark runs the partitions of a scan in order, several at once. So a scan is at several
places: in each of its open partitions, and, for all that follows, at its frontier,
which is the end of the last partition that was opened. What lies before the frontier
was read here, or is left by a task that ended before its time, or is read by another
executor.

A place is a number of stored bytes from the topic's beginning.
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
    """One attempt at one partition.

    Attributes:
        cursor: The scan.
        token: As whom it reads.
        plan_ids: The plans that it reads under.
        at: The place that it reads next.
        end: The place where it ends.
        left_tick: When its task ended, if that was before its time.

    """

    cursor: Cursor
    token: ReadToken
    plan_ids: tuple[str, ...]
    at: float
    end: float
    left_tick: int = 0


class Cursor:
    """A scan that has begun, as far as one node knows it.

    Attributes:
        scan: Tells it from others of its topic.
        topic: What it reads.
        end: The position before which it ends; None for the topic's end.
        plan_ids: The plans that it was counted in.
        shift: What is to be added to the places that it names: see `TopicLayout`.

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
        self._left: dict[ReadToken, PartitionRead] = {}

    def __repr__(self) -> str:
        places = ", ".join(f"{partition_read.at:.0f}" for partition_read in self._open)
        return (
            f"<scan of {self.topic} at {places or 'no place'}, "
            f"{self._frontier:.0f} of {self._end:.0f}, {len(self._left)} left>"
        )

    @property
    def _end(self) -> float:
        return self._planned_end + self.shift

    @property
    def is_open(self) -> bool:
        """Whether any task is at it."""
        return bool(self._open)

    @property
    def is_over(self) -> bool:
        """Whether it will come to no place any more, here."""
        return not (self._open or self._left or self._frontier < self._end)

    def is_of(self, token: ReadToken) -> bool:
        """Whether a partition belongs to this scan, if its id does.

        Both sides of a union of a DataFrame with itself have one id. Their partitions
        are tasks of their own.
        """
        return self._tokens.get(token.part, token) == token

    def open(
        self, token: ReadToken, plan_ids: tuple[str, ...], at: float, end: float
    ) -> PartitionRead:
        """Begin a partition, or another attempt at it."""
        partition_read = PartitionRead(self, token, plan_ids, at, end)
        self._tokens[token.part] = token
        self._left.pop(token, None)
        self._open.append(partition_read)
        self._frontier = max(self._frontier, end)
        return partition_read

    def advance(self, partition_read: PartitionRead, at: float, tick: int) -> None:
        """Note that an attempt has come to a place."""
        self._speed.add(max(at - partition_read.at, 0.0), tick)
        self._has_moved = self._has_moved or at > partition_read.at
        partition_read.at = max(partition_read.at, at)

    def close(self, partition_read: PartitionRead, tick: int) -> None:
        """End an attempt. What it has not come to is left for the next, if any."""
        self._open.remove(partition_read)
        if partition_read.at >= partition_read.end:
            self._done.add(partition_read.token)
        others = any(other.token == partition_read.token for other in self._open)
        if not others and partition_read.token not in self._done:
            partition_read.left_tick = tick
            self._left[partition_read.token] = partition_read

    def speed(self, tick: int) -> float | None:
        """Return how many bytes it passes in a tick, lately."""
        return self._speed.at(tick)

    def cuts(self) -> Iterator[float]:
        """Yield the places between which it comes to one after the other."""
        for partition_read in (*self._open, *self._left.values()):
            yield partition_read.at
            yield partition_read.end
        if self._frontier < self._end:
            yield self._frontier
            yield self._end

    def ticks_until(self, place: float, tick: int, usual_speed: float) -> float:
        """Estimate when it comes to a place; infinite if it will not, here.

        What a task has left is waited for the longer, the longer nobody takes it up.
        """
        speed = self.speed(tick)
        if speed is None:
            if self._has_moved:
                return inf  # it stands still for so long that nothing is left to count
            speed = usual_speed
        nearest = max(
            (
                partition_read.at
                for partition_read in self._open
                if partition_read.at <= place < partition_read.end
            ),
            default=None,
        )
        if nearest is not None:
            return (place - nearest) * len(self._open) / speed
        for partition_read in self._left.values():
            if partition_read.at <= place < partition_read.end:
                return (
                    tick
                    - partition_read.left_tick
                    + (place - partition_read.at) / speed
                )
        if self._frontier <= place < self._end:
            before = sum(
                partition_read.end - partition_read.at for partition_read in self._open
            )
            return (before + place - self._frontier) / speed
        return inf

    def check(self) -> None:
        """Assert the invariants. For tests."""
        for partition_read in (*self._open, *self._left.values()):
            assert partition_read.cursor is self
            assert partition_read.end <= self._frontier
            assert self._tokens[partition_read.token.part] == partition_read.token
        open_tokens = {partition_read.token for partition_read in self._open}
        assert not open_tokens & self._left.keys()
        assert not self._done & self._left.keys()
