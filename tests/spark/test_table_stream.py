"""A table as a stream: exactly what a batch reads, and from the same cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException

from sparkcache.source.driver.node_rpc import node_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

ROWS = 1000


class TableStream:
    """A query that writes the rows of a table to files; it can be started again."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.table = directory / "lake" / "t"
        self._to = directory
        self._rows = 0

    def append(self, commits: int = 1) -> None:
        for _ in range(commits):
            ids = range(self._rows, self._rows + ROWS)
            write_deltalake(self.table, pa.table({"id": ids}), mode="append")
            self._rows += ROWS

    def start(self, trigger: dict[str, Any], **options: str) -> StreamingQuery:
        options = {"connector": "delta", "topic": "t", "pollInterval": "10ms"} | options
        reader = self.spark.readStream.format("sparkcache").options(**options)
        writer = reader.load(str(self.table.parent)).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._to / "checkpoint"))
        return writer.trigger(**trigger).start(str(self._to / "rows"))

    def run(self, **options: str) -> list[int]:
        """Read all there is; return how many rows each batch had."""
        query = self.start({"availableNow": True}, **options)
        query.awaitTermination()
        return [it.numInputRows for it in query.recentProgress if it.numInputRows]

    def require_all(self) -> None:
        rows = self.spark.read.parquet(str(self._to / "rows"))
        assert sorted(row.id for row in rows.collect()) == list(range(self._rows))


@pytest.fixture(scope="module", autouse=True)
def _threads_of_delta_rs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start what delta-rs keeps running, before tests look for what they leave."""
    write_deltalake(tmp_path_factory.mktemp("first"), pa.table({"id": [1]}))


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[TableStream]:
    yield TableStream(spark, tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_restarts_while_a_table_grows(stream: TableStream) -> None:
    stream.append(3)
    assert stream.run(maxRowsPerTrigger=f"{2 * ROWS}") == [2 * ROWS, ROWS]
    stream.append()
    DeltaTable(stream.table).optimize.compact()
    stream.append()
    assert stream.run() == [2 * ROWS]
    assert stream.run() == []
    stream.require_all()
    write_deltalake(stream.table, pa.table({"id": range(3)}), mode="overwrite")
    with pytest.raises(StreamingQueryException, match="skipChangeCommits=true"):
        stream.run()


def test_a_query_goes_on_as_commits_come(stream: TableStream) -> None:
    stream.append()
    query = stream.start({"processingTime": "0 seconds"})
    query.processAllAvailable()
    stream.append(2)
    query.processAllAvailable()
    query.stop()
    stream.require_all()


def test_a_stream_and_a_scan_fetch_a_table_once(stream: TableStream) -> None:
    def received() -> int:
        return sum(it.received_bytes for it in node_metrics(stream.spark).values())

    stream.append(2)
    before = received()
    assert sum(stream.run()) == 2 * ROWS
    read = received()
    assert read > before
    scan = stream.spark.read.format("sparkcache").option("connector", "delta")
    assert len(scan.load(str(stream.table)).collect()) == 2 * ROWS
    assert len(scan.load(str(stream.table.parent), topic="t").collect()) == 2 * ROWS
    assert received() - read == read - before
