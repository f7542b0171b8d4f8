"""The columns of Parquet files are those that Spark finds, whatever wrote the files."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sparkcache.config import StorageConfig
from sparkcache.connector import Selection
from sparkcache.errors import ConfigError
from sparkcache.source.spark_version import has_spark
from sparkcache.storage import Traffic, open_storage
from sparkcache_delta import DeltaConnector
from tests import annotated
from tests.annotated import converted, logical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache_delta.thrift import Struct

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("threads_of_delta_rs")]

CONNECTOR = DeltaConnector()


def of_extension(kind: pa.DataType, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, storage)


def decimals(kind: pa.DataType) -> pa.Array:
    return pa.array([Decimal("-1.25"), None], kind)


OF_ARROW: dict[str, Callable[[], pa.Array]] = {
    "null": lambda: pa.nulls(2),
    "binary_view": lambda: pa.array([b"x", None], pa.binary_view()),
    "string_view": lambda: pa.array(["x", None], pa.string_view()),
    "large_string": lambda: pa.array(["x", None], pa.large_string()),
    "large_binary": lambda: pa.array([b"x", None], pa.large_binary()),
    "fixed_binary": lambda: pa.array([b"ab", None], pa.binary(2)),
    "dictionary": lambda: pa.array(["x", None]).dictionary_encode(),
    "list_view": lambda: pa.array([[1, 2], None], pa.list_view(pa.int32())),
    "large_list": lambda: pa.array([[1, None], None], pa.large_list(pa.int32())),
    "fixed_list": lambda: pa.array([[1, None], None], pa.list_(pa.int32(), 2)),
    "fixed_list_in_struct": lambda: pa.array(
        [{"x": [1, 2]}, None], pa.struct({"x": pa.list_(pa.int32(), 2)})
    ),
    "dictionary_in_list": lambda: pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array(["x", "y"]).dictionary_encode()
    ),
    "json_in_map": lambda: pa.MapArray.from_arrays(
        pa.array([0, 1, 1], pa.int32()),
        pa.array(["key"]),
        of_extension(pa.json_(), pa.array(["{}"])),
    ),
    "decimal32": lambda: decimals(pa.decimal32(9, 2)),
    "decimal64": lambda: decimals(pa.decimal64(18, 2)),
    "decimal256": lambda: decimals(pa.decimal256(38, 2)),
    "duration": lambda: pa.array([1, None], pa.duration("ns")),
    "date64": lambda: pa.array([86_400_000, None], pa.date64()),
    "timestamp_s": lambda: pa.array([1, None], pa.timestamp("s")),
    "timestamp_ms": lambda: pa.array([1, None], pa.timestamp("ms", "UTC")),
    "timestamp_us": lambda: pa.array([1, None], pa.timestamp("us")),
    "timestamp_zone": lambda: pa.array([1, None], pa.timestamp("us", "Asia/Tokyo")),
    "uint8": lambda: pa.array([255, None], pa.uint8()),
    "uint16": lambda: pa.array([65535, None], pa.uint16()),
    "uint32": lambda: pa.array([2**32 - 1, None], pa.uint32()),
    "uint64": lambda: pa.array([2**64 - 1, None], pa.uint64()),
    "int8": lambda: pa.array([-1, None], pa.int8()),
    "bool8": lambda: of_extension(pa.bool8(), pa.array([2, None], pa.int8())),
    "json": lambda: of_extension(pa.json_(), pa.array(['{"a": 1}', None])),
    "opaque": lambda: of_extension(
        pa.opaque(pa.int64(), "kind", "vendor"), pa.array([1, None])
    ),
    "tensor": lambda: of_extension(
        pa.fixed_shape_tensor(pa.int32(), (2,)),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
    ),
}
REFUSED: dict[str, Callable[[], pa.Array]] = {
    "float16": lambda: pa.array(np.array([1.5], np.float16)),
    "time_ms": lambda: pa.array([1, None], pa.time32("ms")),
    "time_us": lambda: pa.array([1, None], pa.time64("us")),
    "time_ns": lambda: pa.array([1, None], pa.time64("ns")),
    "timestamp_ns": lambda: pa.array([1000, None], pa.timestamp("ns")),
    "timestamp_ns_in_list": lambda: pa.array([[1000]], pa.list_(pa.timestamp("ns"))),
    "decimal_of_50_digits": lambda: decimals(pa.decimal256(50, 2)),
}
TEXTS = pa.array([b"x", b"\xff", None])
MAPS = pa.array([[("x", 1)], None], pa.map_(pa.string(), pa.int32()))
ANNOTATED: dict[str, tuple[pa.Array, dict[str, Struct]]] = {
    "ENUM": (TEXTS, {"a": logical(4)}),
    "ENUM of old writers": (TEXTS, {"a": converted(4)}),
    "JSON of old writers": (TEXTS, {"a": converted(19)}),
    "BSON": (TEXTS, {"a": logical(13)}),
    "only nulls": (pa.nulls(2, pa.int64()), {"a": logical(11)}),
    "only nulls, bytes": (pa.nulls(2, pa.binary()), {"a": logical(11)}),
    "a map of old writers": (MAPS, {"a": converted(2)}),
}
POINTS = pa.array([struct.pack("<BIdd", 1, 1, 1.0, 2.0), None])
WHOLE = {"metadata": b"\1\0\0", "value": b"\x0c\5"}
VARIANTS = pa.array([WHOLE, None])
IS_VARIANT = logical(16, _1=1)
MARKED: dict[str, tuple[pa.Array, dict[str, Struct]]] = {
    "VARIANT": (VARIANTS, {"a": IS_VARIANT}),
    "VARIANT in a list": (
        pa.array([[WHOLE, None], None]),
        {"element": IS_VARIANT},
    ),
    "VARIANT in a struct": (pa.array([{"b": WHOLE}, None]), {"b": IS_VARIANT}),
    "GEOMETRY": (POINTS, {"a": logical(17)}),
    "GEOMETRY in a plane": (POINTS, {"a": logical(17, _1="EPSG:3857")}),
    "GEOMETRY nowhere": (POINTS, {"a": logical(17, _1="SRID:0")}),
    "GEOMETRY in a list": (
        pa.array([POINTS.to_pylist(), None]),
        {"element": logical(17, _1="OGC:CRS84")},
    ),
    "GEOGRAPHY": (POINTS, {"a": logical(18)}),
}
REFUSED_ANNOTATED: dict[str, tuple[pa.Array, dict[str, Struct]]] = {
    "INTERVAL": (pa.array([b"x" * 12], pa.binary(12)), {"a": converted(21)}),
    "UUID": (pa.array([b"x" * 16], pa.binary(16)), {"a": logical(14)}),
    "VARIANT of no version": (
        pa.array([{"metadata": b"", "value": b""}]),
        {"a": logical(16)},
    ),
    "GEOMETRY elsewhere": (POINTS, {"a": logical(17, _1="EPSG:32633")}),
    "GEOGRAPHY in a plane": (POINTS, {"a": logical(18, _1="EPSG:3857")}),
}


@pytest.fixture(params=[True, False], ids=["with Arrow's schema", "without"])
def store_schema(request: pytest.FixtureRequest) -> bool:
    with_schema: bool = request.param
    return with_schema


def write_annotated(path: Path, column: pa.Array, changes: dict[str, Struct]) -> None:
    """Write a file; skip the test if this version of Arrow does not know its type."""
    annotated.write(path, pa.table({"a": column}), changes)
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        pytest.skip(f"PyArrow {pa.__version__}: {error}")


def made(columns: dict[str, Callable[[], pa.Array]]) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns that this version of Arrow can write."""
    for title, column in columns.items():
        try:
            array = column()
            pq.write_table(pa.table({"a": array}), pa.BufferOutputStream())
        except (AttributeError, pa.ArrowNotImplementedError):
            continue
        yield title, array


