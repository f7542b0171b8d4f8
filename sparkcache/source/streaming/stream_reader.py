"""`spark.readStream.format("sparkcache")`: topics as a stream of batches.

A batch reads what a scan from its start offset to its end offset would. It depends on
nothing but its offsets, so it has the same rows when it is repeated after a restart.
See `stream_offsets` for the offsets.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, TypeAlias

from sparkcache import connector as connectors
from sparkcache.demand import Consumer
from sparkcache.errors import ConfigError, NoSuchTopicError
from sparkcache.model import qualified_topic
from sparkcache.reported_loss import LossReport
from sparkcache.source import settings
from sparkcache.source.batch.extent_index import ExtentIndex
from sparkcache.source.batch.scan_partition import cut
from sparkcache.source.streaming import stream_offsets
from sparkcache.source.streaming.batches import (
    BatchReader,
    SharedPart,
    StreamPartition,
    encoded,
)
from sparkcache.source.streaming.rate_limit import Rules, admit
from sparkcache.source.streaming.sampling import RowSamples
from sparkcache.source.streaming.snapshot_view import SnapshotView
from sparkcache.source.streaming.stream_plan import StreamPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.datasource import ReadLimit

    from sparkcache.homes import Cluster
    from sparkcache.model import Loss
    from sparkcache.source.streaming.stream_offsets import EntrySpan, Marks

    Offset: TypeAlias = dict[str, dict[str, int | str]]

_log = logging.getLogger(__name__)


@dataclass
class StreamReader(BatchReader):
    """Planner of the batches of topics that grow by ledgers, in the driver."""

    _initial: Offset | None = None
    _is_first: bool = False
    _listed: SnapshotView | None = None
    _target: SnapshotView | None = None
    _is_bounded: bool = False
    _is_idle: bool = False
    _reported: set[Loss | str] = field(default_factory=set)
    _unsent: LossReport = field(default_factory=LossReport)
    _plan: StreamPlan = field(default_factory=StreamPlan)

    def initialOffset(self) -> Offset:
        """Return the start of a query that has no checkpoint."""
        spans = (self._target or self._list()).spans  # within the query's target
        if not spans:
            _log.warning("%s: nothing is there yet", self.scan.selection)
        self.scan.check_offsets(list(spans))
        if self.scan.starts_latest:
            self._initial, self._is_first = self._end(spans), True
            return self._initial
        return stream_offsets.as_json(
            {
                topic: stream_offsets.beginning(
                    self.scan.consumer(topic).start, spans[topic]
                )
                for topic in spans
            }
        )

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to what is stored now."""
        self._is_bounded = True
        try:
            self._target = self._list()
        except NoSuchTopicError:  # a known topic may be trimmed entirely
            self._target = None

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch; its start if there is nothing new.

        A first batch that starts at `latest` reads nothing. If it is repeated, Spark
        asks for the initial offset again, by then after later entries, and the batch
        still reads nothing.
        """
        is_first = self._is_first and start == self._initial
        self._initial, self._is_first = None, False
        if is_first:
            return start
        begin = stream_offsets.parse(start)
        known = self._scanned(begin)
        view = self._target or self._list(known)
        if self._is_bounded:
            self._target = view
        marks, unread = {}, {}
        for topic in dict.fromkeys([*known, *view.spans]):
            stored = view.spans.get(topic, [])
            topic_marks = known.get(topic) or stream_offsets.beginning(None, stored)
            lost = stream_offsets.lost(topic_marks, stored, self.scan.root)
            self._report(topic, lost)
            if topic in view.snapshots:
                losses = view.snapshots[topic].losses
                self._report(topic, stream_offsets.unread_losses(topic_marks, losses))
            marks[topic] = stream_offsets.reset_recreated(topic_marks, stored)
            if spans := stream_offsets.unread(marks[topic], stored):
                unread[topic] = spans
        self._is_idle = not unread
        if not unread:
            return start
        ledgers = {
            topic: snapshot.ledgers for topic, snapshot in view.snapshots.items()
        }
        admitted = admit(unread, ledgers, self._limit(limit), self._rules)
        end = {
            topic: stream_offsets.advanced(marks[topic], view.spans[topic], spans)
            for topic, spans in admitted.items()
        }
        return stream_offsets.as_json({**begin, **end})

    def reportLatestOffset(self) -> Offset | None:
        """Return the offset that a query would have after reading everything."""
        if self._listed is None:
            return None
        return self._end(self._listed.spans)

    def _cut(
        self, start: Offset, end: Offset, cluster: Cluster
    ) -> list[StreamPartition]:
        self._is_first = False
        if start == self._initial:
            return []
        begin = self._scanned(stream_offsets.parse(start))
        stop = self._scanned(stream_offsets.parse(end))
        view = self._target or self._listed
        if view is None or not view.has(begin, stop):
            view = self._list(stop)
        connector = connectors.find(self.scan.connector)
        snapshots, indexes = [], {}
        for topic, marks in stop.items():
            stored, before = view.spans.get(topic, []), begin.get(topic, {})
            lost = stream_offsets.lost_between(before, marks, stored, self.scan.root)
            self._report(topic, lost)
            spans = stream_offsets.between(before, marks)
            if ranges := stream_offsets.joined(spans, stored):
                name = qualified_topic(topic, self.scan.root)
                snapshot = view.snapshots[topic]
                indexes[name] = ExtentIndex.for_tasks(connector, snapshot)
                new = (loss for loss in snapshot.losses if loss not in self._reported)
                snapshot = replace(snapshot, losses=tuple(new))
                snapshots += [(Consumer(name, *bounds), snapshot) for bounds in ranges]
        stream = self._plan.next((start, end), self._still_to_read(begin, view))
        encoded_plan = encoded(stream)
        shared = {
            name: SharedPart(index, encoded_plan) for name, index in indexes.items()
        }
        parts = list(
            cut(
                self.scan,
                self.config.scan,
                self._storage,
                snapshots,
                cluster=cluster,
            )
        )
        if parts:
            parts[0].report.add(self._unsent.losses, self._unsent.not_listed)
            self._unsent = LossReport()
        return [StreamPartition(part, shared[part.consumer.topic]) for part in parts]

    @cached_property
    def _rules(self) -> Rules:
        connector = connectors.find(self.scan.connector)
        return Rules(
            RowSamples(self._storage).rows,
            lambda extent: connector.runs(extent, self.config.run_bytes),
        )

    def _still_to_read(
        self, begin: Mapping[str, Marks], view: SnapshotView
    ) -> list[Consumer]:
        """Return consumers for all unread entries, future ones included."""
        return [
            Consumer(qualified_topic(topic, self.scan.root), *bounds)
            for topic, stored in view.spans.items()
            for bounds in stream_offsets.still_to_read(
                begin.get(topic) or stream_offsets.beginning(None, stored), stored
            )
        ]

    def _scanned(self, offset: dict[str, Marks]) -> dict[str, Marks]:
        """Return an offset without topics that the options no longer mean."""
        others = [topic for topic in offset if not self.scan.includes(topic)]
        if others:
            problem = (
                f"the checkpoint has offsets of {', '.join(others)}, and option "
                f"{self.scan.selection} means other topics"
            )
            if self.scan.fail_on_data_loss:
                raise ConfigError(
                    f"{problem}: give another checkpointLocation, options that mean "
                    "all of these topics, or failOnDataLoss=false, which leaves them "
                    "out"
                )
            if problem not in self._reported:
                _log.warning("%s: these are left out", problem)
                self._reported.add(problem)
        return {topic: marks for topic, marks in offset.items() if topic not in others}

    def _list(self, known: dict[str, Marks] | None = None) -> SnapshotView:
        """List the storage; pause first if the last listing had nothing new."""
        if self._is_idle:
            Event().wait(self.scan.poll_interval_s)
        self._listed = SnapshotView.find(self.scan, self._storage, list(known or ()))
        return self._listed

    def _end(self, spans: Mapping[str, list[EntrySpan]]) -> Offset:
        """Return the offset after all entries."""
        return stream_offsets.as_json(
            {
                topic: stream_offsets.advanced({}, stored, stored)
                for topic, stored in spans.items()
            }
        )

    def _report(self, topic: str, losses: list[Loss]) -> None:
        """Raise SourceError for a loss, or log and report each loss once.

        The tasks of the next batch report: no node is known to this process.
        """
        new = [loss for loss in losses if loss not in self._reported]
        everything = Consumer(qualified_topic(topic, self.scan.root))
        fail = self.scan.fail_on_data_loss
        self._unsent.add(settings.report(new, everything, fail=fail))
        self._reported.update(new)
