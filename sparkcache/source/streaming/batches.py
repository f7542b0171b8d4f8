"""What a batch of a stream is made of, how large Spark wants it, and what reads it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sparkcache.source import settings
from sparkcache.source.streaming.rate_limit import Limit
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sparkcache.config import CacheConfig
    from sparkcache.connector import Storage
    from sparkcache.demand import Plan
    from sparkcache.source.batch.extent_index import ExtentIndex
    from sparkcache.source.batch.scan_partition import ScanPartition
    from sparkcache.source.batch.task_reader import TaskReader
    from sparkcache.source.options import ScanOptions


class StreamPartition(InputPartition):
    """A partition of a batch, its topic as it was, and what the stream has to read.

    That names all topics of the stream, in each of its partitions: so it is packed.
    """

    def __init__(
        self, partition: ScanPartition, topic: ExtentIndex, told: bytes
    ) -> None:
        super().__init__(partition)
        self.partition = partition
        self.topic = topic
        self._told = told

    @property
    def stream(self) -> Plan:
        """What the stream has to read."""
        (plan,) = settings.decode_plans(zlib.decompress(self._told).decode())
        return plan


@dataclass
class BatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads batches, in tasks; those who plan them, in the driver, derive from it.

    Attributes:
        scan: What was asked for.
        config: How the driver reads.
        topic_reader: How tasks read.

    """

    scan: ScanOptions
    config: CacheConfig
    task_reader: TaskReader

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.scan, self.config, self.task_reader)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch; of two, the one that Spark is told."""
        if self.scan.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.scan.max_bytes_per_trigger)
        if self.scan.max_rows_per_trigger is not None:
            return ReadMaxRows(self.scan.max_rows_per_trigger)
        return ReadAllAvailable()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a partition."""
        assert isinstance(partition, StreamPartition)
        return self.task_reader.read(
            partition.partition, partition.topic, partition.stream
        )

    def _limit(self, asked: ReadLimit) -> Limit:
        """Return both limits of a batch; none if Spark asks for all there is."""
        if isinstance(asked, ReadAllAvailable):
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
        return open_storage(self.scan.root, self.config, Traffic())


def packed(stream: Plan) -> bytes:
    """Return what a stream has to read as its partitions carry it."""
    return zlib.compress(settings.encode_plans((stream,)).encode(), level=1)
