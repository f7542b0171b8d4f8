"""The connector keeps the contract of all connectors: tables, and their changes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcache.testing import check_connector
from sparkcache_delta import DeltaConnector

if TYPE_CHECKING:
    from tests.unit.delta.lake import Lake

CONNECTOR = DeltaConnector()


def rows_of(first: int, stop: int) -> pa.Table:
    values = range(first, stop)
    return pa.table(
        {
            "id": values,
            "part": [value % 3 for value in values],
            "x": [float("nan") if value % 4 else value / 2 for value in values],
            "day": [date(2026, 1, 1 + value % 28) for value in values],
            "at": pa.array(
                [datetime(2026, 1, 1, value % 24, tzinfo=UTC) for value in values],
                pa.timestamp("us", "UTC"),
            ),
            "price": pa.array(
                [Decimal(value) for value in values], pa.decimal128(9, 2)
            ),
            "tags": [["a"] * (value % 3) for value in values],
        }
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"columns": "id,x"}, {"where": "id >= 25 and part in (0, 1)"}],
    ids=str,
)
@pytest.mark.parametrize("parts", [[], ["part"]], ids=str)
def test_tables(lake: Lake, parts: list[str], options: dict[str, str]) -> None:
    for first in (0, 20, 40):
        lake.write("t", rows_of(first, first + 20), partition_by=parts)
    rows, losses = check_connector(CONNECTOR, lake.storage(), "t", options)
    wanted = [
        value
        for value in range(60)
        if "where" not in options or (value >= 25 and value % 3 < 2)
    ]
    assert sorted(row["id"] for row in rows) == wanted
    assert not losses


def test_a_table_with_deleted_rows(lake: Lake) -> None:
    table = lake.write("t", rows_of(0, 40))
    table.delete("id >= 30")
    options = {"skipChangeCommits": "true"}
    rows, losses = check_connector(CONNECTOR, lake.storage(), "t", options)
    assert [row["id"] for row in rows] == list(range(30))
    assert not losses


def test_an_older_version(lake: Lake) -> None:
    for first in (0, 20):
        lake.write("t", rows_of(first, first + 20))
    options = {"versionAsOf": "0"}
    rows, _ = check_connector(CONNECTOR, lake.storage(), "t", options)
    assert [row["id"] for row in rows] == list(range(20))


def test_a_folder_of_parquet_files(lake: Lake) -> None:
    for number in range(2):
        folder = lake.directory / "t" / f"part={number}"
        folder.mkdir(parents=True)
        rows = rows_of(20 * number, 20 * number + 20).drop_columns("part")
        pq.write_table(rows, folder / "a.parquet", row_group_size=7)
    rows, losses = check_connector(CONNECTOR, lake.storage(), "t")
    assert [(row["id"], row["part"]) for row in rows] == [
        (value, value // 20) for value in range(40)
    ]
    assert not losses
