"""Columns of folders of Parquet files: their types, and names that are there twice."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcache.errors import ConfigError, SourceError
from sparkcache_delta.partition_types import type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.delta.lake import Lake

TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
TWICE_IN_STRUCT = pa.table(
    {"s": pa.StructArray.from_arrays(TWICE.to_batches()[0].columns, names=["a", "a"])}
)


def write(lake: Lake, *files: pa.Table) -> None:
    (lake.directory / "t").mkdir()
    for number, rows in enumerate(files):
        pq.write_table(rows, lake.directory / "t" / f"{number}.parquet")


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2024-02-29", "0000-01-01"], pa.date32()),
        (["2024-02-29", "2024-02-30"], pa.string()),
        (["2023-02-29"], pa.string()),
        (["2024-13-01"], pa.string()),
        (["2024-00-01"], pa.string()),
        (["2024-2-3"], pa.string()),
        (["12024-01-01"], pa.string()),
        (["2024-02-29", "5"], pa.string()),
    ],
    ids=str,
)
def test_days_of_no_calendar_are_texts(texts: Sequence[str], kind: pa.DataType) -> None:
    assert type_of("p", texts) == kind  # as spark.read.parquet does


def test_a_partition_that_only_looks_like_a_day(lake: Lake) -> None:
    days = ["2024-02-29", "2024-02-30"]
    for day in days:
        folder = lake.directory / "t" / f"p={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    assert [row["p"] for row in lake.rows("t")] == days
    assert lake.rows("t", where="p = '2024-02-30'") == [{"id": 1, "p": days[1]}]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (TWICE, r"0\.parquet: has 2 columns of the name a; rename one of them"),
        (TWICE_IN_STRUCT, "column s: has 2 columns of the name a; rename one of them"),
    ],
    ids=["columns", "fields of a struct"],
)
@pytest.mark.parametrize("options", [{}, {"where": "a = 1"}], ids=str)
def test_two_columns_of_one_name(
    lake: Lake, rows: pa.Table, says: str, options: dict[str, str]
) -> None:
    write(lake, rows)
    with pytest.raises(ConfigError, match=says):
        lake.pin("t", **options)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.table({"a": [7]}), TWICE),
        (pa.table({"s": [{"a": 7}]}), TWICE_IN_STRUCT),
    ],
    ids=["columns", "fields of a struct"],
)
def test_two_columns_of_one_name_in_a_later_file(
    lake: Lake, first: pa.Table, second: pa.Table
) -> None:
    write(lake, first, second)
    with pytest.raises(SourceError, match=r"1\.parquet.*2 columns of the name a; re"):
        lake.rows("t")


def test_columns_of_one_name_that_are_not_read(lake: Lake) -> None:
    day = pa.array([date(2026, 1, 1)])
    write(lake, pa.table({"day": day}), TWICE.append_column("day", day))
    assert lake.rows("t", columns="day") == [{"day": date(2026, 1, 1)}] * 2
