"""The forecast: which runs will be read, how often, and when next.

A plan lists the scans to come. A scan that has begun has a cursor, which knows its
offset and its speed. A scan that has not begun is expected after as long again as it
has been waited for: so a plan that is never executed fades gradually, and a scan may be
expected to follow closely after another, before the other ends. (The alternative, to
expect it when the running scans have ended, reads up to 9 % more than Belady's MIN on
scans that begin at random; this rule reads 4 % more.)

Time is counted in ticks; see `Speed`.

Source: the idea that the distance to the next reader decides comes from the reference
distances of Spark's stages (MRD, 2018). Different here: the distance is known for each
run, from plans and cursors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from cachetools import LRUCache

from sparkcache.demand.cursor import Cursor, PartitionRead, ScanId
from sparkcache.demand.expected_reads import ExpectedReads
from sparkcache.demand.topic_layout import ExtentOffset, TopicLayout
from sparkcache.model import Position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.demand.plan import Consumer, Plan
    from sparkcache.demand.reader_identity import ReaderIdentity
    from sparkcache.model import RunKey

_LAYOUTS_REMEMBERED = 10_000  # of topics; an extent takes about 200 bytes


@dataclass(slots=True)
class _Waiting:
    """The consumers of one topic in a plan that have not begun.

    Attributes:
        consumers: The number of each consumer.
        since_tick: When the last of the consumers began; at first, when the plan began.

    """

    consumers: Counter[Consumer]
    since_tick: int


@dataclass(slots=True)
class _Topic:
    layout: TopicLayout
    scans: dict[ScanId, Cursor] = field(default_factory=dict)
    waiting: dict[str, _Waiting] = field(default_factory=dict)  # by plan

    def is_planned(self, cursor: Cursor) -> bool:
        """Return whether any plan of a scan is active."""
        return any(plan_id in self.waiting for plan_id in cursor.plan_ids)

    def range_of(self, consumer: Consumer) -> tuple[float, float]:
        """Return the offsets where a consumer begins and ends."""
        return (
            self.layout.begin
            if consumer.start is None
            else self.layout.offset_of(consumer.start),
            inf if consumer.end is None else self.layout.offset_of(consumer.end),
        )


class Forecast:
    """The readers to come of every run."""

    def __init__(self) -> None:
        self._expected = ExpectedReads()
        self._topics: dict[str, _Topic] = {}
        # Of topics that nobody reads just now: runs of them may be held.
        self._idle_layouts: LRUCache[str, TopicLayout] = LRUCache(_LAYOUTS_REMEMBERED)
        self._ended_streams: dict[str, Plan] = {}  # still in the forecast
        self._tick = 0
        self._passed_bytes = 0.0

    def __repr__(self) -> str:
        scans = sum(len(topic.scans) for topic in self._topics.values())
        return f"Forecast({self._expected!r}, {scans} scans)"

    @property
    def tick(self) -> int:
        """The number of runs taken so far."""
        return self._tick

    def begin(self, plan: Plan) -> bool:
        """Begin a plan; return False if it is known or over already."""
        if not self._expected.begin(plan):
            return False
        if plan.is_stream:
            topics = plan.topics
            for ended in list(self._ended_streams.values()):
                if any(consumer.topic in topics for consumer in ended.consumers):
                    self.forget_ended(ended.id)
        self._wait_for(plan)
        return True

    def move(self, plan: Plan) -> Plan | None:
        """Move a stream to its next batch; return its previous plan.

        Ends the scans of earlier batches. Returns None if the stream is unknown or the
        batch is not newer.
        """
        previous = self._expected.move(plan)
        if previous is None:
            return None
        topics = dict.fromkeys(consumer.topic for consumer in previous.consumers)
        for topic in filter(None, map(self._topics.get, topics)):
            topic.waiting.pop(plan.id, None)
            for scan, cursor in list(topic.scans.items()):
                if not cursor.is_open and not topic.is_planned(cursor):
                    del topic.scans[scan]
        self._wait_for(plan)
        for name in topics:
            self._tidy(name)
        return previous

    def streams(self, query: str) -> list[Plan]:
        """Return the plans of the streams that a query, named by its run, reads."""
        return self._expected.streams(query)

    def other_runs(self, plan: Plan) -> list[str]:
        """Return the other runs of a stream's query that have not ended yet."""
        return self._expected.other_runs(plan)

    def placeholders_for(self, stream: Plan) -> list[str]:
        """Return the placeholders that a stream replaces, at most one per topic."""
        return self._expected.placeholders_for(stream)

    def end(self, ids: Iterable[str]) -> list[Plan]:
        """End plans for good: late tasks do not bring them back."""
        ended = self._expected.end(ids)
        topics = {topic for plan in ended for topic in plan.topics}
        for name in topics:
            for plan in ended:
                self._topics[name].waiting.pop(plan.id, None)
            self._tidy(name)
        return ended

    def foresee_ended(self, plan: Plan) -> bool:
        """Keep an ended stream in the forecast, for topics without another stream.

        Its reads are no longer expected, but the forecast knows what it would read
        next. Returns whether such a topic exists.

        Source: Pulsar continues to cache new entries for a while after the last active
        cursor has left (PIP-430).
        """
        remaining = tuple(
            consumer
            for consumer in plan.consumers
            if not self.is_streamed(consumer.topic)
        )
        if remaining:
            self._ended_streams[plan.id] = replace(plan, consumers=remaining)
            self._wait_for(self._ended_streams[plan.id])
        return bool(remaining)

    def forget_ended(self, plan_id: str) -> Plan | None:
        """Drop an ended stream from the forecast; return its plan, if it was there."""
        ended = self._ended_streams.pop(plan_id, None)
        if ended is not None:
            for name in ended.topics:
                self._topics[name].waiting.pop(plan_id, None)
                self._tidy(name)
        return ended

    def open(
        self,
        reader: ReaderIdentity,
        plan_ids: Iterable[str],
        extents: Iterable[ExtentOffset],
        first: Position,
        stop: Position,
    ) -> PartitionRead:
        """Begin to read a partition.

        Args:
            reader: The reader of the partition.
            plan_ids: The plans for which it reads; inactive ones are ignored.
            extents: The extents of the partition, in order.
            first: The first entry to read.
            stop: The entry after the last one to read, in the same ledger as the last.

        """
        topic = self._topic(reader.consumer.topic)
        active = tuple(filter(topic.waiting.__contains__, plan_ids))
        cursor = self._cursor(topic, reader, active)
        cursor.shift = topic.layout.learn(extents, cursor.shift)
        begin, end = topic.layout.offset_of(first), topic.layout.offset_of(stop)
        return cursor.open(reader.token, active, begin, end)

    def advance(self, partition_read: PartitionRead, key: RunKey) -> None:
        """Note that an attempt takes a run, and will read the following entry next."""
        self._tick += 1
        topic = self._topics[partition_read.cursor.topic]
        offset = topic.layout.offset_of(Position(key.ledger.id, key.run.last + 1))
        self._passed_bytes += max(offset - partition_read.offset, 0.0)
        partition_read.cursor.advance(partition_read, offset, self._tick)

    def mark_read(
        self, partition_read: PartitionRead, ordinal: int, key: RunKey
    ) -> bool:
        """Note that an attempt has finished its `ordinal`-th run.

        Returns whether that was a planned read that had not been counted yet.
        """
        return self._expected.mark_read(
            partition_read.plan_ids,
            partition_read.token,
            ordinal,
            key,
            partition_read.cursor.end,
        )

    def catch_up(self, plan_ids: Iterable[str], key: RunKey, reads: int) -> None:
        """Note that so many planned reads of a run are done, wherever that was."""
        self._expected.catch_up(plan_ids, key, reads)

    def is_streamed(self, name: str) -> bool:
        """Return whether a stream reads a topic: others may begin unplanned."""
        topic = self._topics.get(name)
        return topic is not None and any(map(self._expected.is_stream, topic.waiting))

    def close(self, partition_read: PartitionRead) -> None:
        """End an attempt, complete or not."""
        partition_read.cursor.close(partition_read, self._tick)
        self._tidy(partition_read.cursor.topic)

    def expected(self, key: RunKey) -> int:
        """Return how many planned reads of a run are still to come."""
        return self._expected.expected(key)

    def offset_of(self, key: RunKey) -> float:
        """Return the offset in its topic where a run begins, in stored bytes."""
        name = key.ledger.topic
        topic = self._topics.get(name)
        layout = self._idle_layouts.get(name) if topic is None else topic.layout
        return (
            layout.offset_of(Position(key.ledger.id, key.run.first)) if layout else 0.0
        )

    def breakpoints(self, name: str) -> list[float]:
        """Return the offsets at which the next reader changes, ascending.

        Between two of them, a larger offset is read later.
        """
        topic = self._topics.get(name)
        if topic is None:
            return []
        found: set[float] = set()
        for cursor in topic.scans.values():
            found.update(cursor.breakpoints())
        for waiting in topic.waiting.values():
            for consumer in waiting.consumers:
                found.update(topic.range_of(consumer))
        return sorted(found)

    def ticks_until_read(self, name: str, offset: float) -> float:
        """Estimate the ticks until an offset is read next; infinite if it is not."""
        topic = self._topics.get(name)
        if topic is None:
            return inf
        usual_speed = self._usual_speed(topic)
        soonest = inf
        for cursor in topic.scans.values():
            soonest = min(soonest, cursor.ticks_until(offset, self._tick, usual_speed))
        for waiting in topic.waiting.values():
            for consumer in waiting.consumers:
                begin, end = topic.range_of(consumer)
                if begin <= offset < end:
                    delay = self._tick - waiting.since_tick
                    soonest = min(soonest, delay + (offset - begin) / usual_speed)
        return soonest

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._expected.check()
        assert not self._idle_layouts.keys() & self._topics.keys()
        for topic in self._topics.values():
            assert topic.scans or topic.waiting
            for waiting in topic.waiting.values():
                assert all(count > 0 for count in waiting.consumers.values())
            for cursor in topic.scans.values():
                cursor.check()
                assert cursor.is_open or topic.is_planned(cursor)

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            layout = self._idle_layouts.pop(name, None) or TopicLayout()
            topic = self._topics[name] = _Topic(layout)
        return topic

    def _wait_for(self, plan: Plan) -> None:
        for consumer in plan.consumers:
            waiting = self._topic(consumer.topic).waiting
            if plan.id not in waiting:
                waiting[plan.id] = _Waiting(Counter(), self._tick)
            waiting[plan.id].consumers[consumer] += 1

    def _cursor(
        self, topic: _Topic, reader: ReaderIdentity, plan_ids: tuple[str, ...]
    ) -> Cursor:
        """Return the cursor of the scan of a partition; begin it if it is new."""
        copies = 0
        while True:
            scan = (reader.token.stage, reader.scan, copies)
            cursor = topic.scans.get(scan)
            if cursor is None:
                break
            if cursor.owns(reader.token):
                return cursor
            copies += 1
        cursor = topic.scans[scan] = Cursor(scan, reader, plan_ids, self._tick)
        for plan_id in plan_ids:
            waiting = topic.waiting.get(plan_id)
            if waiting is not None and reader.consumer in waiting.consumers:
                waiting.since_tick = self._tick
                waiting.consumers[reader.consumer] -= 1
                waiting.consumers += Counter()  # drops zero counts
        return cursor

    def _usual_speed(self, topic: _Topic) -> float:
        """Return the speed to assume for a scan of a topic that has none yet."""
        speeds = [
            speed
            for cursor in topic.scans.values()
            if not cursor.is_over and (speed := cursor.speed(self._tick)) is not None
        ]
        if speeds:
            return sum(speeds) / len(speeds)
        return self._passed_bytes / self._tick if self._passed_bytes else 1.0

    def _tidy(self, name: str) -> None:
        """Forget the scans of a topic that no task reads and no active plan counts."""
        topic = self._topics[name]
        for scan, cursor in list(topic.scans.items()):
            if not cursor.is_open and not topic.is_planned(cursor):
                del topic.scans[scan]
        if not topic.scans and not topic.waiting:
            self._idle_layouts[name] = self._topics.pop(name).layout
