"""Tables that Delta's own Spark writes: rows are those that it reads itself.

Needs the jars of delta-spark. Where they cannot be had these tests are skipped; with
CI=true in the environment they fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from sparkcache.source.spark_version import has_spark
from tests.spark.delta_writer import DeltaSpark, delta_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="session")
def sql(
    delta_jars: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeltaSpark]:
    """Spark with Delta."""
    with delta_spark(delta_jars, tmp_path_factory.mktemp("delta-spark")) as process:
        yield process


@dataclass(frozen=True)
class Lake:
    """Tables in a directory, as both Sparks find them."""

    spark: SparkSession
    sql: DeltaSpark
    directory: Path

    def name(self, table: str) -> str:
        return f"delta.`{self.directory}/{table}`"

    def run(self, *statements: str) -> None:
        """Run statements in which `{name}` stands for a table."""
        self.sql(*(self._named(statement) for statement in statements))

    def load(self, table: str, **options: Any) -> DataFrame:
        reader = self.spark.read.format("sparkcache").option("connector", "delta")
        options = {"runBytes": "4k"} | options
        return reader.options(topic=table, **options).load(str(self.directory))

    def require_equal(self, table: str, as_of: str = "", **options: Any) -> int:
        """Compare all rows, and their types; return how many there are."""
        expected = self.sql.rows(f"select * from {self.name(table)} {as_of}")
        found = self.load(table, **options).toArrow()
        assert found.schema.names == expected.schema.names
        for ours, theirs in zip(found.schema, expected.schema, strict=True):
            assert nullable(ours.type) == nullable(theirs.type), ours.name
        assert sorted_rows(found) == sorted_rows(expected)
        return len(expected)

    def _named(self, statement: str) -> str:
        before, _, rest = statement.partition("{")
        table, _, after = rest.partition("}")
        return f"{before}{self.name(table)}{after}"


def nullable(kind: pa.DataType) -> str:
    return str(kind).replace(" not null", "")


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.fixture
def lake(sql: DeltaSpark, spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, sql, tmp_path / "lake")


def test_appends_and_versions(lake: Lake) -> None:
    lake.run("create table {t} (id long, name string) using delta")
    for first in (0, 100, 200):
        lake.run(
            f"insert into {{t}} select id, concat('n', id) "
            f"from range({first}, {first + 100})"
        )
    assert lake.require_equal("t") == 300
    assert lake.require_equal("t", "version as of 2", versionAsOf="2") == 200
    assert lake.require_equal("t", "version as of 0", versionAsOf="0") == 0
    pinned = lake.load("t")
    lake.run("insert into {t} values (-1, null)", "delete from {t} where id < 50")
    assert sorted(row.id for row in pinned.collect()) == list(range(300))
    assert lake.require_equal("t") == 250


@pytest.mark.parametrize("kept", ["true", "false"])
def test_a_version_by_its_time(lake: Lake, kept: str) -> None:
    lake.run(
        "create table {t} (id long) using delta "
        f"tblproperties('delta.enableInCommitTimestamps'='{kept}')"
    )
    lake.run("insert into {t} values (1)", "insert into {t} values (2)")
    history = lake.sql.rows(f"describe history {lake.name('t')}").to_pylist()
    times = {row["version"]: row["timestamp"].isoformat() for row in history}
    for version in (0, 1, 2):
        found = lake.load("t", timestampAsOf=times[version])
        assert sorted(row.id for row in found.collect()) == list(range(1, version + 1))
    for time in ("2001-01-01", "2999-01-01"):
        with pytest.raises(PySparkException, match="option timestampAsOf='2"):
            lake.load("t", timestampAsOf=time).collect()


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_deletes_and_updates(lake: Lake, vectors: str) -> None:
    lake.run(
        "create table {t} (id long, part int, name string) using delta "
        "partitioned by (part) "
        f"tblproperties('delta.enableDeletionVectors'='{vectors}')",
        "insert into {t} select id, id % 3, concat('n', id) from range(3000)",
    )
    lake.run(
        "delete from {t} where id % 10 = 3",
        "delete from {t} where id > 2900 and part = 1",
        "update {t} set name = 'changed' where id < 20",
        "delete from {t} where part = 2",
    )
    assert lake.require_equal("t", "version as of 2", versionAsOf="2") == 2700
    for version in (3, 4):
        lake.require_equal(
            "t", f"version as of {version}", versionAsOf=str(version), runBytes="1k"
        )
    lake.require_equal("t")


def test_optimized_tables(lake: Lake) -> None:
    lake.run("create table {t} (id long, name string) using delta")
    for first in (0, 100, 200):
        lake.run(
            f"insert into {{t}} select id, repeat('x', 10) "
            f"from range({first}, {first + 100})"
        )
    before = lake.load("t")
    lake.run("optimize {t} zorder by (id)")
    assert lake.require_equal("t") == 300
    assert before.count() == 300


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns(lake: Lake, mode: str) -> None:
    lake.run(
        "create table {t} (id long, name string, dropped int, "
        "s struct<a: int, b: array<struct<c: int, d: string>>>, "
        "m map<string, struct<x: int>>, day date) using delta partitioned by (day) "
        f"tblproperties('delta.columnMapping.mode'='{mode}', "
        "'delta.enableDeletionVectors'='true')",
        "insert into {t} select id, cast(id as string), 7, "
        "if(id % 5 = 0, null, named_struct('a', cast(id as int), 'b', "
        "array(named_struct('c', 1, 'd', 'x'), null))), "
        "if(id % 7 = 0, null, map('k', named_struct('x', cast(id as int)))), "
        "date'2026-01-01' + cast(id % 2 as int) from range(500)",
        "alter table {t} rename column name to title",
        "alter table {t} rename column s.a to aa",
        "alter table {t} rename column day to part",
        "alter table {t} drop column dropped",
        "alter table {t} add columns (dropped string, s.added double)",
        "delete from {t} where id % 10 = 4",
        "insert into {t} (id, title, part, dropped) "
        "values (-1, 'new', date'2026-01-03', 'again')",
    )
    assert lake.require_equal("t") == 451
    chosen = lake.load("t", columns="dropped, part, title")
    assert chosen.columns == ["dropped", "part", "title"]
    assert chosen.where("title = 'new'").collect()[0].dropped == "again"
    assert lake.load("t", where="part = '2026-01-03'").count() == 1


def test_types_and_values(lake: Lake) -> None:
    lake.run(
        "create table {t} (b byte, s short, i int, l long, f float, d double, "
        "o boolean, dec decimal(20,3), text string, bin binary, day date, "
        "ts timestamp, ntz timestamp_ntz, a array<int>, p1 string, p2 date, "
        "p3 timestamp, p4 decimal(10,2), p5 double, p6 boolean, p7 binary) "
        "using delta partitioned by (p1, p2, p3, p4, p5, p6, p7)",
        "insert into {t} values "
        "(1, 2, 3, 4, 1.5, double('NaN'), true, 1.234, 'Zürich', x'00ff', "
        "date'1066-10-14', timestamp'1969-07-20 20:17:40.123456', "
        "timestamp_ntz'0001-01-01 00:00:00', array(1, null), 'a/b c=%25ü', "
        "date'2026-01-31', timestamp'2026-01-31 12:00:00.5', 1.25, 2.5, true, "
        "x'6162'), "
        "(null, null, null, null, null, null, null, null, null, null, null, null, "
        "null, null, null, null, null, null, null, null, null), "
        "(-128, -32768, -2147483648, -9223372036854775808, float('-inf'), 0.0, false, "
        "-99999999999999999.999, '', x'', date'9999-12-31', "
        "timestamp'9999-12-31 23:59:59.999999', timestamp_ntz'2026-01-01 00:00:00', "
        "array(), '', date'1582-10-04', timestamp'1900-01-01 00:00:00', -1.25, "
        "double('-0.001'), false, x'c3bc')",
    )
    assert lake.require_equal("t") == 3


def test_widened_types(lake: Lake) -> None:
    lake.run(
        "create table {t} (i int, d decimal(5,2), x float) using delta "
        "tblproperties('delta.enableTypeWidening'='true')",
        "insert into {t} values (1, 1.25, 0.5), (null, null, null)",
        "alter table {t} change column i type long",
        "alter table {t} change column d type decimal(12,4)",
        "alter table {t} change column x type double",
        "insert into {t} values (10000000000, 12345678.1234, 0.1)",
    )
    assert lake.require_equal("t") == 3
    assert lake.load("t", where="i >= 1 and d < 2").count() == 1
    lake.run("alter table {t} set tblproperties('delta.enableDeletionVectors'='true')")
    with pytest.raises(PySparkException, match="typeWidening are supported, but not"):
        lake.load("t")


def test_days_of_the_old_calendar(lake: Lake) -> None:
    lake.run("create table {t} (id long, day date, at timestamp) using delta")
    for mode in ("corrected", "legacy"):
        for conf in ("datetimeRebaseModeInWrite", "int96RebaseModeInWrite"):
            lake.sql(f"set spark.sql.parquet.{conf}={mode}")
        lake.run(
            f"insert into {{t}} values ({len(mode)}, date'1582-10-15', null), "
            "(2, date'2026-01-01', timestamp'1900-01-01 00:00:00')"
        )
    assert lake.require_equal("t") == 4
    lake.run("insert into {t} values (3, date'1066-10-14', null)")
    for conf in ("datetimeRebaseModeInWrite", "int96RebaseModeInWrite"):
        lake.sql(f"set spark.sql.parquet.{conf}=corrected")
    with pytest.raises(PySparkException, match="1900-01-01 in column day"):
        lake.load("t").collect()
    assert lake.load("t", columns="id, at").count() == 5


@pytest.mark.parametrize("feature", ["variantType", "variantType-preview"])
def test_variants(lake: Lake, feature: str) -> None:
    lake.run(
        "create table {t} (id long, v variant, s struct<v: variant>, l array<variant>, "
        "m map<string, variant>) using delta "
        f"tblproperties('delta.feature.{feature}'='supported')",
        """insert into {t} select 1, v, named_struct('v', v), array(v), map('x', v)
        from (select parse_json('{"a": [1, null, "b"]}') v)""",
        "insert into {t} values (2, null, null, null, null)",
    )
    assert lake.load("t").schema.simpleString() == (
        "struct<id:bigint,v:variant,s:struct<v:variant>,l:array<variant>,"
        "m:map<string,variant>>"
    )
    query = "select id, to_json(struct(v, s, l, m)) from {}"
    expected = lake.sql.rows(query.format(lake.name("t"))).to_pylist()
    found = lake.load("t").selectExpr("id", "to_json(struct(v, s, l, m))").collect()
    assert sorted(map(tuple, found)) == sorted(tuple(row.values()) for row in expected)


@pytest.mark.skipif(not has_spark("4.1"), reason="returns no rows of such strings")
def test_collations(lake: Lake) -> None:
    lake.sql("set spark.databricks.delta.schema.typeCheck.enabled=false")
    lake.run(
        "create table {t} (id long, a string collate UTF8_LCASE, "
        "s struct<x: string collate UNICODE_CI>) using delta",
        "insert into {t} values (1, 'x', named_struct('x', 'y')), (2, 'X', null)",
    )
    lake.sql("set spark.databricks.delta.schema.typeCheck.enabled=true")
    loaded = lake.load("t")
    assert "string collate UTF8_LCASE" in loaded.schema["a"].dataType.simpleString()
    assert loaded.where("a = 'x'").count() == 2
    assert loaded.where("s.x = 'Y'").count() == 1
    assert lake.require_equal("t") == 2


def test_unsupported_features_are_named(lake: Lake) -> None:
    feature = "variantShredding-preview"
    lake.run(
        "create table {t} (id long) using delta "
        f"tblproperties('delta.feature.{feature}'='supported')"
    )
    with pytest.raises(PySparkException, match=f"feature {feature} is not supported"):
        lake.load("t")


def test_a_checkpointed_table(lake: Lake) -> None:
    lake.run(
        "create table {t} (id long) using delta "
        "tblproperties('delta.checkpointInterval'='2', 'delta.checkpointPolicy'='v2', "
        "'delta.enableInCommitTimestamps'='true')",
        *(f"insert into {{t}} values ({number})" for number in range(5)),
    )
    assert lake.require_equal("t") == 5
    assert lake.require_equal("t", "version as of 3", versionAsOf="3") == 3


def test_a_clone_reads_files_of_another_table(lake: Lake) -> None:
    lake.run("create table {t} using delta as select id from range(100)")
    lake.sql(f"create table {lake.name('c')} shallow clone {lake.name('t')}")
    lake.run("insert into {c} values (-1)")
    assert lake.require_equal("c") == 101


@pytest.mark.long
def test_a_vacuumed_table_fails_a_running_reader(lake: Lake) -> None:
    lake.run("create table {t} (id long, part int) using delta partitioned by (part)")
    lake.run("insert into {t} select id, id % 8 from range(8000)")
    planned = lake.load("t", enabled="false", partitionBytes="4k")
    rows = planned.rdd
    assert rows.getNumPartitions() > 2
    assert rows.first().id >= 0
    lake.run("delete from {t}", "vacuum {t} retain 0 hours")
    gone = r"(?s)SourceError: file://\S+/t/part=\d\S+\.parquet: expected .*, found "
    with pytest.raises(PySparkException, match=gone):
        rows.count()
    with pytest.raises(PySparkException, match=gone):
        planned.count()
    assert lake.require_equal("t") == 0


def test_times_of_partitions_without_a_zone(lake: Lake) -> None:
    says_utc = "spark.databricks.delta.write.utcTimestampPartitionValues"
    lake.run(
        "create table {t} (id int, at timestamp) using delta partitioned by (at) "
        "tblproperties('delta.columnMapping.mode'='name', "
        "'delta.checkpointInterval'='2', 'delta.checkpoint.writeStatsAsStruct'='true')",
    )
    lake.sql("set spark.sql.session.timeZone=America/New_York")
    try:
        lake.run(
            "insert into {t} values (1, timestamp'2026-01-31 12:00:00'), (2, null)"
        )
        lake.sql(f"set {says_utc}=false")
        lake.run(
            "insert into {t} values (3, timestamp'2026-01-31 11:00:00'), (4, null)"
        )
        with pytest.raises(PySparkException, match="times without a time zone"):
            lake.load("t")
        assert lake.require_equal("t", timeZone="America/New_York") == 4
        log = lake.directory / "t" / "_delta_log"
        assert list(log.glob(f"{2:020}.checkpoint*"))
    finally:
        lake.sql(f"reset {says_utc}", "set spark.sql.session.timeZone=UTC")
