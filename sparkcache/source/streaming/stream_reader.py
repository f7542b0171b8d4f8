"""`spark.readStream.format("sparkcache")`: a topic as a stream of batches.

Each batch reads what a scan from its start offset to its end offset would, and no batch
depends on anything but its offsets: one that is read again after a restart has the same
rows. See `stream_offsets` for what offsets are.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, TypeAlias

from sparkcache import connector as connectors
from sparkcache.demand import Consumer
from sparkcache.errors import ConfigError, NoSuchTopicError
from sparkcache.model import qualified_topic
from sparkcache.source import settings
from sparkcache.source.batch.extent_index import ExtentIndex
from sparkcache.source.batch.scan_partition import cut
from sparkcache.source.streaming import stream_offsets
from sparkcache.source.streaming.batches import BatchReader, StreamPartition, packed
from sparkcache.source.streaming.rate_limit import Rules, admit
from sparkcache.source.streaming.sampling import RowSamples
from sparkcache.source.streaming.snapshot_view import SnapshotView
from sparkcache.source.streaming.stream_plan import StreamPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.datasource import ReadLimit

    from sparkcache.model import Loss
    from sparkcache.source.streaming.stream_offsets import EntrySpan, Marks

    Offset: TypeAlias = dict[str, dict[str, int | str]]

_log = logging.getLogger(__name__)


@dataclass
class StreamReader(BatchReader):
    """Plans batches of topics that grow by ledgers, in one process of the driver."""

    _initial: Offset | None = None
    _is_first: bool = False
    _found: SnapshotView | None = None
    _target: SnapshotView | None = None
    _is_bounded: bool = False
    _is_idle: bool = False
    _told: set[Loss | str] = field(default_factory=set)
    _plan: StreamPlan = field(default_factory=StreamPlan)

    def initialOffset(self) -> Offset:
        """Return where a query begins that has no checkpoint."""
        there = (self._target or self._find()).spans  # none beyond what is read now
        if not there:
            _log.warning("%s: nothing is there yet", self.scan.selection)
        self.scan.check_offsets(list(there))
        if self.scan.starts_latest:
            self._initial, self._is_first = self._behind(there), True
            return self._initial
        return stream_offsets.written(
            {
                topic: stream_offsets.beginning(
                    self.scan.consumer(topic).start, there[topic]
                )
                for topic in there
            }
        )

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and nothing that comes later."""
        self._is_bounded = True
        try:
            self._target = self._find()
        except NoSuchTopicError:  # which may be known, and trimmed since
            self._target = None

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return where the next batch ends; where it starts if there is nothing new.

        A first batch from behind all there is reads nothing. So it does when it is read
        again, which Spark has begin behind what came meanwhile.
        """
        is_first = self._is_first and start == self._initial
        self._initial, self._is_first = None, False
        if is_first:
            return start
        begin = stream_offsets.parse(start)
        known = self._of_scan(begin)
        found = self._target or self._find(known)
        if self._is_bounded:
            self._target = found
        marks, unread = {}, {}
        for topic in dict.fromkeys([*known, *found.spans]):
            there = found.spans.get(topic, [])
            of_topic = known.get(topic) or stream_offsets.beginning(None, there)
            lost = stream_offsets.lost(of_topic, there, self.scan.root)
            self._report(topic, lost)
            marks[topic] = stream_offsets.renewed(of_topic, there)
            if spans := stream_offsets.unread(marks[topic], there):
                unread[topic] = spans
        self._is_idle = not unread
        if not unread:
            return start
        ledgers = {topic: of.ledgers for topic, of in found.snapshots.items()}
        admitted = admit(unread, ledgers, self._limit(limit), self._rules)
        end = {
            topic: stream_offsets.advanced(marks[topic], found.spans[topic], spans)
            for topic, spans in admitted.items()
        }
        return stream_offsets.written({**begin, **end})

    def reportLatestOffset(self) -> Offset | None:
        """Return how far a query could be that had read everything."""
        if self._found is None:
            return None
        return self._behind(self._found.spans)

    def partitions(self, start: Offset, end: Offset) -> list[StreamPartition]:
        """Cut a batch; the versions of its objects are pinned."""
        self._is_first = False
        if start == self._initial:
            return []
        begin = self._of_scan(stream_offsets.parse(start))
        stop = self._of_scan(stream_offsets.parse(end))
        found = self._target or self._found
        if found is None or not found.has(begin, stop):
            found = self._find(stop)
        connector = connectors.find(self.scan.connector)
        of_batch, maps = [], {}
        for topic, marks in stop.items():
            there, before = found.spans.get(topic, []), begin.get(topic, {})
            lost = stream_offsets.lost_between(before, marks, there, self.scan.root)
            self._report(topic, lost)
            spans = stream_offsets.between(before, marks)
            if ranges := stream_offsets.joined(spans, there):
                name = qualified_topic(topic, self.scan.root)
                snapshot = found.snapshots[topic]
                maps[name] = ExtentIndex.told(connector, snapshot.ledgers)
                of_batch += [(Consumer(name, *ends), snapshot) for ends in ranges]
        stream = self._plan.next((start, end), self._to_come(begin, found))
        told = packed(stream)
        return [
            StreamPartition(part, maps[part.consumer.topic], told)
            for part in cut(self.scan, self.config, self._storage, of_batch)
        ]

    @cached_property
    def _rules(self) -> Rules:
        connector = connectors.find(self.scan.connector)
        return Rules(
            RowSamples(self._storage).rows,
            lambda extent: connector.runs(extent, self.config.run_bytes),
        )

    def _to_come(
        self, begin: Mapping[str, Marks], found: SnapshotView
    ) -> list[Consumer]:
        """Return what is to be read from somewhere on, whatever there is by then."""
        return [
            Consumer(qualified_topic(topic, self.scan.root), *ends)
            for topic, there in found.spans.items()
            for ends in stream_offsets.to_come(
                begin.get(topic) or stream_offsets.beginning(None, there), there
            )
        ]

    def _of_scan(self, offset: dict[str, Marks]) -> dict[str, Marks]:
        """Return an offset without topics that are none of the scan's any more."""
        others = [topic for topic in offset if not self.scan.means(topic)]
        if others:
            told = (
                f"the checkpoint has offsets of {', '.join(others)}, and option "
                f"{self.scan.selection} means other topics"
            )
            if self.scan.fail_on_data_loss:
                raise ConfigError(
                    f"{told}: give another checkpointLocation, or options that mean "
                    "all of them, or failOnDataLoss=false, which leaves these out"
                )
            if told not in self._told:
                _log.warning("%s: these are left out", told)
                self._told.add(told)
        return {topic: of for topic, of in offset.items() if topic not in others}

    def _find(self, known: dict[str, Marks] | None = None) -> SnapshotView:
        """List what there is; not without a pause if there was nothing new."""
        if self._is_idle:
            Event().wait(self.scan.poll_interval_s)
        self._found = SnapshotView.find(self.scan, self._storage, list(known or ()))
        return self._found

    def _behind(self, spans: Mapping[str, list[EntrySpan]]) -> Offset:
        """Return the offset behind all that is there."""
        return stream_offsets.written(
            {
                topic: stream_offsets.advanced({}, there, there)
                for topic, there in spans.items()
            }
        )

    def _report(self, topic: str, losses: list[Loss]) -> None:
        """Raise SourceError for a loss, or log each once."""
        new = [loss for loss in losses if loss not in self._told]
        everything = Consumer(qualified_topic(topic, self.scan.root))
        settings.report(new, everything, fail=self.scan.fail_on_data_loss)
        self._told.update(new)
