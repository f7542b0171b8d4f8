"""Many small ledgers: loaded together, each with its own faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache_pulsar.testing import Entry, Message, ledger_objects, write_directory

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TOPIC = "persistent://shop/eu/small"
LEDGERS, MESSAGES = 300, 4
THIRD = 3


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for ledger in range(1, LEDGERS + 1):
        values = (Message(b"%d:%d" % (ledger, n)) for n in range(MESSAGES))
        entry = Entry(tuple(values)).encode()
        write_directory(tmp_path, ledger_objects(TOPIC, ledger, [entry]))
    return tmp_path


def load(spark: SparkSession, directory: Path, **options: str) -> DataFrame:
    reader = spark.read.format("sparkcache").option("topic", TOPIC)
    return reader.options(**options).load(directory.as_uri())


def found(frame: DataFrame) -> list[bytes]:
    return [bytes(row["value"]) for row in frame.select("value").collect()]


def expected(*without: int) -> list[bytes]:
    return [
        b"%d:%d" % (ledger, number)
        for ledger in range(1, LEDGERS + 1)
        for number in range(MESSAGES)
        if ledger not in without
    ]


def metrics(spark: SparkSession) -> Metrics:
    return sum(node_metrics(spark).values(), Metrics())


def data_of(directory: Path, ledger: int) -> Path:
    (path,) = directory.glob(f"*-ledger-{ledger}")
    return path


def test_each_is_read_once_and_served_from_few_pieces_of_memory(
    spark: SparkSession, directory: Path
) -> None:
    frame = load(spark, directory)
    before = metrics(spark)
    with sparkcache.plan(frame, frame, frame):
        for _ in range(2):
            assert sorted(found(frame)) == sorted(expected())
        assert frame.count() == LEDGERS * MESSAGES
    spent = metrics(spark)
    assert spent.loads - before.loads == LEDGERS
    assert spent.gets - before.gets == LEDGERS
    assert spent.failures == before.failures


def test_rows_of_a_partition_are_in_order(spark: SparkSession, directory: Path) -> None:
    frame = load(spark, directory, partitionBytes="1g", minPartitions="1")
    assert found(frame) == expected()


def test_a_damaged_ledger_is_the_only_loss(
    spark: SparkSession, directory: Path
) -> None:
    path = data_of(directory, THIRD)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=f"entries {THIRD}:0-0; failOnDataLoss"):
        load(spark, directory).collect()
    lenient = load(spark, directory, failOnDataLoss="false")
    assert sorted(found(lenient)) == sorted(expected(THIRD))
    losses = sparkcache.losses(spark).collect()
    assert [row["ledger"] for row in losses if TOPIC in row["topic"]] == [THIRD]


@pytest.mark.parametrize("fault", ["missing", "changed"])
def test_an_object_that_is_not_the_planned_one_fails_the_query(
    spark: SparkSession, directory: Path, fault: str
) -> None:
    frame = load(spark, directory)
    with sparkcache.plan(frame):
        path = data_of(directory, THIRD)
        path.unlink()
        if fault == "changed":
            path.write_bytes(b"other bytes")
        with pytest.raises(Exception, match=path.name):
            frame.collect()


def test_a_limit_reads_few_of_them(spark: SparkSession, directory: Path) -> None:
    before = metrics(spark).gets
    assert load(spark, directory).limit(1).count() == 1
    assert metrics(spark).gets - before < LEDGERS // 2
