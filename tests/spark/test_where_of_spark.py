"""Predicates choose the rows that Spark chooses, or are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.functions import expr

from sparkcache.errors import ConfigError
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAN = float("nan")
ZONE = "spark.sql.session.timeZone"
HOURS = [datetime(2026, 1, 31, hour) for hour in (0, 4, 5, 6, 23)]
ROWS = pa.table(
    {
        "i": [1, 2, 3, None, 5],
        "t": ["10", "9", "9.5", None, "abc"],
        "f": pa.array([0.1, 0.25, NAN, None, 1e30], pa.float32()),
        "x": [0.1, 0.25, NAN, None, 1e30],
        "dec": [Decimal(text) for text in ("0.10", "1.25", "2.00", "3.00", "-1.00")],
        "d": [date(2026, 1, 29 + at % 3) for at in range(5)],
        "at": pa.array([hour.replace(tzinfo=UTC) for hour in HOURS]),
        "ntz": pa.array(HOURS, pa.timestamp("us")),
        "b": [True, False, True, None, False],
        "bin": [b"10", b"9", b"a", None, b""],
    }
)
FLOATS = [
    f"{column} {sign} {value}"
    for column in "fx"
    for sign in ("=", "!=", "<", "<=", ">", ">=")
    for value in ("0.1", "'0.1'", "0.25", "1e30", "'nan'")
]
SAME = [
    *FLOATS,
    "f in (0.1, 0.25)",
    "f in ('0.1', 'nan')",
    "x in (0.1, 'nan')",
    "t > '9'",
    "t in ('10', '9')",
    "i >= 2",
    "i = '3'",
    "i in (1, '2')",
    "dec = 0.1",
    "dec > 1.25",
    "d > '2026-01-30'",
    "at >= '2026-01-31T05:00:00Z'",
    "at < '2026-01-31 06:00:00+01:00'",
    "ntz >= '2026-01-31 05:00:00'",
    "ntz > '2026-01-31'",
    "b = true",
    "bin > '9'",
]
WITHOUT_ZONE = ["at >= '2026-01-31'", "at < '2026-01-31 05:00:00'"]
CONVERTED = ["t > 9", "t = 9.5", "t in ('10', 9)", "t = true", "bin = 10"]


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get(ZONE)
    assert before is not None
    spark.conf.set(ZONE, request.param)
    yield request.param
    spark.conf.set(ZONE, before)


def test_comparisons_mean_what_they_mean_in_spark(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    pq.write_table(ROWS, tmp_path / "rows")
    rows = spark.read.parquet(str(tmp_path / "rows"))
    texts = [*SAME, *WITHOUT_ZONE]
    held = rows.select(expr("t"), *map(expr, texts)).collect()
    for at, text in enumerate(texts, 1):
        assert chosen(text, timeZone=zone) == [row[0] for row in held if row[at]], text


def test_times_without_a_zone_are_in_utc_unless_one_is_given() -> None:
    assert chosen("at > '2026-01-31 05:00:00'") == chosen("at > '2026-01-31T05:00:00Z'")


@pytest.mark.parametrize("text", CONVERTED)
def test_what_spark_converts_row_by_row_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="quote it"):
        chosen(text)


def chosen(text: str, **options: str) -> list[str | None]:
    """Return the texts of the rows that are chosen."""
    where = Where.parse({"where": text} | options, ROWS.schema)
    batches = map(where.rows, ROWS.to_batches())
    return [found for batch in batches for found in batch.column("t").to_pylist()]
