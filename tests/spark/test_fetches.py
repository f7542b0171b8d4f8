"""Reading ahead, as a server of S3 sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.testing.s3_server import S3Server
from sparkcache_pulsar.testing import synthetic_topic
from tests.spark.spark_topics import TOPIC, settings_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.config import CacheConfig

pytestmark = pytest.mark.spark

BUCKET = "offload"
LEDGERS = 12
ENTRIES = 16  # of 128 KiB in each ledger


@pytest.fixture
def server(install: Callable[[CacheConfig], None]) -> Iterator[S3Server]:
    """A topic of 12 ledgers behind a server that answers after 20 ms."""
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        for stored in synthetic_topic(TOPIC, LEDGERS * ENTRIES << 17, ledgers=LEDGERS):
            server.put(BUCKET, stored.key, stored.data, stored.metadata)
        server.behave(latency_s=0.02)
        install(settings_for(server.endpoint))
        yield server


def load(spark: SparkSession, **options: str) -> DataFrame:
    reader = spark.read.format("sparkcache").option("topic", TOPIC).options(**options)
    return reader.option("runBytes", "256k").load(f"s3://{BUCKET}")


def sent(server: S3Server) -> dict[str, tuple[int, int]]:
    """GETs and bytes of each data object."""
    return {
        key: (count.gets, count.sent_bytes)
        for key, count in server.counts().items()
        if not key.endswith(("/", "-index"))
    }


def metrics(spark: SparkSession) -> Metrics:
    return sum(node_metrics(spark).values(), Metrics())


def test_a_scan_stalls_once_for_each_core_and_wastes_nothing(
    spark: SparkSession, server: S3Server
) -> None:
    rows = load(spark, partitionBytes="1m")
    assert rows.rdd.getNumPartitions() == LEDGERS
    server.forget()
    before = metrics(spark)
    with sparkcache.plan(rows):
        rows.write.format("noop").mode("overwrite").save()
    spent = metrics(spark) - before
    assert spent.misses <= 2 * 2  # tasks that begin at the same time begin with nothing
    assert spent.wasted == 0
    assert {gets for gets, _ in sent(server).values()} == {1}


def test_queries_for_a_few_rows_load_no_more_than_a_few_runs(
    spark: SparkSession, server: S3Server
) -> None:
    rows = load(spark)
    before = metrics(spark)
    for _ in range(3):
        assert len(rows.select("__entryId").take(5)) == 5
    spent = metrics(spark) - before
    assert spent.loaded_ahead <= 3 * 3
    assert spent.inserts <= 3 * 4


def test_a_plan_lists_the_bucket_once_for_each_scan(
    spark: SparkSession, server: S3Server
) -> None:
    def listings(*frames: DataFrame) -> int:
        server.forget()
        with sparkcache.plan(*frames) as plan:
            assert len(plan.consumers) == len(frames)
            return sum(request.key == "" for request in server.requests())

    rows, others = load(spark), load(spark, startingOffsets="3:0")
    once = listings(rows.filter("__key is null"))
    assert once > 0
    jobs = [rows.filter("__key is null"), rows.select("value"), rows, rows]
    assert listings(*jobs) == once
    assert listings(rows, *jobs, others, others.select("value")) == 2 * once