def ours(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.read.format("sparkcache").option("connector", "delta")
    return reader.load(f"file://{folder}")


def pin(folder: Path, **options: str) -> None:
    storage = open_storage(f"file://{folder}", StorageConfig(), Traffic())
    CONNECTOR.pin(storage, Selection((".",)), options)


def assert_equal(spark: SparkSession, folder: Path) -> None:
    theirs = spark.read.parquet(str(folder))
    found = ours(spark, folder)
    assert found.schema == theirs.schema
    assert str(found.collect()) == str(theirs.collect())  # variants never are equal


def assert_refused(spark: SparkSession, folder: Path) -> None:
    with pytest.raises((PySparkException, Py4JJavaError)):
        spark.read.parquet(str(folder)).collect()
    with pytest.raises(ConfigError, match=r"column a has the Parquet type"):
        pin(folder)


def test_types_of_arrow_are_those_of_parquet(
    spark: SparkSession, tmp_path: Path, *, store_schema: bool
) -> None:
    rows = pa.table(dict(made(OF_ARROW)))
    assert rows.num_columns > 20
    pq.write_table(rows, tmp_path / "a", store_schema=store_schema)
    assert_equal(spark, tmp_path)


@pytest.mark.parametrize("title", ANNOTATED)
def test_types_of_other_writers(
    spark: SparkSession, tmp_path: Path, title: str
) -> None:
    column, changes = ANNOTATED[title]
    write_annotated(tmp_path / "a", column, changes)
    assert_equal(spark, tmp_path)


def test_lists_and_maps_of_old_writers(spark: SparkSession, tmp_path: Path) -> None:
    query = "select array(1, 2) a, array(named_struct('x', 1)) b, map('x', array(1)) c"
    spark.conf.set("spark.sql.parquet.writeLegacyFormat", "true")
    try:
        spark.sql(query).write.parquet(str(tmp_path / "t"))
    finally:
        spark.conf.unset("spark.sql.parquet.writeLegacyFormat")
    (path,) = (tmp_path / "t").glob("*.parquet")
    assert "repeated int32 field_id=-1 array" in str(pq.read_metadata(path).schema)
    assert_equal(spark, tmp_path / "t")


@pytest.mark.parametrize("title", MARKED)
def test_types_of_later_spark(spark: SparkSession, tmp_path: Path, title: str) -> None:
    column, changes = MARKED[title]
    write_annotated(tmp_path / "a", column, changes)
    if not has_spark("4.2"):
        pytest.skip("this Spark does not know such files")
    assert_equal(spark, tmp_path)


def test_shredded_variants_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    column = pa.array([{**WHOLE, "typed_value": 7}])
    write_annotated(tmp_path / "b", column, {"a": IS_VARIANT})
    with pytest.raises(ConfigError, match="which is shredded and cannot be put tog"):
        pin(tmp_path)
    write_annotated(tmp_path / "a", VARIANTS, {"a": IS_VARIANT})
    assert ours(spark, tmp_path).schema["a"].dataType.simpleString() == "variant"
    with pytest.raises(
        PySparkException, match=r"a variant with the parts .*typed_value"
    ):
        ours(spark, tmp_path).collect()


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(
            "collate('a', 'UTF8_LCASE') a, array(collate('b', 'UNICODE')) l, "
            "named_struct('x', collate('c', 'de_CI'), 'y', array(named_struct('z', "
            "collate('d', 'UNICODE_CI')))) s, map('k', collate('v', 'UTF8_LCASE')) m, "
            "'plain' p",
            id="collations",
            marks=pytest.mark.skipif(not has_spark("4.1"), reason="returns no rows"),
        ),
        pytest.param(
            "interval '1 02:03:04.5' day to second a, "
            "array(interval '-1 00:00:00' day to second) l",
            id="intervals",
        ),
    ],
)
def test_types_that_spark_declares(
    spark: SparkSession, tmp_path: Path, columns: str
) -> None:
    rows = spark.sql(f"select {columns}").coalesce(1)
    rows.write.parquet(str(tmp_path / "t"))
    assert_equal(spark, tmp_path / "t")


