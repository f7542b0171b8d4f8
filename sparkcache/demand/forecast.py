"""What will be read, how often, and when next.

A plan says which scans will come. A scan that has begun has a cursor, which says where
it is and how fast it moves. One that has not begun is expected to take as long again
as it has been waited for: so a plan that is never carried out is forgotten little by
little, and a scan that follows right behind another is not taken for one that comes
after its end. (To expect it when those running have ended reads up to 9 % more than
Belady's MIN where this reads 4 %, on scans that begin at random.)

Time is counted in ticks; see `Speed`.

Source: the idea that what matters is which reader comes next is that of reference
distances in Spark's stages (MRD, 2018). Different here: the distance is known to the
run, since plans and cursors are.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from sparkcache.demand.cursor import Cursor, PartitionRead, ScanId
from sparkcache.demand.expected_reads import ExpectedReads
from sparkcache.demand.topic_layout import ExtentOffset, TopicLayout
from sparkcache.model import Position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.demand.plan import Consumer, Plan
    from sparkcache.demand.reader_identity import ReaderIdentity
    from sparkcache.model import RunKey

_AXES_REMEMBERED = 10_000  # of topics; an extent takes about 200 bytes


@dataclass(slots=True)
class _Waiting:
    """A plan's consumers of one topic that have not begun.

    Attributes:
        consumers: How many of each.
        since_tick: When the last one of them began, or the plan.

    """

    consumers: Counter[Consumer]
    since_tick: int


@dataclass(slots=True)
class _Topic:
    layout: TopicLayout
    scans: dict[ScanId, Cursor] = field(default_factory=dict)
    waiting: dict[str, _Waiting] = field(default_factory=dict)  # by plan

    def is_planned(self, cursor: Cursor) -> bool:
        """Tell whether any of a scan's plans is under way."""
        return any(plan_id in self.waiting for plan_id in cursor.plan_ids)

    def range_of(self, consumer: Consumer) -> tuple[float, float]:
        """Return where a consumer begins and ends."""
        return (
            self.layout.begin
            if consumer.start is None
            else self.layout.at(consumer.start),
            inf if consumer.end is None else self.layout.at(consumer.end),
        )


