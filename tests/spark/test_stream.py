"""A topic as a stream: exactly what a batch reads, whatever happens in between."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from conftest import LEDGER_IDS, TOPIC, Topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark


class Stream:
    """A query that writes what it reads to files; it can be started again."""

    def __init__(self, spark: SparkSession, topic: Topic, to: Path) -> None:
        self._spark = spark
        self.topic = topic
        self._to = to

    def load(self, **options: Any) -> DataFrame:
        options = {"topic": self.topic.name, "runBytes": "4k"} | options
        reader = self._spark.readStream.format("sparkcache").options(**options)
        return reader.load(str(self.topic.directory))

    def start(self, trigger: dict[str, Any], **options: Any) -> StreamingQuery:
        writer = self.load(**options).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._to / "checkpoint"))
        return writer.trigger(**trigger).start(str(self._to / "rows"))

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """Read all there is; return the progress of each batch that read something."""
        query = self.start({"availableNow": True}, **options)
        query.awaitTermination()
        return [
            json.loads(progress.json)
            for progress in query.recentProgress
            if progress.numInputRows
        ]

    def rows(self) -> list[Row]:
        return ordered(self._spark.read.parquet(str(self._to / "rows")))


def ordered(frame: DataFrame) -> list[Row]:
    return frame.orderBy("__topic", "__ledgerId", "__entryId", "__batchIndex").collect()


@pytest.fixture
def stream(spark: SparkSession, topic: Topic, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(spark, topic, tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_available_now_is_what_a_batch_reads(
    spark: SparkSession, stream: Stream
) -> None:
    (progress,) = stream.run()
    assert progress["numInputRows"] == stream.topic.rows
    assert stream.rows() == ordered(stream.topic.load(spark))
    assert json.loads(json.dumps(progress["sources"][0]["endOffset"])) == {
        TOPIC: {"0": 0, **{str(ledger): 24 for ledger in LEDGER_IDS}}
    }
