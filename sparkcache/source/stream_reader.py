"""`spark.readStream.format("sparkcache")`: a topic as a stream of batches.

Each batch reads what a scan from its start offset to its end offset would, and no batch
depends on anything but its offsets: one that is read again after a restart has the same
rows. See `stream_offsets` for what offsets are.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from sparkcache import connector as connectors
from sparkcache.consumers import Consumer, Plan
from sparkcache.errors import ConfigError
from sparkcache.model import placed
from sparkcache.source import batches, settings, stream_offsets
from sparkcache.source.admission import Rules, admit
from sparkcache.source.available import Available
from sparkcache.source.batches import StreamPartition
from sparkcache.source.sampling import RowSamples
from sparkcache.source.scan_partition import cut
from sparkcache.source.topic_map import TopicMap
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from sparkcache.config import CacheConfig
    from sparkcache.connector import Storage
    from sparkcache.model import Loss
    from sparkcache.source.options import ScanOptions
    from sparkcache.source.stream_offsets import Marks, Span
    from sparkcache.source.topic_reader import TopicReader

    Offset: TypeAlias = dict[str, dict[str, int | str]]


_EARLIEST: Marks = {0: stream_offsets.Mark(0, 0)}


@dataclass
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches, in one process of the driver; reads them, in tasks.

    Attributes:
        scan: What was asked for.
        config: How the driver reads.
        topic_reader: How tasks read.

    """

    scan: ScanOptions
    config: CacheConfig
    topic_reader: TopicReader
    _found: Available | None = None
    _target: Available | None = None
    _is_idle: bool = False
    _told: set[Loss] = field(default_factory=set)
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _batches: int = 0

    def __reduce__(self) -> tuple[object, ...]:
        return StreamReader, (self.scan, self.config, self.topic_reader)

    # Planning

    def initialOffset(self) -> Offset:
        """Return where a query begins that has no checkpoint."""
        there = self._find().spans
        self.scan.check_offsets(list(there))
        if self.scan.starts_latest:
            return self._behind(there)
        return stream_offsets.written(
            {
                topic: stream_offsets.beginning(
                    self.scan.consumer(topic).start, there[topic]
                )
                for topic in there
            }
        )

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch; of two, the one that Spark is told."""
        return batches.default_limit(self.scan)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and nothing that comes later."""
        try:
            self._target = self._find()
        except ConfigError:  # told by initialOffset, unless it was there once
            self._target = Available({})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return where the next batch ends; where it starts if there is nothing new."""
        begin = stream_offsets.parse(start)
        found = self._target or self._find(begin)
        topics = dict.fromkeys([*begin, *found.spans])
        marks = {topic: begin.get(topic) or _EARLIEST for topic in topics}
        unread = {}
        for topic in topics:
            there = found.spans.get(topic, [])
            lost = stream_offsets.lost(marks[topic], there, self.scan.root)
            self._report(topic, lost)
            if spans := stream_offsets.unread(marks[topic], there):
                unread[topic] = spans
        self._is_idle = not unread
        if not unread:
            return start
        ledgers = {topic: of.ledgers for topic, of in found.snapshots.items()}
        admitted = admit(unread, ledgers, batches.limit(self.scan, limit), self._rules)
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
        begin, stop = stream_offsets.parse(start), stream_offsets.parse(end)
        found = self._target or self._found
        if found is None or not found.has(begin, stop):
            found = self._find(stop)
        of_batch, maps = [], {}
        for topic, marks in stop.items():
            there, before = found.spans.get(topic, []), begin.get(topic, {})
            lost = stream_offsets.lost_between(before, marks, there, self.scan.root)
            self._report(topic, lost)
            spans = stream_offsets.between(before, marks)
            if ranges := stream_offsets.joined(spans, there):
                name = placed(topic, self.scan.root)
                snapshot = found.snapshots[topic]
                maps[name] = TopicMap(snapshot.ledgers)
                of_batch += [(Consumer(name, *ends), snapshot) for ends in ranges]
        stream = self._next_batch(begin, found)
        return [
            StreamPartition(part, maps[part.consumer.topic], stream)
            for part in cut(self.scan, self.config, self._storage, of_batch)
        ]

    # Reading

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a partition."""
        assert isinstance(partition, StreamPartition)
        return self.topic_reader.read(
            partition.partition, partition.topic, partition.stream
        )

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self.scan.root, self.config, Traffic())

    @cached_property
    def _rules(self) -> Rules:
        connector = connectors.find(self.scan.connector)
        return Rules(
            RowSamples(self._storage).rows,
            lambda extent: connector.runs(extent, self.config.run_bytes),
        )

    def _find(self, known: dict[str, Marks] | None = None) -> Available:
        """List what there is; not without a pause if there was nothing new."""
        if self._is_idle:
            Event().wait(self.scan.poll_interval_s)
        self._found = Available.find(self.scan, self._storage, list(known or ()))
        return self._found

    def _next_batch(self, begin: dict[str, Marks], found: Available) -> Plan:
        """Return what the stream has to read, from this batch on."""
        self._batches += 1
        consumers = []
        for topic, there in found.spans.items():
            marks = begin.get(topic) or _EARLIEST
            name = placed(topic, self.scan.root)
            consumers += [
                Consumer(name, first, end)
                for first, end in stream_offsets.to_come(marks, there)
            ]
        return Plan(self._id, tuple(consumers), self._batches)

    def _behind(self, spans: Mapping[str, list[Span]]) -> Offset:
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
        everything = Consumer(placed(topic, self.scan.root))
        settings.report(new, everything, fail=self.scan.fail_on_data_loss)
        self._told.update(new)