class Forecast:
    """The readers to come of every run."""

    def __init__(self) -> None:
        self._expected = ExpectedReads()
        self._topics: dict[str, _Topic] = {}
        # Longer than topics: runs may be held of one that nobody reads just now.
        self._layouts: OrderedDict[str, TopicLayout] = OrderedDict()
        self._gone: dict[str, Plan] = {}  # streams that ended and are yet foreseen
        self._tick = 0
        self._passed_bytes = 0.0

    def __repr__(self) -> str:
        scans = sum(len(topic.scans) for topic in self._topics.values())
        return f"Forecast({self._expected!r}, {scans} scans)"

    @property
    def tick(self) -> int:
        """How many runs were taken so far."""
        return self._tick

    def begin(self, plan: Plan) -> bool:
        """Take up a plan; False if it is known or over already."""
        if not self._expected.begin(plan):
            return False
        if plan.is_stream:
            topics = plan.topics
            for gone in list(self._gone.values()):
                if any(consumer.topic in topics for consumer in gone.consumers):
                    self.forget(gone.id)
        self._wait_for(plan)
        return True

    def move(self, plan: Plan) -> Plan | None:
        """Take up the next batch of a stream; return what it was before, if that.

        The scans of batches before are over.
        """
        before = self._expected.move(plan)
        if before is None:
            return None
        topics = dict.fromkeys(consumer.topic for consumer in before.consumers)
        for topic in filter(None, map(self._topics.get, topics)):
            topic.waiting.pop(plan.id, None)
            for scan, cursor in list(topic.scans.items()):
                if not cursor.is_open and not topic.is_planned(cursor):
                    del topic.scans[scan]
        self._wait_for(plan)
        for name in topics:
            self._tidy(name)
        return before

    def streams(self, query: str) -> list[Plan]:
        """Return the plans of the streams that a query reads."""
        return self._expected.streams(query)

    def other_runs(self, plan: Plan) -> list[str]:
        """Return the other runs of a stream's query that nobody has ended yet."""
        return self._expected.other_runs(plan)

    def awaited(self, stream: Plan) -> list[str]:
        """Return plans that stood for a stream until now, of each topic one at most."""
        return self._expected.awaited(stream)

    def end(self, ids: Iterable[str]) -> list[Plan]:
        """Forget plans, for good: tasks that come late do not bring them back."""
        ended = self._expected.end(ids)
        topics = {topic for plan in ended for topic in plan.topics}
        for name in topics:
            for plan in ended:
                self._topics[name].waiting.pop(plan.id, None)
            self._tidy(name)
        return ended

    def go_on(self, plan: Plan) -> bool:
        """Foresee a stream that has ended, in topics that have no other.

        Its reads are expected no longer, but what it would read next is known. Returns
        whether there is such a topic.

        Source: Pulsar goes on inserting what is added for a while after the last active
        cursor has left (PIP-430).
        """
        left = tuple(
            consumer
            for consumer in plan.consumers
            if not self.is_streamed(consumer.topic)
        )
        if left:
            self._gone[plan.id] = replace(plan, consumers=left)
            self._wait_for(self._gone[plan.id])
        return bool(left)

    def forget(self, plan_id: str) -> Plan | None:
        """Foresee a stream no longer that has ended."""
        gone = self._gone.pop(plan_id, None)
        if gone is not None:
            for name in gone.topics:
                self._topics[name].waiting.pop(plan_id, None)
                self._tidy(name)
        return gone

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
            reader: Whose it is.
            plan_ids: The plans that are under way.
            extents: Where it lies, in order.
            first: The first entry that it reads.
            stop: The entry after the last that it reads, in the same ledger.

        """
        topic = self._topic(reader.consumer.topic)
        active = tuple(filter(topic.waiting.__contains__, plan_ids))
        cursor = self._cursor(topic, reader, active)
        cursor.shift = topic.layout.learn(extents, cursor.shift)
        begin, end = topic.layout.at(first), topic.layout.at(stop)
        return cursor.open(reader.token, active, begin, end)

    def advance(self, partition_read: PartitionRead, key: RunKey) -> None:
        """Note that an attempt takes a run: what it reads next is what follows."""
        self._tick += 1
        topic = self._topics[partition_read.cursor.topic]
        place = topic.layout.at(Position(key.ledger.id, key.run.last + 1))
        self._passed_bytes += max(place - partition_read.at, 0.0)
        partition_read.cursor.advance(partition_read, place, self._tick)

    def mark_read(
        self, partition_read: PartitionRead, ordinal: int, key: RunKey
    ) -> bool:
        """Note that an attempt has finished with the run that is its `ordinal`-th.

        Returns whether that was a planned read that had not been counted.
        """
        return self._expected.mark_read(
            partition_read.plan_ids,
            partition_read.token,
            ordinal,
            key,
            partition_read.cursor.end,
        )

    def is_streamed(self, name: str) -> bool:
        """Tell whether a stream reads a topic: others may begin unplanned."""
        topic = self._topics.get(name)
        return topic is not None and any(map(self._expected.is_stream, topic.waiting))

    def close(self, partition_read: PartitionRead) -> None:
        """End an attempt, at its end or before."""
        partition_read.cursor.close(partition_read, self._tick)
        self._tidy(partition_read.cursor.topic)

    def expected(self, key: RunKey) -> int:
        """Return how many planned reads of a run are still to come."""
        return self._expected.expected(key)

    def place(self, key: RunKey) -> float:
        """Return where in its topic a run begins."""
        layout = self._layouts.get(key.ledger.topic)
        return layout.at(Position(key.ledger.id, key.run.first)) if layout else 0.0

    def cuts(self, name: str) -> list[float]:
        """Return the places where who reads next changes, ascending.

        Between two of them, a place is read the later the farther on it is.
        """
        topic = self._topics.get(name)
        if topic is None:
            return []
        cuts = {cut for cursor in topic.scans.values() for cut in cursor.cuts()}
        for waiting in topic.waiting.values():
            for consumer in waiting.consumers:
                cuts.update(topic.range_of(consumer))
        return sorted(cuts)

    def ticks_until_read(self, name: str, place: float) -> float:
        """Estimate when a place will be read next; infinite if by nobody."""
        topic = self._topics.get(name)
        if topic is None:
            return inf
        usual_speed = self._usual_speed(topic)
        soonest = inf
        for cursor in topic.scans.values():
            soonest = min(soonest, cursor.ticks_until(place, self._tick, usual_speed))
        for waiting in topic.waiting.values():
            for consumer in waiting.consumers:
                begin, end = topic.range_of(consumer)
                if begin <= place < end:
                    delay = self._tick - waiting.since_tick
                    soonest = min(soonest, delay + (place - begin) / usual_speed)
        return soonest

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._expected.check()
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
            layout = self._layouts.setdefault(name, TopicLayout())
            self._layouts.move_to_end(name)
            topic = self._topics[name] = _Topic(layout)
            while len(self._layouts) > max(_AXES_REMEMBERED, len(self._topics)):
                self._forget_axis()
        return topic

    def _forget_axis(self) -> None:
        """Forget the axis of a topic that nobody reads, the one longest unused."""
        name = next(name for name in self._layouts if name not in self._topics)
        del self._layouts[name]

    def _wait_for(self, plan: Plan) -> None:
        for consumer in plan.consumers:
            waiting = self._topic(consumer.topic).waiting
            if plan.id not in waiting:
                waiting[plan.id] = _Waiting(Counter(), self._tick)
            waiting[plan.id].consumers[consumer] += 1

    def _cursor(
        self, topic: _Topic, reader: ReaderIdentity, plan_ids: tuple[str, ...]
    ) -> Cursor:
        """Find the scan that a partition belongs to, or let it begin."""
        copies = 0
        while True:
            scan = (reader.token.stage, reader.scan, copies)
            cursor = topic.scans.get(scan)
            if cursor is None:
                break
            if cursor.is_of(reader.token):
                return cursor
            copies += 1
        cursor = topic.scans[scan] = Cursor(scan, reader, plan_ids, self._tick)
        for plan_id in plan_ids:
            waiting = topic.waiting.get(plan_id)
            if waiting is not None and reader.consumer in waiting.consumers:
                waiting.since_tick = self._tick
                waiting.consumers[reader.consumer] -= 1
                waiting.consumers += Counter()  # drops what is zero
        return cursor

    def _usual_speed(self, topic: _Topic) -> float:
        """Return how fast a scan of a topic moves of which nothing else is known."""
        speeds = [
            speed
            for cursor in topic.scans.values()
            if not cursor.is_over and (speed := cursor.speed(self._tick)) is not None
        ]
        if speeds:
            return sum(speeds) / len(speeds)
        return self._passed_bytes / self._tick if self._passed_bytes else 1.0

    def _tidy(self, name: str) -> None:
        """Forget the scans of a topic that nobody is at and no plan remembers."""
        topic = self._topics[name]
        for scan, cursor in list(topic.scans.items()):
            if not cursor.is_open and not topic.is_planned(cursor):
                del topic.scans[scan]
        if not topic.scans and not topic.waiting:
            del self._topics[name]
