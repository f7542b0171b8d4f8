"""Reads of an S3 server that checks signatures, through a proxy that counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import sparkcache
from sparkcache_pulsar.testing import StoredObject, synthetic_topic
from tests import gateway
from tests.conftest import CREDENTIALS
from tests.effort import tries
from tests.fault_proxy import Fault, proxy
from tests.needs import SPARK_4_2
from tests.spark.spark_topics import TOPIC, settings_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.config import CacheConfig
    from tests.gateway import Gateway

pytestmark = pytest.mark.spark

BUCKET = "offload"
LEDGERS, BLOCK_BYTES = 12, 64 << 10
OBJECTS = list(
    synthetic_topic(
        TOPIC,
        LEDGERS << 20,
        ledgers=LEDGERS,
        batch_bytes=16 << 10,
        max_block_bytes=BLOCK_BYTES,
    )
)
"""About 130 blocks, each of which is one request."""
DATA_BYTES = sum(
    len(stored.data) for stored in OBJECTS if not stored.key.endswith("-index")
)


@pytest.fixture
def server(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """The topic at a server that knows the session's credentials only."""
    sparkcache.clear(spark)  # the objects of each test have the same ETags
    for name, text in CREDENTIALS.items():
        monkeypatch.setenv(name, text)  # plan() lists the bucket in this process
    key_id, secret = CREDENTIALS.values()
    with gateway.serve(gateway.need(), key_id=key_id, secret=secret) as server:
        server.put(BUCKET, OBJECTS)
        yield server


def load(spark: SparkSession, **options: str) -> DataFrame:
    reader = spark.read.format("sparkcache").option("topic", TOPIC).options(**options)
    return reader.load(f"s3://{BUCKET}")


def content(rows: DataFrame) -> tuple[int, int]:
    """The number of rows, and the sum of the checksums of their values."""
    (row,) = rows.select(sf.count("value"), sf.sum(sf.crc32("value"))).collect()
    return row[0], row[1]


def uncached(
    spark: SparkSession, server: Gateway, install: Callable[[CacheConfig], None]
) -> tuple[int, int]:
    install(settings_for(server.endpoint, enabled=False))
    return content(load(spark))


def test_planned_consumers_fetch_every_byte_once(
    spark: SparkSession, server: Gateway, install: Callable[[CacheConfig], None]
) -> None:
    expected = uncached(spark, server, install)
    with proxy(server.endpoint) as counting:
        install(settings_for(counting.endpoint))
        consumers = [load(spark) for _ in range(3)]
        with sparkcache.plan(*consumers):
            assert [content(rows) for rows in consumers] == [expected] * 3
    assert expected[0] == LEDGERS << 10
    assert counting.data_bytes() == DATA_BYTES


@SPARK_4_2
def test_a_stream_goes_on_when_its_credentials_are_refused_once(
    spark: SparkSession,
    server: Gateway,
    install: Callable[[CacheConfig], None],
    tmp_path: Path,
) -> None:
    expected = uncached(spark, server, install)
    expiring = proxy(server.endpoint, rate=0.2, faults=[Fault.EXPIRED], most=1)
    with expiring as refusing:
        install(settings_for(refusing.endpoint))
        stream = spark.readStream.format("sparkcache").option("topic", TOPIC)
        rows = stream.option("maxBytesPerTrigger", "4m").load(f"s3://{BUCKET}")
        query = (
            rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"), format="parquet")
        )
        query.awaitTermination()
    assert content(spark.read.parquet(str(tmp_path / "rows"))) == expected
    assert len([batch for batch in query.recentProgress if batch.numInputRows]) > 1
    assert refusing.injected[Fault.EXPIRED] > 5


def test_other_credentials_are_refused(
    spark: SparkSession, install: Callable[[CacheConfig], None]
) -> None:
    program = gateway.need()
    with gateway.serve(program, key_id="other", secret="secret") as server:
        server.put(BUCKET, OBJECTS[:2])
        install(settings_for(server.endpoint))
        with pytest.raises(PySparkException, match="found a rejected access key"):
            load(spark).count()


def test_what_is_overwritten_after_it_was_planned_is_refused(
    spark: SparkSession, server: Gateway, install: Callable[[CacheConfig], None]
) -> None:
    install(settings_for(server.endpoint))
    rows = load(spark)
    assert rows.rdd.getNumPartitions() == 1  # planned
    data = OBJECTS[0]
    other = StoredObject(data.key, data.metadata, bytes(len(data.data)))
    server.put(BUCKET, [other])
    with pytest.raises(PySparkException, match="it was overwritten"):
        rows.rdd.count()


def run_with_faults(
    spark: SparkSession,
    server: Gateway,
    install: Callable[[CacheConfig], None],
    seed: int,
) -> None:
    """Read a topic in three planned consumers while 5 % of the requests fail."""
    expected = uncached(spark, server, install)
    with proxy(server.endpoint, rate=0.05, seed=seed) as faulty:
        install(settings_for(faulty.endpoint, storage_timeout_s=2))
        consumers = [load(spark, minPartitions="4") for _ in range(3)]
        with sparkcache.plan(*consumers):
            assert [content(rows) for rows in consumers] == [expected] * 3
    assert faulty.injected.total() >= 3
    assert faulty.data_bytes() <= 1.1 * DATA_BYTES, faulty.injected


def test_a_pipeline_ends_with_the_right_rows_whatever_requests_fail(
    spark: SparkSession, server: Gateway, install: Callable[[CacheConfig], None]
) -> None:
    run_with_faults(spark, server, install, seed=2)  # 9 of 11 kinds of faults


@pytest.mark.long
@pytest.mark.parametrize("seed", range(tries(20)))
def test_pipelines_with_other_faults(
    spark: SparkSession,
    server: Gateway,
    install: Callable[[CacheConfig], None],
    seed: int,
) -> None:
    run_with_faults(spark, server, install, seed)
