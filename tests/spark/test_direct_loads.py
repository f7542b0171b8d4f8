"""Tasks that load for themselves what would not be kept, through Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sparkcache
from sparkcache import CacheConfig
from sparkcache.cache import Policy, Settings, Ttl
from sparkcache.simulate import simulate
from sparkcache.source.driver.registration import name_of_installed
from sparkcache.trace import parse
from tests.spark.spark_topics import Node, Topic
from tests.spark.test_losses import flip_a_bit, losses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MAX_BYTES = "spark.sparkcache.maxBytes"
LONG = Ttl(create_s=1e6, after_read_s=None, expected_s=1e6)


@pytest.fixture
def node(
    spark: SparkSession, topic: Topic, install: Callable[[CacheConfig], None]
) -> Iterator[Node]:
    """The session's node, which has started and holds nothing."""
    install(CacheConfig())
    topic.load(spark).count()
    sparkcache.clear(spark)
    yield Node(spark)
    spark.conf.unset(MAX_BYTES)


def load(spark: SparkSession, topic: Topic, **options: str) -> DataFrame:
    """Return the rows of a topic, read in Python."""
    reader = spark.read.format(name_of_installed(spark)).option("topic", topic.name)
    options = {"runBytes": "4k"} | options
    return reader.options(**options).load(str(topic.directory))


def compute(dataframe: DataFrame) -> None:
    dataframe.write.format("noop").mode("overwrite").save()


def test_a_consumer_after_which_none_comes_loads_for_itself(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    rows = load(spark, topic, minPartitions="3")
    wanted = sorted(load(spark, topic, enabled="false").collect())
    with sparkcache.plan(topic.load(spark)):
        assert sorted(rows.collect()) == wanted
        counted = node.counted()
    assert counted.direct == counted.requests == counted.misses > 0
    assert counted.received_bytes == counted.requested_bytes == topic.size_bytes
    assert counted.gets == counted.reads
    assert counted.inserts == counted.runs == 0


def test_an_unplanned_scan_of_more_than_fits_keeps_nothing(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    spark.conf.set(MAX_BYTES, str(topic.size_bytes // 10))
    assert load(spark, topic).count() == topic.rows
    counted = node.counted()
    assert counted.direct == counted.requests > 0
    assert counted.received_bytes == topic.size_bytes


def test_three_in_turns_with_room_for_a_third_fetch_what_is_not_held(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    rows = load(spark, topic)
    with sparkcache.plan(*[topic.load(spark)] * 2):
        compute(rows)
        whole_bytes = node.counted().held_bytes
    spark.conf.set(MAX_BYTES, str(whole_bytes // 3))
    before = node.counted()
    with sparkcache.plan(*[topic.load(spark)] * 3):
        for _ in range(3):
            assert rows.count() == topic.rows
        counted = node.counted() - before
    assert counted.hits > 0
    assert counted.direct > 0
    assert topic.size_bytes < counted.received_bytes < 3 * topic.size_bytes
    assert node.counted().runs == 0


def test_a_limit_ends_a_direct_load_early(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    spark.conf.set(MAX_BYTES, "0")
    assert len(load(spark, topic, minPartitions="3").limit(3).collect()) == 3
    counted = node.counted()
    assert counted.direct > 0
    assert counted.received_bytes < topic.size_bytes


def test_what_is_lost_in_a_direct_load_is_listed(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    spark.conf.set(MAX_BYTES, "0")
    flip_a_bit(topic.data_files[0])
    assert load(spark, topic, failOnDataLoss="false").count() < topic.rows
    assert node.counted().lost_entries > 0
    assert losses(spark, topic)
    with pytest.raises(Exception, match=topic.data_files[0].name):
        compute(load(spark, topic))


def test_direct_loads_are_recorded(
    spark: SparkSession, topic: Topic, node: Node, tmp_path: Path
) -> None:
    rows = load(spark, topic)
    try:
        spark.conf.set("spark.sparkcache.trace", str(tmp_path / "traces"))
        with sparkcache.plan(topic.load(spark)):
            compute(rows)
        counted = node.counted()
    finally:
        spark.conf.unset("spark.sparkcache.trace")
        compute(rows)  # the node learns of it
    [path] = (tmp_path / "traces").iterdir()
    trace = parse(path.read_text().splitlines(), path.name)
    settings = Settings(1 << 30, 1000, LONG, Policy.NEXT_READ)
    outcome = simulate(trace, settings)
    assert outcome.reads == outcome.loads == counted.requests == counted.direct
