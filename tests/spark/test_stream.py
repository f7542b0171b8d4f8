"""A topic as a stream: exactly what a batch reads, whatever happens in between."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import sparkcache
from sparkcache import ConfigError
from sparkcache.source.driver.node_rpc import node_metrics, node_statuses
from tests.spark.spark_topics import LEDGER_IDS, TOPIC, Stream, Topic, ordered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def to_come(topic: Topic, tmp_path: Path) -> Iterator[int]:
    """The ledgers of the topic, each as it is offloaded."""
    kept = tmp_path / "not offloaded yet"
    topic.directory.rename(kept)
    topic.directory.mkdir()
    return (_offload(kept, topic, ledger) for ledger in LEDGER_IDS)


def _offload(kept: Path, topic: Topic, ledger: int) -> int:
    for path in list(kept.glob(f"*-ledger-{ledger}*")):
        path.rename(topic.directory / path.name)
    return ledger


def test_restarts_while_the_topic_grows_and_is_trimmed(
    spark: SparkSession, stream: Stream, to_come: Iterator[int]
) -> None:
    expected = []
    for count in (1, 2):
        ledgers = list(islice(to_come, count))
        (progress,) = stream.run()
        assert progress["numInputRows"] == len(ledgers) * 24 * 16
        expected += ordered(stream.topic.load(spark, startingOffsets=f"{ledgers[0]}:0"))
        for path in stream.topic.directory.glob(f"*-ledger-{ledgers[0]}*"):
            path.unlink()
    assert stream.run() == []
    assert stream.rows() == expected
    offset = progress["sources"][0]["endOffset"]
    assert offset == {TOPIC: {str(ledger): 24 for ledger in LEDGER_IDS}}


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 1)])
def test_a_query_goes_on_as_ledgers_are_offloaded(
    spark: SparkSession, stream: Stream, to_come: Iterator[int], start: str, first: int
) -> None:
    next(to_come)
    options = {"pollInterval": "10ms", "startingOffsets": start}
    query = stream.start({"processingTime": "0 seconds"}, **options)
    query.processAllAvailable()
    list(to_come)
    query.processAllAvailable()
    query.stop()
    begin = f"{LEDGER_IDS[first]}:0"
    assert stream.rows() == ordered(stream.topic.load(spark, startingOffsets=begin))


def test_limited_batches_through_a_ring(spark: SparkSession, stream: Stream) -> None:
    quarter = str(stream.topic.size_bytes // 4)
    confs = {"engine": "ring", "maxBytes": "256k", "segmentBytes": "64k"}
    for name, value in confs.items():
        spark.conf.set(f"spark.sparkcache.{name}", value)
    try:
        progress = stream.run(maxRowsPerTrigger="400", maxBytesPerTrigger=quarter)
        expected = ordered(stream.topic.load(spark))
        (node,) = node_metrics(spark).values()
    finally:
        for name in confs:
            spark.conf.unset(f"spark.sparkcache.{name}")
        stream.topic.load(spark).count()  # a task of a batch tells the node
    assert node.evicted_by_ring > 0
    found = [batch["numInputRows"] for batch in progress]
    assert max(found) <= 384
    assert len(found) >= 4
    assert stream.rows() == expected


def test_batches_that_are_read_several_times(
    spark: SparkSession, stream: Stream
) -> None:
    """Both sides of a union, in each of two actions."""
    before = sum(node.received_bytes for node in node_metrics(spark).values())
    counts = []

    def read(batch: DataFrame, _: int) -> None:
        counts.extend([batch.count(), batch.count()])

    rows = stream.load()
    writer = rows.union(rows).writeStream.foreachBatch(read)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert counts == [2 * stream.topic.rows] * 2
    (after,) = node_metrics(spark).values()
    assert after.received_bytes - before == stream.topic.size_bytes
    ((_, status),) = node_statuses(spark)
    assert json.loads(status)["plans"][-1]["consumers"] == 2


def test_a_stream_needs_no_plan(stream: Stream) -> None:
    rows = stream.load()
    with (
        pytest.raises(ConfigError, match="a consumer by itself"),
        sparkcache.plan(rows),
    ):
        pass


def test_a_loss_ends_the_query(stream: Stream) -> None:
    stream.topic.data_files[0].write_bytes(b"")
    with pytest.raises(StreamingQueryException, match="expected"):
        stream.run()


def test_an_option_of_batches_ends_the_query(stream: Stream) -> None:
    with pytest.raises(StreamingQueryException) as caught:
        stream.run(endingOffsets="3:0")
    said = str(caught.value)
    assert "option endingOffsets='3:0': valid only in spark.read;" in said
    assert "UnboundLocalError" not in said


def test_a_stopped_query_is_not_waited_for(spark: SparkSession, stream: Stream) -> None:
    """Until then what it has not read is held, however soon others have read it."""
    sparkcache.install(spark, sparkcache.CacheConfig(ttl_after_read_s=0.001))
    orders = stream.topic.load(spark)
    received = [sum(node.received_bytes for node in node_metrics(spark).values())]

    def fetched() -> int:
        """Return the bytes that a scan fetches."""
        orders.count()
        (node,) = node_metrics(spark).values()
        received.append(node.received_bytes)
        return received[-1] - received[-2]

    try:
        assert fetched() == fetched() == stream.topic.size_bytes
        query = stream.start({"processingTime": "1 hour"}, maxBytesPerTrigger="1k")
        while not query.lastProgress:
            query.awaitTermination(0.1)  # type: ignore[arg-type]  # Spark takes it
        fetched()
        assert fetched() == 0
        query.stop()
        assert any(fetched() == stream.topic.size_bytes for _ in range(10))
    finally:
        for key in sparkcache.CacheConfig().to_conf():
            spark.conf.unset(key)
        spark.dataSource.register(_default_source())


def _default_source() -> type:
    from pyspark_sparkcache import DefaultSource

    return DefaultSource
