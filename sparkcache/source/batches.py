"""What a batch of a stream is made of, and how large Spark wants it."""

from __future__ import annotations

import zlib
from math import inf
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)

from sparkcache.source import settings
from sparkcache.source.admission import Limit

if TYPE_CHECKING:
    from sparkcache.consumers import Plan
    from sparkcache.source.options import ScanOptions
    from sparkcache.source.scan_partition import ScanPartition
    from sparkcache.source.topic_map import TopicMap


class StreamPartition(InputPartition):
    """A partition of a batch, its topic as it was, and what the stream has to read.

    That names all topics of the stream, in each of its partitions: so it is packed.
    """

    def __init__(self, partition: ScanPartition, topic: TopicMap, told: bytes) -> None:
        super().__init__(partition)
        self.partition = partition
        self.topic = topic
        self._told = told

    @property
    def stream(self) -> Plan:
        """What the stream has to read."""
        (plan,) = settings.decode_plans(zlib.decompress(self._told).decode())
        return plan


def packed(stream: Plan) -> bytes:
    """Return what a stream has to read as its partitions carry it."""
    return zlib.compress(settings.encode_plans((stream,)).encode(), level=1)


def default_limit(scan: ScanOptions) -> ReadLimit:
    """Return the limit of a scan's batches; of two, the one that Spark is told."""
    if scan.max_bytes_per_trigger is not None:
        return ReadMaxBytes(scan.max_bytes_per_trigger)
    if scan.max_rows_per_trigger is not None:
        return ReadMaxRows(scan.max_rows_per_trigger)
    return ReadAllAvailable()


def limit(scan: ScanOptions, asked: ReadLimit) -> Limit:
    """Return both limits of a scan; none if Spark asks for all there is."""
    if isinstance(asked, ReadAllAvailable):
        return Limit()
    rows, stored_bytes = (
        inf if most is None else most
        for most in (scan.max_rows_per_trigger, scan.max_bytes_per_trigger)
    )
    return Limit(rows, stored_bytes)
