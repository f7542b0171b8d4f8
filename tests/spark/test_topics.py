"""Scans of several topics, and of times."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import sparkcache
from sparkcache.source.driver.node_rpc import node_metrics
from tests.spark.spark_topics import TOPIC, Topic, consumers_of, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTS = [f"{TOPIC}-partition-{number}" for number in range(2)]
OTHER = "persistent://shop/us/orders"


@pytest.fixture
def several(tmp_path: Path) -> Topic:
    """Two partitions of one topic, and another; in one bucket."""
    for number, name in enumerate([*PARTS, OTHER]):
        write(tmp_path / "bucket", name, first_ledger=100 * number)
    return Topic(tmp_path / "bucket")


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("topic", TOPIC, PARTS),
        ("topic", PARTS[1], PARTS[1:]),
        ("topics", f"{PARTS[0]},{OTHER}", [PARTS[0], OTHER]),
        ("topicsPattern", r"persistent://shop/[^/]*/orders", [*PARTS, OTHER]),
    ],
)
def test_several_topics_in_one_scan(
    spark: SparkSession, several: Topic, option: str, value: str, found: list[str]
) -> None:
    reader = spark.read.format("sparkcache").option(option, value)
    rows = reader.load(str(several.directory))
    counts = {row[0]: row[1] for row in rows.groupBy("__topic").count().collect()}
    assert counts == dict.fromkeys(found, several.rows)


def test_each_topic_is_planned_and_evicted(spark: SparkSession, several: Topic) -> None:
    frames = [several.load(spark) for _ in range(2)]
    assert len(consumers_of(frames[0])) == 2
    (before,) = node_metrics(spark).values()
    with sparkcache.plan(*frames):
        for frame in frames:
            assert frame.count() == 2 * several.rows
    (after,) = node_metrics(spark).values()
    read_out = after.evicted_by_last_read - before.evicted_by_last_read
    assert read_out == after.inserts - before.inserts > 0


def test_offsets_of_each(spark: SparkSession, several: Topic) -> None:
    rows = several.load(
        spark, startingOffsets=f'{{"{PARTS[0]}": "9:0", "{PARTS[1]}": "999:0"}}'
    )
    assert {row[0] for row in rows.select("__ledgerId").distinct().collect()} == {9}


def test_an_unknown_topic_is_named(spark: SparkSession, several: Topic) -> None:
    with pytest.raises(Exception, match="no offloaded ledger matches"):
        several.load(spark, topic="pizzas").count()


def test_a_time_reads_the_blocks_around_it(
    spark: SparkSession, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is read, the rows are those of a whole scan."""
    caplog.set_level(logging.ERROR)
    times = {"startingTime": "5010000", "endingTime": "5012000"}
    partitions, counts = [], []
    for skew in ("1s", "1h", "9000h"):
        rows = topic.load(spark, **times, maxTimeSkew=skew, partitionBytes="1k")
        partitions.append(rows.rdd.getNumPartitions())
        counts.append(sorted(bytes(row["value"]) for row in rows.collect()))
    assert partitions[0] < partitions[1] < partitions[2]
    assert counts[0] == counts[1] == counts[2]
    assert len(counts[0]) == 2 * 16
