"""Columns of Parquet files follow from Parquet's own schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcache.errors import ConfigError, SourceError
from sparkcache_delta.footer_types import without_arrow_schema
from sparkcache_delta.parquet_schema import columns
from tests import annotated

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.delta.lake import Lake


@pytest.fixture
def path(lake: Lake) -> Path:
    folder = lake.directory / "t"
    folder.mkdir()
    return folder / "a.parquet"


def footer(rows: pa.Table, *, store_schema: bool) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, store_schema=store_schema)
    data = sink.getvalue().to_pybytes()
    thrift: bytes = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    return thrift


def metadata(footer: bytes) -> pq.FileMetaData:
    tail = footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return pq.read_metadata(pa.BufferReader(tail))


TEXTS = pa.table({"a": ["ARROW:schema", "/////", "\x18\x0cARROW:schema\x18\x01/////"]})


def test_statistics_that_look_like_the_schema_of_arrow_stay_as_they_are() -> None:
    before = footer(TEXTS, store_schema=True)
    after = without_arrow_schema(before)
    assert len(after) == len(before)
    assert b"ARROW:schema" in metadata(before).metadata
    assert b"ARROW:schema" not in (metadata(after).metadata or {})
    assert metadata(after).row_group(0) == metadata(before).row_group(0)


def test_a_footer_without_the_schema_of_arrow_stays_as_it_is() -> None:
    before = footer(TEXTS.slice(0, 2), store_schema=False)
    assert without_arrow_schema(before) == before


def test_where_goes_by_types_of_parquet(lake: Lake, path: Path) -> None:
    numbers = pa.array([1, 2, 3])
    duration = numbers.cast(pa.duration("us"))
    kinds = {"d": duration, "n": numbers.cast(pa.uint32()), "x": pa.nulls(3)}
    pq.write_table(pa.table(kinds), path, row_group_size=1)
    found = lake.rows("t", where="d > 1 and n < 3")
    assert found == [{"d": 2, "n": 2, "x": None}]
    assert lake.rows("t", where="x = 1") == []


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (
            pa.array([{"b": [1]}], pa.struct({"b": pa.list_(pa.timestamp("ns"))})),
            r"column a\.b has the Parquet type INT64 \(TIMESTAMP\(NANOS, False\)\), "
            "which Spark does not read; write it in microseconds, or name the other "
            "columns in the option columns",
        ),
        (
            pa.array([[("x", 1)]], pa.map_(pa.string(), pa.time32("ms"))),
            r"column a has the Parquet type INT32 \(TIME\(MILLIS, \w+\)\)",
        ),
    ],
    ids=["in a list of a struct", "in a map"],
)
def test_a_column_that_is_refused_can_be_left_out(
    lake: Lake, path: Path, column: pa.Array, says: str
) -> None:
    pq.write_table(pa.table({"id": [1], "a": column}), path)
    with pytest.raises(ConfigError, match=says):
        lake.pin("t")
    with pytest.raises(ConfigError, match=says):
        lake.pin("t", columns="a")
    assert lake.rows("t", columns="id") == [{"id": 1}]


def test_texts_that_are_stored_as_bytes_need_not_be_utf_8(
    lake: Lake, path: Path
) -> None:
    pq.write_table(pa.table({"a": ["text"]}), path.with_name("0.parquet"))
    pq.write_table(pa.table({"a": [b"bytes", None]}), path)
    assert [row["a"] for row in lake.rows("t")] == ["text", "bytes", None]


def test_a_schema_that_cannot_be_read_is_an_error() -> None:
    whole = footer(TEXTS, store_schema=False)
    assert [column.name for column in columns(whole)] == ["a"]
    with pytest.raises(pa.ArrowInvalid, match="the schema cannot be read"):
        columns(whole[:8])


def test_a_type_that_arrow_does_not_know(lake: Lake, path: Path) -> None:
    annotated.write(path, pa.table({"a": [b"x"]}), {"a": annotated.logical(100)})
    says = r"column a .* \(logical type 100\)|does not know it, a later one may"
    with pytest.raises((ConfigError, SourceError), match=says):
        lake.pin("t")


def test_a_footer_that_is_no_thrift_is_an_error(lake: Lake, path: Path) -> None:
    path.write_bytes(b"PAR1" + b"\xff" * 20 + (20).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(SourceError, match=r"a\.parquet.*expected a Parquet footer"):
        lake.pin("t")
