"""`spark.readStream` of a table.

The table's change log tells which ledgers are new, and their order. A batch is a
sequence of changes between two marks in the log; each ledger is read whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.connector import Snapshot, TableConnector
from sparkcache.demand import Consumer
from sparkcache.errors import ConfigError
from sparkcache.model import Position, qualified_topic
from sparkcache.source.batch.collection import no_collection
from sparkcache.source.batch.extent_index import ExtentIndex
from sparkcache.source.batch.scan_partition import cut
from sparkcache.source.streaming import change_offsets
from sparkcache.source.streaming.batches import (
    BatchReader,
    SharedPart,
    StreamPartition,
    encoded,
)
from sparkcache.source.streaming.stream_plan import StreamPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit

    from sparkcache.connector import Change, ChangeLog, Changes, Mark
    from sparkcache.homes import Cluster
    from sparkcache.source.streaming.change_offsets import Offset
    from sparkcache.source.streaming.rate_limit import Limit


@dataclass
class ChangeReader(BatchReader):
    """Planner of the batches of a table, in one process of the driver."""

    _target: Mark | None = None
    _initial: Offset | None = None
    _begin: Mark | None = None
    _since: Mark | None = None
    _highest: Position | None = None
    _known: list[Change] = field(default_factory=list)
    _rest: Changes | None = None  # the changes after _known
    _is_idle: bool = False
    _plan: StreamPlan = field(default_factory=StreamPlan)

    def initialOffset(self) -> Offset:
        """Return the start of a query that has no checkpoint."""
        begin = self._log.beginning()
        if self._target is not None:  # for commits made in between
            self._target = self._log.latest()
        self._initial = change_offsets.as_json(self._topic, begin)
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to what the table has now."""
        self._target = self._log.latest()

    @no_collection()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch; its start if there is nothing new."""
        self._look_up(self._mark(start))
        self._highest = self._highest or change_offsets.reached(start).get(self._topic)
        count = _admitted(self._unread(), self._limit(limit))
        self._highest = change_offsets.highest(self._highest, self._known)
        self._is_idle = not count
        self._since = self._begin if start == self._initial else None
        if not count and self._since is None:
            return start
        return self._offset(count)

    def reportLatestOffset(self) -> Offset | None:
        """Return the offset that a query would have after reading everything."""
        latest = self._begin if self._rest is None else self._rest.until
        if latest is None:
            return None
        return change_offsets.as_json(self._topic, latest, self._highest, self._since)

    @no_collection()
    def _cut(
        self, start: Offset, end: Offset, cluster: Cluster
    ) -> list[StreamPartition]:
        begin, stop = self._mark(start), self._mark(end)
        begin = change_offsets.since(end, self._topic) or begin
        if begin == stop:
            return []
        changes = self._between(begin, stop)
        ledgers = change_offsets.ledgers(changes)
        if not ledgers:
            return []
        name = qualified_topic(self._topic, self.scan.root)
        consumer = Consumer(name, *change_offsets.bounds(ledgers))
        parts = cut(
            self.scan,
            self.config.scan,
            self._storage,
            [(consumer, Snapshot(ledgers))],
            cluster=cluster,
        )
        first = self._least([*changes, *self._known])
        stream = self._plan.next((begin, stop), [Consumer(name, first)])
        # Whole ledgers need no surrounding runs, so no partition ships the other files.
        shared = SharedPart(ExtentIndex(()), encoded(stream))
        return [StreamPartition(part, shared) for part in parts]

    @cached_property
    def _connector(self) -> TableConnector:
        connector = connectors.find(self.scan.connector)
        assert isinstance(connector, TableConnector), "only tables have a change log"
        return connector

    @cached_property
    def _topic(self) -> str:
        catalog = self._connector.catalog(self._storage, self.scan.raw)
        (topic,) = catalog.select(self.scan.selection)
        return topic

    @cached_property
    def _log(self) -> ChangeLog:
        return self._connector.change_log(self._storage, self._topic, self.scan.raw)

    def _mark(self, offset: Offset) -> Mark:
        """Return the mark of an offset; raises ConfigError for another topic's."""
        if offset.keys() != {self._topic}:
            is_named = self.scan.raw.get("topic")
            named_by = f"option {self.scan.selection}" if is_named else self.scan.root
            raise ConfigError(
                f"the checkpoint has the offset {offset!r}, and {named_by} means "
                "another topic: give another checkpointLocation, or the path and "
                "options that the query had"
            )
        return change_offsets.mark(offset, self._topic)

    def _offset(self, count: int) -> Offset:
        """Return the offset after the first `count` of the known changes."""
        mark = self._known[count - 1].after if count else self._begin
        assert mark is not None, "latestOffset() has set _begin"
        reached = self._least(self._known[count:]) or self._highest
        return change_offsets.as_json(self._topic, mark, reached, self._since)

    def _look_up(self, start: Mark) -> None:
        """Look up the changes after a mark; keep those already known."""
        if self._is_idle:
            Event().wait(self.scan.poll_interval_s)
        known = self._known_after(start)
        self._begin, self._known = start, known or []
        if known is None:
            self._rest = None
        reached = known[-1].after if known else start
        is_all = self._rest is None or self._rest.until == reached
        if is_all and reached != self._target:
            self._rest = self._log.changes(reached, self._target)

    def _unread(self) -> Iterator[Change]:
        """Yield the changes after the mark; each is looked up on demand."""
        yield from self._known
        for change in self._rest or ():
            self._known.append(change)
            yield change

    def _least(self, changes: Sequence[Change]) -> Position | None:
        """Return the first position of the changes and of those not looked up yet."""
        ledgers = change_offsets.ledgers(changes)
        firsts = [change_offsets.bounds(ledgers)[0]] if ledgers else []
        rest_id = None if self._rest is None else self._rest.least_id()
        if rest_id is not None:
            firsts.append(Position(rest_id, 0))
        return min(firsts, default=None)

    def _known_after(self, mark: Mark) -> list[Change] | None:
        """Return the known changes after a mark; None if the mark is not known."""
        if mark == self._begin:
            return self._known
        for count, change in enumerate(self._known, start=1):
            if change.after == mark:
                return self._known[count:]
        return None

    def _between(self, start: Mark, end: Mark) -> Sequence[Change]:
        """Return the changes from one mark to another."""
        known = self._known_after(start) or []
        for count, change in enumerate(known, start=1):
            if change.after == end:
                return known[:count]
        rest = self._log.changes(start, end)
        self._begin, self._known, self._rest = start, list(rest), rest
        return self._known


def _admitted(unread: Iterable[Change], limit: Limit) -> int:
    """Return the number of changes in a batch, which has at least one with entries.

    Looks up one change more.
    """
    rows, stored_bytes = limit.rows, limit.stored_bytes
    is_first, count = True, 0
    for change in unread:
        extents = () if change.ledger is None else change.ledger.extents
        rows -= sum(extent.last - extent.first + 1 for extent in extents)
        stored_bytes -= sum(extent.size_bytes for extent in extents)
        if min(rows, stored_bytes) < 0 and not is_first:
            break
        is_first &= not extents
        count += 1
    return count
