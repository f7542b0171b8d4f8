"""Partitions of a batch of a stream, its limits, and the base of its readers."""

from __future__ import annotations

import pickle
import zlib
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

from sparkcache.homes import NO_CLUSTER, Cluster
from sparkcache.source import settings
from sparkcache.source.batch.packing import compressed, decompressed, dictionary_of
from sparkcache.source.batch.scan_partition import ScanPartition
from sparkcache.source.streaming.rate_limit import Limit
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sparkcache.config import CacheConfig
    from sparkcache.connector import Storage
    from sparkcache.demand import Plan
    from sparkcache.source.batch.extent_index import ExtentIndex
    from sparkcache.source.batch.task_reader import TaskReader
    from sparkcache.source.options import ScanOptions


class SharedPart:
    """What the partitions of a batch share that are of one topic.

    Attributes:
        index: The extent index of the topic.
        packed_plan: The plan of the stream, which names all of its topics.
        dictionary: The dictionary with which the partitions travel compressed.

    """

    def __init__(
        self, index: ExtentIndex, packed_plan: bytes, dictionary: bytes = b""
    ) -> None:
        self.index = index
        self.packed_plan = packed_plan
        self.dictionary = dictionary

    def packed(self) -> bytes:
        """Return the shared part as bytes."""
        fields = self.index, self.packed_plan, self.dictionary
        return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL)


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
        dictionary, home = self.shared.dictionary, self.partition.home
        body = compressed(self.partition.packed(), dictionary)
        if self.number is None:
            return open_stream_partition, (body, self.shared.packed())
        shared = self.shared.packed() if self.leads else b""
        return planned_for_jvm, (home, body, self.number, shared)

    @property
    def stream(self) -> Plan:
        """Plan of what the stream has still to read."""
        encoded = zlib.decompress(self.shared.packed_plan).decode()
        (plan,) = settings.decode_plans(encoded)
        return plan


def planned_for_jvm(*fields: object) -> tuple[object, ...]:
    """Return the fields of a partition as the JVM gets them."""
    return fields


def open_stream_partition(body: bytes, shared: bytes) -> StreamPartition:
    """Return the partition for Python."""
    parts = SharedPart(*pickle.loads(shared))  # noqa: S301 - made above
    packed = decompressed(body, parts.dictionary)
    return StreamPartition(ScanPartition.unpacked(packed), parts)


def share(partitions: Sequence[StreamPartition]) -> None:
    """Have the JVM send once what partitions share."""
    numbers: dict[int, int] = {}
    for each in partitions:
        if id(each.shared) not in numbers:
            numbers[id(each.shared)] = len(numbers)
            each.leads = True
            each.shared.dictionary = dictionary_of(each.partition.packed())
        each.number = numbers[id(each.shared)]


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
        if isinstance(end, list):
            share(partitions)
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
        assert isinstance(partition, StreamPartition)
        return self.task_reader.read(
            partition.partition, partition.shared.index, partition.stream
        )

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
    def _storage(self) -> Storage:
        return open_storage(self.scan.root, self.config.storage, Traffic())


def packed(stream: Plan) -> bytes:
    """Return the plan of a stream, encoded and compressed for its partitions."""
    return zlib.compress(settings.encode_plans((stream,)).encode(), level=1)
