"""One entry of a block that was read before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sparkcache
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache_pulsar.testing import Codec, synthetic_topic, write_directory
from tests.spark.spark_topics import TOPIC, Topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sparkcache.metrics import Metrics

pytestmark = pytest.mark.spark

RUN_BYTES = 1 << 20


@pytest.fixture
def large(tmp_path: Path) -> Topic:
    """A ledger of one block of 64 MiB, and what is left over."""
    stored = synthetic_topic(TOPIC, 66 << 20, codec=Codec.NONE)
    write_directory(tmp_path / "bucket", stored)
    return Topic(tmp_path / "bucket")


def metrics(spark: SparkSession) -> Metrics:
    (found,) = node_metrics(spark).values()
    return found


def test_an_entry_is_one_request_once_its_block_was_read(
    spark: SparkSession, large: Topic
) -> None:
    """Where runs begin is remembered, though the runs themselves are gone."""
    whole = large.load(spark, runBytes="1m")
    with sparkcache.plan(whole):
        entries = whole.selectExpr("max(__entryId)").collect()[0][0]
    assert entries > 500
    for entry in (entries // 3, 5, entries * 4 // 5):
        before = metrics(spark)
        one = large.load(
            spark,
            runBytes="1m",
            startingOffsets=f"1:{entry}",
            endingOffsets=f"1:{entry + 1}",
        )
        assert {row[0] for row in one.select("__entryId").collect()} == {entry}
        after = metrics(spark)
        assert after.gets - before.gets == 1
        assert after.received_bytes - before.received_bytes < 2 * RUN_BYTES