@pytest.mark.skipif(not has_spark("4.1"), reason="returns no rows of such strings")
def test_collated_strings_compare_by_their_collation(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.sql("select collate(a, 'UTF8_LCASE') a from values ('x'), ('X') t(a)")
    rows.coalesce(1).write.parquet(str(tmp_path / "t"))
    assert ours(spark, tmp_path / "t").where("a = 'x'").count() == 2
    with pytest.raises(ConfigError, match="column a has a collation, by which only"):
        pin(tmp_path / "t", where="a = 'x'")


@pytest.mark.parametrize("interval", ["'1-2' year to month", "'1' hour"])
def test_intervals_that_pyspark_cannot_read(
    spark: SparkSession, tmp_path: Path, interval: str
) -> None:
    rows = spark.sql(f"select 1 id, interval {interval} a")
    rows.write.parquet(str(tmp_path / "t"))
    with pytest.raises(
        ConfigError, match=r"column a is of type interval \w+.*write it"
    ):
        pin(tmp_path / "t")
    pin(tmp_path / "t", columns="id")


def test_types_that_spark_does_not_read_are_refused(
    spark: SparkSession, tmp_path: Path, *, store_schema: bool
) -> None:
    for title, column in made(REFUSED):
        (tmp_path / title).mkdir()
        rows = pa.table({"a": column, "b": column, "id": [1] * len(column)})
        pq.write_table(rows, tmp_path / title / "a", store_schema=store_schema)
        assert_refused(spark, tmp_path / title)
        pin(tmp_path / title, columns="id")


@pytest.mark.parametrize("title", REFUSED_ANNOTATED)
def test_types_of_other_writers_are_refused(
    spark: SparkSession, tmp_path: Path, title: str
) -> None:
    column, changes = REFUSED_ANNOTATED[title]
    write_annotated(tmp_path / "a", column, changes)
    assert_refused(spark, tmp_path)
