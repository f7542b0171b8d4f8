"""Folders of Parquet files: which files are read, and their columns, are Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sparkcache.config import StorageConfig
from sparkcache.connector import Selection
from sparkcache.errors import ConfigError, SourceError
from sparkcache.source.spark_version import has_spark
from sparkcache.storage import Traffic, open_storage
from sparkcache.testing.reading import read_topic
from sparkcache_delta import DeltaConnector

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sparkcache.connector import Storage

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("threads_of_delta_rs")]

CONNECTOR = DeltaConnector()
Row = tuple[tuple[str, object], ...]


def write(folder: Path, files: Mapping[str, pa.Table]) -> None:
    for name, table in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)


def ours(folder: Path, **options: str) -> list[Row]:
    storage: Storage = open_storage(f"file://{folder}", StorageConfig(), Traffic())
    options = dict(CONNECTOR.pin(storage, Selection((".",)), options))
    rows, losses = read_topic(CONNECTOR, storage, ".", options)
    assert not losses
    return sorted((tuple(row.items()) for row in rows), key=str)


def theirs(spark: SparkSession, folder: Path) -> list[Row]:
    rows = spark.read.parquet(str(folder)).collect()
    return sorted((tuple(row.asDict(True).items()) for row in rows), key=str)


def files(rows: list[Row]) -> list[Row]:
    """Return rows without the case of columns: which folder is first, Spark hazards."""
    return [tuple((name.lower(), value) for name, value in row) for row in rows]


@pytest.mark.parametrize(
    ("names", "read"),
    [
        pytest.param("a archive/old archive/x/old", 1, id="other folders are not read"),
        pytest.param("x=1/a x=2/sub/b", 2, id="what is below a partition is"),
        pytest.param("b x=1/a", 1, id="what is beside partitions is not"),
        pytest.param("sub/x=1/a sub/x=2/b", 2, id="partitions may begin further down"),
        pytest.param("x=1/mid/y=2/a", 1, id="the last folders in a row count"),
        pytest.param("X=1/a x=2/b", 2, id="columns may differ in case"),
        pytest.param("_x=1/a _y/x=1/b .x=1/c _x=2/_d", 1, id="what is hidden"),
    ],
)
def test_files_are_those_that_spark_reads(
    spark: SparkSession, tmp_path: Path, names: str, read: int
) -> None:
    write(tmp_path, {name: pa.table({"file": [name]}) for name in names.split()})
    found = ours(tmp_path)
    assert files(found) == files(theirs(spark, tmp_path))
    assert len(found) == read


@pytest.mark.parametrize(
    "names",
    [
        pytest.param("x=1/a archive/old", id="partitions and another folder"),
        pytest.param("sub/x=1/a a", id="partitions further down and a file"),
        pytest.param("x=1/a y=1/a", id="columns of other names"),
        pytest.param("x=1/a x=1/y=2/a", id="more columns"),
        pytest.param("x=1/X=2/a", id="a column twice"),
        pytest.param("x=/a", id="no value"),
        pytest.param("=1/a", id="no name"),
        pytest.param("archive/a", id="nothing to read"),
    ],
)
def test_folders_that_spark_refuses_are_refused(
    spark: SparkSession, tmp_path: Path, names: str
) -> None:
    write(tmp_path, {name: pa.table({"file": [name]}) for name in names.split()})
    with pytest.raises((PySparkException, Py4JJavaError)):
        theirs(spark, tmp_path)
    with pytest.raises(ConfigError):
        ours(tmp_path)


def test_columns_are_those_that_spark_finds(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(
        tmp_path,
        {
            "A": pa.table({"day": [9], "id": [0]}),
            "Day=1/b": pa.table({"id": [1], "n": [1]}),
            "Day=2/c": pa.table({"id": [2], "day": [7]}),
        },
    )
    (tmp_path / "Day=2" / "empty").touch()
    assert ours(tmp_path) == theirs(spark, tmp_path)
    assert dict(ours(tmp_path)[0]) == {"Day": 1, "id": 1}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"userId": 1}, {"userid": 2}, id="a column"),
        pytest.param({"Ä": 1, "b": 2}, {"B": 4, "ä": 3}, id="other letters and orders"),
        pytest.param(
            {"s": {"userId": 1, "l": [{"A": 1}]}},
            {"S": {"L": [{"a": 2}], "userid": 2}},
            id="in structs",
        ),
    ],
)
def test_names_of_columns_may_differ_in_case(
    spark: SparkSession,
    tmp_path: Path,
    first: dict[str, object],
    second: dict[str, object],
) -> None:
    rows = {"a": [first], "b": [second]}
    write(tmp_path, {name: pa.Table.from_pylist(of) for name, of in rows.items()})
    assert ours(tmp_path) == theirs(spark, tmp_path)


def test_where_goes_by_columns_that_differ_in_case(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers = {"a": {"userId": [1, 2]}, "b": {"userid": [2, 3]}, "c": {"USERID": [4]}}
    write(tmp_path, {name: pa.table(of) for name, of in numbers.items()})
    where = "userID >= 2 and userID < 4"
    found = spark.read.parquet(str(tmp_path)).where(where).collect()
    assert [row["userId"] for row in map(dict, ours(tmp_path, where=where))] == [
        2,
        2,
        3,
    ]
    assert sorted(row.userId for row in found) == [2, 2, 3]


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        pytest.param({"ab": 1}, {"aB": 1, "Ab": 2}, "could be aB or Ab", id="two"),
        pytest.param(
            {"s": {"ab": 1}},
            {"s": {"aB": 1, "Ab": 2}},
            "could be (aB or Ab|Ab or aB)",  # PyArrow 18 sorts the fields
            id="two in a struct",
        ),
        pytest.param({"a": 1, "A": 1}, {"a": 1}, "both a and A", id="of the table"),
        pytest.param(
            {"s": {"a": 1, "A": 1}},
            {"s": {"a": 1}},
            "both (a and A|A and a)",
            id="in its struct",
        ),
    ],
)
def test_names_that_are_the_same_to_spark_are_refused(
    spark: SparkSession,
    tmp_path: Path,
    first: dict[str, object],
    second: dict[str, object],
    says: str,
) -> None:
    rows = {"1": [first], "2": [second]}
    write(tmp_path, {name: pa.Table.from_pylist(of) for name, of in rows.items()})
    with pytest.raises((PySparkException, Py4JJavaError)):
        theirs(spark, tmp_path)
    with pytest.raises((ConfigError, SourceError), match=says):
        ours(tmp_path)


NUMBERS = "1d 1D 2f 1.5F NaN +NaN Infinity -Infinity 0x1p3 0X.8P1 0x1.8p1d 1.0 -0.0 +.5"
LARGE = "1e400 1e-5 1e5d 1e38 1e999999999 " + "9" * 39
TEXTS = "nan inf NaNd 0x1 1ff 1e . + 1L 1_0 12:30 24:00:00 12:30:60 12:30:00.1234567"
LIKE_TIMES = [
    "2024-02-30 10:00:00",
    "2024-02-28 25:00:00",
    "2024-02-28T10:00:00",
    "2024-02-28 10:00",
    "2024-02-28 1:02:03",
    "2024-2-8 1",
    "2024-02-28 ",
    " 12:30:00",
]
MIXED = [
    "1 1d",
    "1 x 1.5",
    "2147483648 1d",
    "2147483648 1.5",
    "1e5 1.5",
    "9999999999999999999999 1.5",
    "9999999999999999999999 x",
    "01 -0 +5",
    "01 1.5",
    "1.50 x",
    "12:30:00 2024-02-28",
    "12:30:00 1",
]
REFUSED = ["1e5", "0e5", "1.", "1 9999999999999999999999", "1e37"]
TIMES = ["2024-02-28 10:00:00", "2024-02-28 10:00:00.5"]


@pytest.mark.parametrize(
    "values",
    [
        *([value] for value in f"{NUMBERS} {LARGE} {TEXTS}".split()),
        *([value] for value in LIKE_TIMES),
        *(values.split() for values in MIXED),
        [" 1", "2 "],
        ["2024-02-28 10:00:00", "x"],
        ["2024-02-28 10:00:00", "1"],
        ["2024-02-30 10:00:00", "2024-02-28"],
        *(
            pytest.param(
                values, marks=pytest.mark.skipif(not has_spark("4.1"), reason="texts")
            )
            for values in (["12:30:00"], ["10:00:00.123456", "00:00:00.1"])
        ),
    ],
    ids=",".join,
)
def test_partition_values_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, values: list[str]
) -> None:
    rows = pa.table({"id": [1]})
    write(tmp_path, {f"p={quote(value, safe='+ ')}/a": rows for value in values})
    reader = spark.read.format("sparkcache").option("connector", "delta")
    found, expected = (
        reader.load(f"file://{tmp_path}"),
        spark.read.parquet(f"{tmp_path}"),
    )
    assert found.schema == expected.schema
    assert str(ours(tmp_path)) == str(theirs(spark, tmp_path))  # nan is not equal


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        *((values.split(), "decimals") for values in REFUSED),
        *(([value], "times") for value in TIMES),
        (["2024-02-28", "2024-02-28 10:00:00"], "times"),
    ],
    ids=str,
)
def test_partition_values_that_are_refused(
    spark: SparkSession, tmp_path: Path, values: list[str], kind: str
) -> None:
    rows = pa.table({"id": [1]})
    write(tmp_path, {f"p={quote(value, safe=' ')}/a": rows for value in values})
    with pytest.raises(ConfigError, match=f"Spark reads such values as {kind}"):
        ours(tmp_path)
    (field,) = (f for f in spark.read.parquet(f"{tmp_path}").schema if f.name == "p")
    assert (
        field.dataType.typeName() == {"decimals": "decimal", "times": "timestamp"}[kind]
    )


def test_the_folder_name_takes_the_place_of_a_column(tmp_path: Path) -> None:
    random = np.random.default_rng(1).bytes(2 << 20)
    rows = pa.table({"id": [1], "day": [random], "n": [2]})
    write(tmp_path, {"Day=7/a": rows})
    assert ours(tmp_path) == [(("id", 1), ("Day", 7), ("n", 2))]
