"""Delta tables and Parquet folders through Spark, written without a JVM of Delta's."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException

import sparkcache
from sparkcache.testing.s3_server import S3Server
from tests.spark.spark_topics import consumers_of, settings_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.config import CacheConfig

pytestmark = pytest.mark.spark

FILES, ROWS = 3, 20_000
FOOTER_BYTES = 64 << 10


def rows(number: int) -> pa.Table:
    """Return rows whose values do not compress."""
    random = np.random.default_rng(number)
    first = number * ROWS
    return pa.table(
        {
            "id": range(first, first + ROWS),
            "day": [date(2026, 1, 1) + timedelta(number)] * ROWS,
            "value": [random.bytes(60) for _ in range(ROWS)],
            "noise": [random.bytes(60) for _ in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of three versions with a file each."""
    path = tmp_path_factory.mktemp("lake") / "sales" / "orders"
    for number in range(FILES):
        write_deltalake(path, rows(number), mode="append")
    return path


def load(spark: SparkSession, path: Path | str, **options: Any) -> DataFrame:
    options = {"connector": "delta", "runBytes": "64k"} | options
    return spark.read.format("sparkcache").options(**options).load(str(path))


def test_a_table_by_its_path_and_by_its_name(spark: SparkSession, table: Path) -> None:
    found = load(spark, table)
    assert found.columns == ["id", "day", "value", "noise"]
    assert found.count() == FILES * ROWS
    lake = table.parent.parent
    older = load(spark, lake, topic="sales/orders", versionAsOf="1")
    ((last,),) = older.agg({"id": "max"}).collect()
    assert last == 2 * ROWS - 1
    (consumer,) = consumers_of(older)
    assert consumer.topic == f"file://{lake}#sales/orders"


def test_rows_are_selected_by_where(spark: SparkSession, table: Path) -> None:
    found = load(spark, table, where=f"day = '2026-01-02' and id < {ROWS + 7}")
    assert sorted(row.id for row in found.collect()) == list(range(ROWS, ROWS + 7))
    chosen = load(spark, table, columns="id")
    assert chosen.columns == ["id"]
    assert chosen.distinct().count() == FILES * ROWS


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"versionAsOf": "9"}, "option versionAsOf='9': not a version"),
        ({"where": "day > 'x'"}, "option where="),
        ({"columns": "nothing"}, "has no column nothing"),
        ({"startingOffsets": "3:4"}, "have no positions"),
        ({"topicsPattern": ".*"}, "a scan reads one table"),
    ],
)
def test_wrong_options_fail_when_loading(
    spark: SparkSession, table: Path, options: dict[str, str], says: str
) -> None:
    with pytest.raises(PySparkException, match=says):
        load(spark, table, **options)


def test_a_folder_of_parquet_files_is_what_spark_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = str(tmp_path / "folder")
    data = spark.range(1000).selectExpr(
        "id",
        "cast(id as string) text",
        "timestamp_micros(id * 1001) at",
        "named_struct('a', id, 'b', array(cast(id as int))) s",
        "id % 3 part",
        "date'2026-01-01' + cast(id % 2 as int) day",
        "if(id % 2 = 0, 'a b/%', null) name",
    )
    data.write.partitionBy("part", "day", "name").parquet(folder)
    ours, theirs = load(spark, folder), spark.read.parquet(folder)
    assert ours.dtypes == theirs.dtypes
    assert sorted(map(str, ours.collect())) == sorted(map(str, theirs.collect()))
    where = "part = 1 and day = '2026-01-01'"
    assert load(spark, folder, where=where).count() == theirs.where(where).count() > 0
    with pytest.raises(
        PySparkException, match="is a folder of Parquet files, not a Delta table"
    ):
        load(spark, folder, versionAsOf="0")


def test_types_of_partitions_are_those_that_spark_finds(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = {
        "i": ("007", "2147483647"),
        "l": ("-1", "2147483648"),
        "d": ("1", "2.5"),
        "e": ("1.5e-3", "-.5"),
        "day": ("2026-01-31", "2025-02-01"),
        "day_or_number": ("2026-01-31", "1"),
        "text": ("2026-01-31", "x"),
        "almost": ("12:00", "2026-1"),
        "none": ("__HIVE_DEFAULT_PARTITION__", "3"),
    }
    for file in range(2):
        parts = (f"{name}={texts[file]}" for name, texts in values.items())
        path = tmp_path.joinpath(*parts)
        path.mkdir(parents=True)
        pq.write_table(pa.table({"id": [file]}), path / "a.parquet")
    ours, theirs = load(spark, tmp_path), spark.read.parquet(str(tmp_path))
    assert ours.dtypes == theirs.dtypes
    assert sorted(ours.collect()) == sorted(theirs.collect())


def test_planned_consumers_fetch_each_file_once(
    spark: SparkSession, table: Path, install: Callable[[CacheConfig], None]
) -> None:
    with S3Server() as server, server.as_environment():
        server.create_bucket("lake")
        for path in sorted(table.rglob("*")):
            if path.is_file():
                key = f"x/{path.relative_to(table.parent.parent)}"
                server.put("lake", key, path.read_bytes())
        server.forget()
        install(settings_for(server.endpoint))
        topic = "sales/orders"
        consumers = [load(spark, "s3://lake/x", topic=topic) for _ in range(3)]
        with sparkcache.plan(*consumers):
            counts = [frame.count() for frame in consumers]
        counted = server.counts()
        requests = server.requests()
    assert counts == [FILES * ROWS] * 3
    sizes = {f"{path.name}": path.stat().st_size for path in table.glob("*.parquet")}
    assert len(sizes) == FILES
    for name, size_bytes in sizes.items():
        of_file = [one for one in requests if one.key.endswith(name)]
        data = [one for one in of_file if one.sent_bytes > FOOTER_BYTES]
        assert sum(one.sent_bytes for one in data) == size_bytes - len("PAR1")
        footers = len(consumers) * FOOTER_BYTES
        sent = counted[f"lake/x/sales/orders/{name}"].sent_bytes
        assert sent <= size_bytes + footers


def test_a_file_that_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": range(10)}))
    (path,) = (tmp_path / "t").glob("*.parquet")
    found = load(spark, tmp_path / "t")
    path.unlink()
    with pytest.raises(PySparkException, match=path.name):
        found.count()


def test_a_damaged_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": range(1000)}), folder / f"{name}.parquet")
    data = bytearray((folder / "a.parquet").read_bytes())
    data[4:600] = b"\xff" * 596
    (folder / "a.parquet").write_bytes(data)
    with pytest.raises(PySparkException, match=r"(?s)a\.parquet.*failOnDataLoss=false"):
        load(spark, folder).collect()
    assert len(load(spark, folder, failOnDataLoss="false").collect()) == 1000
