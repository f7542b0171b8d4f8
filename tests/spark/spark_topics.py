"""Topics and streams for tests with Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sparkcache.config import CacheConfig
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.source.planning.consumers import scans_of
from sparkcache_pulsar.testing import (
    Codec,
    Entry,
    Message,
    ledger_objects,
    write_directory,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from sparkcache.demand import Consumer

TOPIC = "persistent://shop/eu/orders"
LEDGER_IDS = (3, 5, 9)
ENTRIES = 24
MESSAGES = 16


def settings_for(endpoint: str, **settings: Any) -> CacheConfig:
    """Return settings with which scans read an S3 server of the tests."""
    return CacheConfig(
        endpoint=endpoint, path_style=True, region="us-east-1", **settings
    )


class Node:
    """What the session's node has counted since the test began."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before = self._total()

    def counted(self) -> Metrics:
        return self._total() - self._before

    def _total(self) -> Metrics:
        return sum(node_metrics(self._spark).values(), Metrics())


@dataclass(frozen=True)
class Topic:
    """A topic in a directory: 3 ledgers of 24 entries of 16 messages."""

    directory: Path
    name: str = TOPIC

    @property
    def rows(self) -> int:
        return len(LEDGER_IDS) * ENTRIES * MESSAGES

    @property
    def data_files(self) -> list[Path]:
        paths = self.directory.iterdir()
        return sorted(path for path in paths if not path.name.endswith("-index"))

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.data_files)

    def load(self, spark: SparkSession, schema: str = "", **options: Any) -> DataFrame:
        options = {"topic": self.name, "runBytes": "4k"} | options
        reader = spark.read.format("sparkcache").options(**options)
        if schema:
            reader = reader.schema(schema)
        return reader.load(str(self.directory))


def write(directory: Path, topic: str = TOPIC, first_ledger: int = 0) -> Topic:
    """Write a topic whose entry e of ledger l was published at second 1000 * l + e."""
    for ledger in LEDGER_IDS:
        entries = []
        for entry in range(ENTRIES):
            second = ledger * 1000 + entry
            messages = tuple(
                Message(f"{second}/{number} ".encode() * 8, key=f"key-{number % 4}")
                for number in range(MESSAGES)
            )
            entries.append(
                Entry(messages, codec=Codec.LZ4, publish_time_ms=second * 1000).encode()
            )
        objects = ledger_objects(
            topic, first_ledger + ledger, entries, max_block_bytes=16 << 10
        )
        write_directory(directory, objects)
    return Topic(directory, topic)


class Stream:
    """A query that writes the rows of a topic to files, and can be restarted."""

    def __init__(self, spark: SparkSession, topic: Topic, directory: Path) -> None:
        self._spark = spark
        self.topic = topic
        self._directory = directory

    def load(self, **options: Any) -> DataFrame:
        options = {"topic": self.topic.name, "runBytes": "4k"} | options
        reader = self._spark.readStream.format("sparkcache").options(**options)
        return reader.load(str(self.topic.directory))

    def start(self, trigger: dict[str, Any], **options: Any) -> StreamingQuery:
        writer = self.load(**options).writeStream.format("parquet")
        writer = writer.option(
            "checkpointLocation", str(self._directory / "checkpoint")
        )
        return writer.trigger(**trigger).start(str(self._directory / "rows"))

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """Read all rows; return the progress of each batch that was not empty."""
        query = self.start({"availableNow": True}, **options)
        query.awaitTermination()
        return [
            json.loads(progress.json)
            for progress in query.recentProgress
            if progress.numInputRows
        ]

    def rows(self) -> list[Row]:
        return ordered(self._spark.read.parquet(str(self._directory / "rows")))


def ordered(frame: DataFrame) -> list[Row]:
    position = itemgetter("__topic", "__ledgerId", "__entryId", "__batchIndex")
    return sorted(frame.collect(), key=position)


def consumers_of(frame: DataFrame) -> Sequence[Consumer]:
    """Return the consumers that a plan of one DataFrame has."""
    (found,) = scans_of([frame])
    return found.consumers
