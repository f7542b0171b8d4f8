"""What came with a later Spark says so on an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException

from sparkcache.connector import COLLATIONS
from sparkcache.errors import ConfigError
from sparkcache.source.spark_schema import spark_schema
from sparkcache.source.spark_version import has_spark, require_spark
from sparkcache_delta.marked_structs import geography, geometry
from tests.spark.spark_topics import Stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.spark_topics import Topic


@pytest.mark.parametrize(
    ("version", "since", "is_there"),
    [
        ("4.2.0", "4.2", True),
        ("4.2.0", "4.1", True),
        ("4.1.4", "4.2", False),
        ("4.10.0", "4.2", True),
        ("5.0.0", "4.2", True),
        ("4.2.0.dev1", "4.2", True),
    ],
)
def test_versions_are_compared_as_numbers(
    monkeypatch: pytest.MonkeyPatch, version: str, since: str, is_there: bool
) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    assert has_spark(since) is is_there
    if not is_there:
        with pytest.raises(ConfigError, match=f"needs Spark {since} .* is {version}"):
            require_spark(since, "a stream")


COLLATED = pa.field("x", pa.string(), metadata={COLLATIONS: b'{"x": "icu.UNICODE"}'})


@pytest.mark.parametrize(
    ("kind", "described"),
    [
        (geometry(4326), "of type geometry"),
        (pa.list_(geography(4326)), "of type geography"),
        (pa.struct([COLLATED]), "with collated strings"),
    ],
    ids=str,
)
def test_a_type_of_a_later_spark(
    monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, described: str
) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.0.0")
    schema = pa.schema([("id", pa.int64()), ("at", kind)])
    with pytest.raises(ConfigError, match=rf"column at {described} needs Spark 4\.1"):
        spark_schema(schema)


@pytest.mark.spark
@pytest.mark.skipif(has_spark("4.2"), reason="this Spark has streams")
def test_a_stream_names_the_spark_that_it_needs(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    query = Stream(spark, topic, tmp_path).start({"availableNow": True})
    with pytest.raises(PySparkException, match=r"needs Spark 4\.2 or later; this is"):
        query.awaitTermination()


@pytest.mark.skipif(has_spark("4.1"), reason="this Spark has pipelines")
def test_pipelines_name_the_spark_that_they_need() -> None:
    message = f"needs Spark 4.1 or later; this is {pyspark.__version__}"
    with pytest.raises(ConfigError, match=message):
        import sparkcache.pipelines  # noqa: F401
