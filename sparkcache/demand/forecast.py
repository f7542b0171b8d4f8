"""The forecast: which runs will be read, how often, and when next.

A plan lists the scans to come. A scan that has begun has a cursor, which knows its
offset and its speed. A scan that has not begun is expected as often as scans of its
plan have begun so far (see `Arrivals`), and to be as fast as those under way. (The
alternative, to expect it when the running scans have ended, reads up to 9 % more than
Belady's MIN on scans that begin at random.)

Time is counted in ticks; see `Speed`.

Source: the idea that the distance to the next reader decides comes from the reference
distances of Spark's stages (MRD, 2018). Different here: the distance is known for each
run, from plans and cursors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from cachetools import LRUCache

from sparkcache.demand.approach import Approach, Approaches
from sparkcache.demand.arrivals import Arrivals
from sparkcache.demand.cursor import Cursor, PartitionRead, ScanId
from sparkcache.demand.expected_reads import ExpectedReads
from sparkcache.demand.topic_layout import ExtentOffset, TopicLayout
from sparkcache.demand.topic_pace import TopicPace
from sparkcache.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkcache.demand.plan import Consumer, Plan
    from sparkcache.demand.reader_identity import ReaderIdentity
    from sparkcache.model import RunKey

_LAYOUTS_REMEMBERED = 10_000  # of topics; an extent takes about 200 bytes


@dataclass(slots=True)
class _Waiting:
    """The consumers of one topic in a plan that have not begun.

    Attributes:
        consumers: The number of each consumer.
        arrivals: How often consumers of the plan begin, of whatever topic.

    """

    consumers: Counter[Consumer]
    arrivals: Arrivals


class _Topic:
    """The readers of one topic, and where they are.

    Attributes:
        layout: Where each entry lies.
        scans: The scans that have begun.
        waiting: The consumers of each plan that have not begun.
        approaches: How all of them come to each offset.
        pace: How fast.

    """

    def __init__(self, layout: TopicLayout, usual_speed: Callable[[], float]) -> None:
        self.layout = layout
        self.scans: dict[ScanId, Cursor] = {}
        self.waiting: dict[str, _Waiting] = {}
        self.approaches = Approaches()
        self.pace = TopicPace(self.scans, usual_speed)
        self._of_waiting: dict[tuple[str, Consumer], Approach] = {}

    def is_planned(self, cursor: Cursor) -> bool:
        """Return whether any plan of a scan is active."""
        return any(plan_id in self.waiting for plan_id in cursor.plan_ids)

    def learn(self, extents: Iterable[ExtentOffset], shift: float) -> float:
        """Add extents: see `TopicLayout.learn`."""
        known = len(self.layout)
        shift = self.layout.learn(extents, shift)
        if len(self.layout) != known:
            for plan_id, consumer in list(self._of_waiting):
                self._approach(plan_id, consumer)
        return shift

    def wait(self, plan_id: str, consumer: Consumer, arrivals: Arrivals) -> None:
        """Wait for one more consumer of a plan."""
        if plan_id not in self.waiting:
            self.waiting[plan_id] = _Waiting(Counter(), arrivals)
        arrivals.waiting += 1
        self.waiting[plan_id].consumers[consumer] += 1
        self._approach(plan_id, consumer)

    def begin(self, plan_id: str, consumer: Consumer, tick: int) -> None:
        """Note that a consumer of a plan has begun, if any was waited for."""
        waiting = self.waiting.get(plan_id)
        if waiting is not None and consumer in waiting.consumers:
            waiting.arrivals.begin(tick)
            waiting.consumers[consumer] -= 1
            waiting.consumers += Counter()  # drops zero counts
            self._approach(plan_id, consumer)

    def stop_waiting(self, plan_id: str) -> None:
        """Wait no longer for the consumers of a plan."""
        waiting = self.waiting.pop(plan_id, None)
        if waiting is not None:
            for consumer in waiting.consumers:
                self._approach(plan_id, consumer)

    def forget_scans(self) -> None:
        """Forget the scans that no task reads and no active plan counts."""
        for scan, cursor in list(self.scans.items()):
            if not cursor.is_open and not self.is_planned(cursor):
                cursor.leave()
                del self.scans[scan]
                self.pace.change()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self.approaches.check()
        assert self.scans or self.waiting
        for waiting in self.waiting.values():
            assert all(count > 0 for count in waiting.consumers.values())
        for cursor in self.scans.values():
            cursor.check()
            assert cursor.is_open or self.is_planned(cursor)
        awaited = {
            (plan_id, consumer): count
            for plan_id, waiting in self.waiting.items()
            for consumer, count in waiting.consumers.items()
        }
        assert self._of_waiting.keys() == awaited.keys()
        for (plan_id, consumer), approach in self._of_waiting.items():
            assert approach.count == awaited[plan_id, consumer]
            assert approach.arrivals is self.waiting[plan_id].arrivals
            assert (approach.begin, approach.end) == self._range_of(consumer)
        ways = sum(len(cursor.approaches) for cursor in self.scans.values())
        assert len(self.approaches) == ways + len(awaited)

    def _approach(self, plan_id: str, consumer: Consumer) -> None:
        """Have the consumers of a plan approach their range that have not begun."""
        old = self._of_waiting.pop((plan_id, consumer), None)
        if old is not None:
            self.approaches.remove(old)
        waiting = self.waiting.get(plan_id)
        if waiting is not None and consumer in waiting.consumers:
            begin, end = self._range_of(consumer)
            new = Approach(begin, end, begin, self.pace)
            new.arrivals, new.count = waiting.arrivals, waiting.consumers[consumer]
            self._of_waiting[plan_id, consumer] = new
            self.approaches.add(new)

    def _range_of(self, consumer: Consumer) -> tuple[float, float]:
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
        self._reading = 0  # scans of which any task reads a partition now
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
            topic.stop_waiting(plan.id)
            topic.forget_scans()
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
                self._topics[name].stop_waiting(plan.id)
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
                self._topics[name].stop_waiting(plan_id)
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
        cursor.shift = topic.learn(extents, cursor.shift)
        begin, end = topic.layout.offset_of(first), topic.layout.offset_of(stop)
        self._reading += not cursor.is_open
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
        self._reading -= not partition_read.cursor.is_open
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

    def next_breakpoint(self, name: str, offset: float) -> float:
        """Return the first offset after this one where another reader may be next.

        Between two of them, a larger offset is read later. Infinite if there is none.
        """
        topic = self._topics.get(name)
        return inf if topic is None else topic.approaches.next_breakpoint(offset)

    def ticks_until_read(self, name: str, offset: float) -> float:
        """Estimate the ticks until an offset is read next; infinite if it is not."""
        topic = self._topics.get(name)
        if topic is None:
            return inf
        least = topic.pace.least(self._tick)
        return topic.approaches.ticks_until(offset, self._tick, least)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._expected.check()
        assert not self._idle_layouts.keys() & self._topics.keys()
        waiting: Counter[Arrivals] = Counter()
        for topic in self._topics.values():
            topic.check()
            for each in topic.waiting.values():
                waiting[each.arrivals] += each.consumers.total()
        for arrivals, count in waiting.items():
            arrivals.check()
            assert arrivals.waiting == count
        scans = [
            scan for topic in self._topics.values() for scan in topic.scans.values()
        ]
        assert self._reading == sum(scan.is_open for scan in scans)

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            layout = self._idle_layouts.pop(name, None) or TopicLayout()
            topic = self._topics[name] = _Topic(layout, self._usual_speed)
        return topic

    def _wait_for(self, plan: Plan) -> None:
        arrivals = Arrivals(self._tick)
        for consumer in plan.consumers:
            self._topic(consumer.topic).wait(plan.id, consumer, arrivals)

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
        cursor = topic.scans[scan] = Cursor(
            scan, reader, plan_ids, self._tick, topic.approaches, topic.pace
        )
        topic.pace.change()
        for plan_id in plan_ids:
            topic.begin(plan_id, reader.consumer, self._tick)
        return cursor

    def _usual_speed(self) -> float:
        """Return the speed to assume for a scan that has none yet: a fair share."""
        if not self._passed_bytes:
            return 1.0
        return self._passed_bytes / self._tick / max(self._reading, 1)

    def _tidy(self, name: str) -> None:
        """Forget the scans of a topic that no task reads and no active plan counts."""
        topic = self._topics[name]
        topic.forget_scans()
        if not topic.scans and not topic.waiting:
            self._idle_layouts[name] = self._topics.pop(name).layout
