"""A topic as a stream: exactly what a batch reads, whatever happens in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from conftest import LEDGER_IDS, TOPIC, Stream, Topic, ordered, write
from pyspark.errors import StreamingQueryException

import sparkcache
from sparkcache import ConfigError
from sparkcache.source.executors import node_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

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


def test_available_now_is_what_a_batch_reads(
    spark: SparkSession, stream: Stream
) -> None:
    (progress,) = stream.run()
    assert progress["numInputRows"] == stream.topic.rows
    assert stream.rows() == ordered(stream.topic.load(spark))
    assert progress["sources"][0]["endOffset"] == {
        TOPIC: {"0": 0, **{str(ledger): 24 for ledger in LEDGER_IDS}}
    }


def test_restarts_while_the_topic_grows_and_is_trimmed(
    spark: SparkSession, stream: Stream, to_come: Iterator[int]
) -> None:
    expected = []
    for ledger in to_come:
        assert sum(it["numInputRows"] for it in stream.run()) == 24 * 16
        expected += ordered(stream.topic.load(spark, startingOffsets=f"{ledger}:0"))
        assert stream.rows() == expected
        assert stream.run() == []
        if ledger == LEDGER_IDS[0]:
            for path in stream.topic.directory.iterdir():
                path.unlink()


def test_a_query_goes_on_as_ledgers_are_offloaded(
    spark: SparkSession, stream: Stream, to_come: Iterator[int]
) -> None:
    next(to_come)
    query = stream.start({"processingTime": "0 seconds"}, pollInterval="10ms")
    query.processAllAvailable()
    list(to_come)
    query.processAllAvailable()
    query.stop()
    assert stream.rows() == ordered(stream.topic.load(spark))


@pytest.mark.parametrize(
    ("limit", "most", "batches"),
    [({"maxRowsPerTrigger": "400"}, 400, 3), ({"maxBytesPerTrigger": "25%"}, 384, 4)],
    ids=["rows", "bytes"],
)
def test_limited_batches(
    spark: SparkSession,
    stream: Stream,
    limit: dict[str, str],
    most: int,
    batches: int,
) -> None:
    quarter = str(stream.topic.size_bytes // 4)
    limit = {name: value.replace("25%", quarter) for name, value in limit.items()}
    found = [progress["numInputRows"] for progress in stream.run(**limit)]
    assert max(found) <= most
    assert len(found) >= batches
    assert stream.rows() == ordered(stream.topic.load(spark))


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


def test_a_stopped_query_is_not_waited_for(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """Until then what it has not read is held, however soon others have read it."""
    sparkcache.install(spark, sparkcache.CacheConfig(ttl_after_read_s=0.001))
    write(tmp_path / "warm-up").load(spark).count()

    def fetched() -> int:
        """Return the bytes that a scan fetches."""
        (before,) = node_metrics(spark).values()
        stream.topic.load(spark).count()
        (after,) = node_metrics(spark).values()
        return after.received_bytes - before.received_bytes

    try:
        assert fetched() == fetched() == stream.topic.size_bytes
        query = stream.start({"processingTime": "1 hour"}, maxBytesPerTrigger="1k")
        while not query.lastProgress:
            query.awaitTermination(1)
        fetched()
        assert fetched() == 0
        query.stop()
        found = [fetched() for _ in range(10)]
        assert stream.topic.size_bytes in found
        assert found == sorted(found)
    finally:
        for key in sparkcache.CacheConfig().to_conf():
            spark.conf.unset(key)
        spark.dataSource.register(_default_source())


def _default_source() -> type:
    from pyspark_sparkcache import DefaultSource

    return DefaultSource
