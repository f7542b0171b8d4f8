"""A topic of each test's own, and a stream of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import sparkcache
from sparkcache.config import CacheConfig
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.driver.registration import register
from tests.spark.spark_topics import Stream, Topic, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def threads_of_delta_rs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start what delta-rs keeps running, before tests look for what they leave."""
    from deltalake import DeltaTable, write_deltalake

    path = tmp_path_factory.mktemp("first") / "table"
    write_deltalake(path, pa.table({"id": [1]}))
    DeltaTable(path).history()


@pytest.fixture
def install(spark: SparkSession) -> Iterator[Callable[[CacheConfig], None]]:
    """Installs a configuration for the rest of a test."""
    yield partial(sparkcache.install, spark)
    register(spark, SparkCacheSource)
    for key in CacheConfig().to_conf():
        spark.conf.unset(key)


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """A topic that is this test's own."""
    return write(tmp_path / "bucket")


@pytest.fixture
def stream(spark: SparkSession, topic: Topic, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(spark, topic, tmp_path)
    for query in spark.streams.active:
        query.stop()
