"""Encrypted payloads, as a user of Spark sees them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkcache
from tests.spark.spark_topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("cryptography")
pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).parents[1] / "golden" / "pulsar"
DEPENDENT = "broker-4.0.8-chunks-transactions-encryption"
PRIVATE_KEY = str(GOLDEN / "keys" / "test-only-private.pem")


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """The topic that Pulsar's broker has offloaded."""
    directory = tmp_path / "bucket"
    shutil.copytree(GOLDEN / DEPENDENT / "objects", directory)
    return Topic(directory, "persistent://public/later/encrypted")


def test_consumers_with_and_without_the_key(spark: SparkSession, topic: Topic) -> None:
    """They share no runs, in one application."""
    decrypted = topic.load(spark, privateKey=PRIVATE_KEY)
    consumed = topic.load(spark, cryptoFailureAction="CONSUME")
    with sparkcache.plan(decrypted, consumed):
        rows = decrypted.filter("value = 'plain key'").collect()
        assert [bytes(row["__key"]) for row in rows] == [b"user-1"] * 2
        (row,) = (
            consumed.groupBy("__encryption.compression", "__encryption.batchSize")
            .count()
            .filter("batchSize = 5")
            .collect()
        )
        assert row["compression"] == "LZ4"
        keys = consumed.selectExpr("explode(__encryption.keys)").collect()
    assert len(keys) == 23
    assert {(row["key"], len(row["value"])) for row in keys} == {("golden-key", 256)}


def test_a_missing_key_is_named(spark: SparkSession, topic: Topic) -> None:
    with pytest.raises(Exception, match="private key for 'golden-key'") as caught:
        topic.load(spark).collect()
    assert "cryptoFailureAction=consume" in str(caught.value)
    lossy = {"failOnDataLoss": "false"}
    assert topic.load(spark, **lossy).count() == 0
    with pytest.raises(Exception, match=r"/no/such\.pem: expected a PEM file"):
        topic.load(spark, privateKey="/no/such.pem", **lossy).collect()
