"""Partitions of a batch of a stream, its limits, and the base of its readers."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sparkcache.demand import Consumer, Plan
from sparkcache.homes import NO_CLUSTER, Cluster
from sparkcache.model import (
    Extent,
    Ledger,
    ObjectId,
    Position,
    qualified_topic,
    topic_and_root,
)
from sparkcache.reported_loss import LossReport
from sparkcache.source import settings
from sparkcache.source.batch.packing import compressed, decompressed, dictionary_of
from sparkcache.source.batch.partitions import Piece
from sparkcache.source.batch.scan_partition import ScanPartition
from sparkcache.source.streaming.looked_up_index import LookedUpIndex
from sparkcache.source.streaming.rate_limit import Limit
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sparkcache.config import CacheConfig
    from sparkcache.connector import Storage
    from sparkcache.source.batch.extent_index import ExtentIndex
    from sparkcache.source.batch.task_reader import TaskReader
    from sparkcache.source.options import ScanOptions


_MAX_SHARED_BYTES = 256 << 10  # that the partitions of a batch take along


class SharedPart:
    """What the partitions of a batch share that are of one topic.

    Attributes:
        index: The extents of the topic; None if tasks look them up.
        encoded_plan: The plan of the stream, which names all of its topics.
        dictionary: The dictionary with which the JVM's partitions travel compressed.

    """

    def __init__(
        self,
        index: ExtentIndex | None,
        encoded_plan: bytes,
        dictionary: bytes = b"",
    ) -> None:
        self.index = index
        self.encoded_plan = encoded_plan
        self.dictionary = dictionary

    def packed(self) -> bytes:
        """Return the shared part as bytes."""
        fields = self.index, self.encoded_plan, self.dictionary
        return compressed(pickle.dumps(fields, pickle.HIGHEST_PROTOCOL))

    @classmethod
    def unpacked(cls, packed: bytes) -> SharedPart:
        """Return the shared part that was packed into these bytes."""
        return cls(*pickle.loads(decompressed(packed)))  # noqa: S301 - made above


class StreamPartition(InputPartition):
    """A partition of a batch, with what it shares with others.

    Attributes:
        partition: The partition.
        shared: What it shares.
        number: The number of the shared part, where the JVM sends that once; None where
            each partition takes it along.
        leads: Whether it is the first to share this part.

    """

    number: int | None = None
    leads = False

    def __init__(self, partition: ScanPartition, shared: SharedPart) -> None:
        super().__init__(partition)
        self.partition = partition
        self.shared = shared

    def __reduce__(self) -> tuple[object, ...]:
        plain, shared = self.partition.packed(), self.shared
        if self.number is None:
            fields = plain, shared.index, shared.encoded_plan
            pickled = pickle.dumps(fields, pickle.HIGHEST_PROTOCOL)
            return PackedStreamPartition, (
                compressed(pickled, self.partition.dictionary),
            )
        body = compressed(plain, shared.dictionary)
        packed = shared.packed() if self.leads else b""
        return planned_for_jvm, (self.partition.home, body, self.number, packed)

    @property
    def stream(self) -> Plan:
        """Plan of what the stream has still to read."""
        (plan,) = settings.decode_plans(self.shared.encoded_plan.decode())
        return plan


class PackedStreamPartition(InputPartition):
    """A partition of a batch, with what it shares, as Python alone sends it."""

    def unpacked(self, dictionary: bytes) -> StreamPartition:
        """Return the partition; the dictionary is that of the reader."""
        pickled = decompressed(self.value, dictionary)
        plain, *shared = pickle.loads(pickled)  # noqa: S301 - made above
        return StreamPartition(ScanPartition.unpacked(plain), SharedPart(*shared))


def planned_for_jvm(*fields: object) -> tuple[object, ...]:
    """Return the fields of a partition as the JVM gets them."""
    return fields


def open_in_python(body: bytes, packed: bytes) -> StreamPartition:
    """Return a partition that the JVM passes to Python."""
    shared = SharedPart.unpacked(packed)
    plain = decompressed(body, shared.dictionary)
    return StreamPartition(ScanPartition.unpacked(plain), shared)


def share(partitions: Sequence[StreamPartition]) -> None:
    """Have the JVM send once what partitions share."""
    numbers: dict[int, int] = {}
    for each in partitions:
        if id(each.shared) not in numbers:
            numbers[id(each.shared)] = len(numbers)
            each.leads = True
            each.shared.dictionary = dictionary_of(each.partition.packed())
        each.number = numbers[id(each.shared)]


def leave_out_indexes(partitions: Sequence[StreamPartition]) -> None:
    """Have tasks look up the indexes that would take much, one in each partition."""
    for shared in {id(each.shared): each.shared for each in partitions}.values():
        count = sum(each.shared is shared for each in partitions)
        if shared.index and count * len(shared.packed()) > _MAX_SHARED_BYTES:
            shared.index = None


@dataclass
class BatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of batches in tasks; derived classes plan the batches in the driver.

    Attributes:
        scan: The options of the stream.
        config: The configuration for reads of the driver.
        task_reader: The reader for tasks.

    """

    scan: ScanOptions
    config: CacheConfig
    task_reader: TaskReader

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.scan, self.config, self.task_reader)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit reported to Spark; bytes win over rows."""
        if self.scan.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.scan.max_bytes_per_trigger)
        if self.scan.max_rows_per_trigger is not None:
            return ReadMaxRows(self.scan.max_rows_per_trigger)
        return ReadAllAvailable()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any] | list[Any]
    ) -> list[StreamPartition]:
        """Cut a batch into partitions; the versions of its objects are pinned.

        Args:
            start: The offset where the batch begins.
            end: The offset where it ends. The JVM sends a list, which has the cluster
                before the offset.

        """
        found, stop = end if isinstance(end, list) else ({}, end)
        has_homes = self.config.homes and self.config.enabled
        cluster = msgspec.convert(found, Cluster) if has_homes else NO_CLUSTER
        partitions = self._cut(start, stop, cluster)
        for each in partitions:
            each.partition.dictionary = self._dictionary
        if isinstance(end, list):
            share(partitions)
        else:
            leave_out_indexes(partitions)
        return partitions

    @abstractmethod
    def _cut(
        self,
        start: dict[str, Any],
        end: dict[str, Any],
        cluster: Cluster,
    ) -> list[StreamPartition]:
        """Cut a batch; without a cluster Spark decides where partitions are read."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a partition."""
        if isinstance(partition, PackedStreamPartition):
            partition = partition.unpacked(self._dictionary)
        assert isinstance(partition, StreamPartition)
        index = partition.shared.index or self._looked_up(partition)
        return self.task_reader.read(partition.partition, index, partition.stream)

    def _looked_up(self, partition: StreamPartition) -> LookedUpIndex:
        topic, _ = topic_and_root(partition.partition.consumer.topic)
        batch = partition.shared.encoded_plan
        return LookedUpIndex(self.scan, self.config.storage, topic, batch)

    def _limit(self, spark_limit: ReadLimit) -> Limit:
        """Return both limits of a batch; no limit if Spark asks for everything."""
        if isinstance(spark_limit, ReadAllAvailable):
            return Limit()
        rows, stored_bytes = (
            inf if most is None else most
            for most in (
                self.scan.max_rows_per_trigger,
                self.scan.max_bytes_per_trigger,
            )
        )
        return Limit(rows, stored_bytes)

    @cached_property
    def _dictionary(self) -> bytes:
        """A dictionary that follows from the options alone, as readers in tasks do."""
        sample = _sample(self.scan)
        plan = Plan("", (sample.consumer,))
        fields = sample.packed(), None, encoded(plan)
        return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL)

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self.scan.root, self.config.storage, Traffic())


def _sample(scan: ScanOptions) -> ScanPartition:
    """Return a partition that resembles those of a stream."""
    topic = qualified_topic(next(iter(scan.selection.names), ""), scan.root)
    stored = ObjectId(f"{scan.root}/", 0, "")
    ledger = Ledger(scan.connector, topic, 0, stored, scan.decoding)
    consumer = Consumer(topic, Position(0, 0), Position(1, 0))
    piece = Piece(ledger, Extent(0, 0, 0, 0), 0)
    return ScanPartition([piece], [], consumer, "", 0, 0, LossReport(), ())


def encoded(stream: Plan) -> bytes:
    """Return the plan of a stream, encoded for its partitions."""
    return settings.encode_plans((stream,)).encode()
