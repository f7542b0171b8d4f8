"""Statistics of all kinds: they may exclude rows, but never fail a read or hide any."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcache.filters import Bounds
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.delta.lake import Lake

DAY, NOON = date(2026, 1, 1), datetime(2026, 1, 1, 12, tzinfo=UTC)
DAYS = (DAY - date(1970, 1, 1)).days
NOON_US = int(NOON.timestamp()) * 1_000_000
LATEST_US = 9_223_371_331_200_000_000  # in the year 294247
EARLIEST_US = -62_200_000_000_000_000  # in the year 1 before year 1
COMMON = DAY, NOON, "text"


def texts(*stored: bytes) -> pa.Array:
    """Return texts that need not be UTF-8."""
    buffers = pa.array(stored, pa.binary()).buffers()
    return pa.Array.from_buffers(pa.string(), len(stored), buffers)


COLUMNS: dict[str, tuple[pa.Array, str, str]] = {
    "days after 9999": (
        pa.array([DAYS, 100_000_000], pa.int32()).cast(pa.date32()),
        "value = '2026-01-01'",
        "value < '2025-01-01'",
    ),
    "days before 1": (
        pa.array([DAYS, -800_000], pa.int32()).cast(pa.date32()),
        "value >= '2026-01-01'",
        "value > '2027-01-01'",
    ),
    "times after 9999": (
        pa.array([NOON_US, LATEST_US], pa.timestamp("us", "UTC")),
        "value <= '2026-01-01T12:00:00Z'",
        "value in ('2025-01-01', '2024-01-01')",
    ),
    "times before 1": (
        pa.array([NOON_US, EARLIEST_US], pa.timestamp("us")),
        "value = '2026-01-01T12:00:00'",
        "value = '2027-01-01'",
    ),
    "texts that are not UTF-8": (
        texts(b"text", b"z\xff"),
        "value = 'text'",
        "value < 'text'",
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_footers_with_values_that_python_has_not(lake: Lake, name: str) -> None:
    column, one, none = COLUMNS[name]
    (lake.directory / "t").mkdir()
    pq.write_table(
        pa.table({"value": column, "id": [1, 2]}), lake.directory / "t" / "a.parquet"
    )
    snapshot = lake.snapshot("t")
    assert sum(len(found.extents) for found in snapshot.ledgers) == 1
    (row,) = lake.rows("t", where=one)
    assert row["id"] == 1
    assert row["value"] in (*COMMON, NOON.replace(tzinfo=None))
    (found,) = lake.snapshot("t", where=none).ledgers
    assert not found.extents


def rewrite_statistics(lake: Lake, low: str, high: str) -> None:
    """Replace the bounds of the column `value` in the log."""
    (path,) = (lake.directory / "t" / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            stats = json.loads(action["add"]["stats"])
            stats["minValues"]["value"] = low
            stats["maxValues"]["value"] = high
            action["add"]["stats"] = json.dumps(stats)
    path.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (DAY, "-1968-01-02", "2026-01-01"),
        (DAY, "0000-01-01", "+294247-01-10"),
        (DAY, "2026-01-01", "294247-01-10"),
        (NOON, "0000-01-01T00:00:00.000Z", "2026-01-01T12:00:00.000Z"),
        (NOON, "2026-01-01T12:00:00.000Z", "294247-01-10T04:00:54.775Z"),
        (NOON, "2026-01-01T12:00:00.000Z", "9999-12-31T23:59:59.999Z"),
        (NOON.replace(tzinfo=None), "0000-01-01 00:00:00", "+31200-09-12 23:59:59.999"),
    ],
    ids=str,
)
def test_logs_with_values_that_python_has_not(
    lake: Lake, value: Any, low: str, high: str
) -> None:
    at = pa.array([value])
    lake.write("t", pa.table({"value": at, "id": [1]}))
    rewrite_statistics(lake, low, high)
    assert lake.rows("t") == [{"value": value, "id": 1}]
    assert lake.rows("t", where="value >= '2026-01-01'")
    assert not lake.rows("t", where="value < '2026-01-01'")


def test_partitions_with_values_that_python_has_not(lake: Lake) -> None:
    for day in ("0000-01-01", "2026-01-01"):
        folder = lake.directory / "t" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    assert lake.rows("t", where="day = '2026-01-01'") == [{"id": 1, "day": DAY}]
    assert not lake.rows("t", where="day is null")


@pytest.mark.parametrize(
    ("text", "known", "may"),
    [
        ("n = 7", (None, 5, 0), False),
        ("n = 0", (1, None, 0), False),
        ("n = 3", (1, None, 0), True),
        ("n = 3", (None, 5, 0), True),
        ("n < 1", (1, None, 0), False),
        ("n < 1", (None, 5, 0), True),
        ("n > 5", (None, 5, 0), False),
        ("n > 5", (1, None, 0), True),
        ("x > 7", (None, 5.0, 0), True),
        ("day = '0000-01-01'", (DAY, DAY, 0), True),
    ],
)
def test_a_bound_that_is_unknown_excludes_nothing(
    text: str, known: Sequence[Any], may: bool
) -> None:
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("day", pa.date32())])
    where = Where.parse({"where": text}, schema)
    assert where.may_have({text.split()[0]: Bounds(*known)}, 10) is may
