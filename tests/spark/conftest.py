"""A topic of each test's own, and a stream of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.spark_topics import Stream, Topic, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """A topic that is this test's own."""
    return write(tmp_path / "bucket")


@pytest.fixture
def stream(spark: SparkSession, topic: Topic, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(spark, topic, tmp_path)
    for query in spark.streams.active:
        query.stop()
