"""Predicates: rows as Spark would choose them, and files that need not be read."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcache.errors import ConfigError
from sparkcache.filters import IN, NOT_NULL, NULL, Bounds, Filter, may_match_all
from sparkcache.filters import SIGNS as SIGNS_OF_FILTERS
from sparkcache_delta.where import Where

if TYPE_CHECKING:
    from tests.unit.delta.lake import Lake

NAN = float("nan")
ROWS: dict[str, list[Any]] = {
    "n": [1, 2, None, 4],
    "text": ["a", "it's", None, "ü"],
    "day": [date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 2, 1)],
    "at": [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (1, 2, 3, 4)],
    "x": [1.5, NAN, None, -1.5],
    "dec": [Decimal("1.25"), Decimal("2.50"), None, Decimal("-1.00")],
    "ok": [True, False, None, True],
    "a b": [0, 1, 2, 3],
}
BATCH = pa.RecordBatch.from_pydict(ROWS)
BATCH = BATCH.set_column(3, "at", BATCH.column("at").cast(pa.timestamp("us", "UTC")))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("n = 2", [1]),
        ("n <> 2", [0, 3]),
        ("n >= 2 and n < 4", [1]),
        ("N IN (1, 4, 7)", [0, 3]),
        ("n is null", [2]),
        ("n IS NOT NULL", [0, 1, 3]),
        ("text = 'it''s'", [1]),
        ("text > 'b'", [1, 3]),
        ("day >= '2026-01-02'", [1, 3]),
        ("at < '2026-01-02T12:00:00Z'", [0]),
        ("at <= '2026-01-02 12:00:00'", [0, 1]),
        ("x > 1.5", [1]),
        ("x >= 1.5", [0, 1]),
        ("x < 100", [0, 3]),
        ("x != 1.5", [1, 3]),
        ("x = 'nan'", [1]),
        ("x < 'nan'", [0, 3]),
        ("x <= 'nan'", [0, 1, 3]),
        ("x > 'nan'", []),
        ("x in ('nan', -1.5)", [1, 3]),
        ("dec > 1.25", [1]),
        ("ok = true", [0, 3]),
        ("`a b` in (0, 3) and n is not null", [0, 3]),
        ("", [0, 1, 2, 3]),
    ],
)
def test_rows(text: str, rows: list[int]) -> None:
    numbered = BATCH.append_column("row", pa.array(range(4)))
    where = Where.parse({"where": text}, numbered.schema)
    assert where.rows(numbered).column("row").to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n", "the text ends too early"),
        ("n = ", "the text ends too early"),
        ("n = 1 or n = 2", "'and' is missing before 'or'"),
        ("n in (1", r"'\)' is missing before the end"),
        ("n like 'x'", "'like' is not a comparison"),
        ("n = 'x'", "column n is of type int64"),
        ("1 = n", "'1' is not the name of a column"),
        ("n = m", "'m' is not a value"),
        ("ok = `true`", "'true' is not a value"),
        ("text > 9", "column text is of type string and 9 is not, .* quote it: '9'"),
        ("text in ('a', 9)", "column text is of type string and 9 is not"),
        ("text = true", "column text is of type string and true is not"),
        ("m = 1", "column m is not one of n, text"),
        ("n = 1 ; drop", "' ; drop' cannot be parsed"),
    ],
)
def test_what_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Where.parse({"where": text}, BATCH.schema)


VALUES = st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=6)
SIGNS = ["= 1", "!= 1", "< 1", "<= 1", "> 1", ">= 1", "in (1, 3)", "is null"]


@given(VALUES, st.sampled_from([*SIGNS, "is not null"]))
def test_bounds_never_hide_a_row(values: list[int | None], comparison: str) -> None:
    batch = pa.RecordBatch.from_pydict({"n": pa.array(values, pa.int64())})
    where = Where.parse({"where": f"n {comparison}"}, batch.schema)
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (None, None)
    bounds = {"n": Bounds(low, high, len(values) - len(known))}
    if where.rows(batch).num_rows:
        assert where.may_have(bounds, len(values))
        assert where.may_have({"n": Bounds()}, len(values))
        assert where.may_have({}, None)


COMPARISONS = st.one_of(
    st.tuples(st.sampled_from(sorted(SIGNS_OF_FILTERS)), st.tuples(st.integers(-6, 6))),
    st.tuples(st.just(IN), st.lists(st.integers(-6, 6), min_size=1).map(tuple)),
    st.tuples(st.sampled_from([NULL, NOT_NULL]), st.just(())),
)


@given(VALUES, st.lists(COMPARISONS))
def test_filters_and_comparisons_are_one(
    values: list[int | None], comparisons: list[tuple[str, tuple[int, ...]]]
) -> None:
    batch = pa.RecordBatch.from_pydict({"n": pa.array(values, pa.int64())})
    filters = [Filter("n", sign, against) for sign, against in comparisons]
    where = Where().narrowed(filters, batch.schema)
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (None, None)
    bounds = {"n": Bounds(low, high, len(values) - len(known))}
    may = may_match_all(filters, bounds, len(values))
    assert where.may_have(bounds, len(values)) is may
    assert may or not where.rows(batch).num_rows


@pytest.mark.parametrize(
    ("column", "value", "rows"),
    [
        ("n", 2, [1]),
        ("text", "it's", [1]),
        ("day", (date(2026, 1, 2) - date(1970, 1, 1)).days, [1]),
        ("at", int(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp()) * 10**6, [1]),
        ("dec", "2.50", [1]),
        ("ok", True, [0, 3]),
    ],
)
def test_values_of_filters(column: str, value: Any, rows: list[int]) -> None:
    numbered = BATCH.append_column("row", pa.array(range(4)))
    where = Where().narrowed([Filter(column, "=", (value,))], numbered.schema)
    assert where.rows(numbered).column("row").to_pylist() == rows


def test_filters_that_cannot_be_compared_are_dropped() -> None:
    schema = pa.schema([("n", pa.int64()), ("list", pa.list_(pa.int64()))])
    for column, value in (("n", "x"), ("n", 1 << 70), ("list", 1), ("gone", 1)):
        wanted = Filter(column, "=", (value,))
        assert Where().narrowed([wanted], schema) == Where()


def test_a_time_out_of_range_in_the_zone() -> None:
    options = {"where": "at > '0001-01-01'", "timeZone": "Europe/Zurich"}
    with pytest.raises(ConfigError, match=r"option where=.*out of range"):
        Where.parse(options, BATCH.schema)


def test_bounds_rule_files_out() -> None:
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64())])

    def may(text: str, *known: Any) -> bool:
        where = Where.parse({"where": text}, schema)
        return where.may_have({text[0]: Bounds(*known)}, 10)

    for text in ("n = 7", "n < 1", "n <= 0", "n > 5", "n >= 6", "n in (0, 6)"):
        assert not may(text, 1, 5, 0)
    assert not may("n is null", 1, 5, 0)
    assert not may("n is not null", None, None, 10)
    assert may("x > 7", 1.0, 5.0, 0)  # NaN is not in the bounds


def parted(first: int, stop: int) -> pa.Table:
    days = [date(2026, 1, 1) + timedelta(at) for at in range(first, stop)]
    return pa.table({"n": range(first, stop), "day": days})


def test_files_and_row_groups_are_left_out(lake: Lake) -> None:
    for first in (0, 10, 20):
        lake.write("t", parted(first, first + 10), partition_by=["day"])
        lake.write("u", parted(first, first + 10))
    assert len(lake.snapshot("t").ledgers) == 30
    assert len(lake.snapshot("t", where="day = '2026-01-05'").ledgers) == 1
    assert lake.rows("t", where="day = '2026-01-05'")[0]["n"] == 4
    assert len(lake.snapshot("u").ledgers) == 3
    assert len(lake.snapshot("u", where="n >= 15").ledgers) == 2
    assert [row["n"] for row in lake.rows("u", where="n > 17 and n <= 20")] == [
        18,
        19,
        20,
    ]
    folder = lake.directory / "groups"
    folder.mkdir()
    data = pa.table(
        {"n": range(40), "pad": [bytes([at]) * 400_000 for at in range(40)]}
    )
    pq.write_table(
        data,
        folder / "a.parquet",
        row_group_size=5,
        compression="none",
        use_dictionary=False,
    )
    (all_of_it,) = lake.snapshot("groups").ledgers
    assert [extent.first for extent in all_of_it.extents] == [0, 25]
    (chosen,) = lake.snapshot("groups", where="n = 30").ledgers
    assert chosen.extents == all_of_it.extents[1:]
    assert [row["n"] for row in lake.rows("groups", where="n = 30")] == [30]
    assert math.prod(row["n"] for row in lake.rows("groups", where="n > 38")) == 39


def test_a_query_leaves_out_files_and_row_groups(lake: Lake) -> None:
    for first in (0, 10, 20):
        lake.write("t", parted(first, first + 10), partition_by=["day"])
        lake.write("u", parted(first, first + 10))
    fifth = (date(2026, 1, 5) - date(1970, 1, 1)).days
    assert len(lake.snapshot_for("t", Filter("day", "=", (fifth,))).ledgers) == 1
    assert len(lake.snapshot_for("t", Filter("day", NULL)).ledgers) == 0
    assert len(lake.snapshot_for("u", Filter("n", ">=", (15,))).ledgers) == 2
    both = lake.snapshot_for("u", Filter("n", ">=", (15,)), where="n < 20")
    assert len(both.ledgers) == 1


@pytest.mark.parametrize("parts", [[], ["f"]])
def test_floats_are_compared_as_doubles(lake: Lake, parts: list[str]) -> None:
    rows = pa.table({"n": [1], "f": pa.array([0.1], pa.float32())})
    lake.write("t", rows, partition_by=parts)
    for text in ("f > 0.1", "f >= 0.1", "f != 0.1", "f < 0.11"):
        assert lake.rows("t", where=text), text
    for text in ("f = 0.1", "f <= 0.1", "f in (0.1, 1)"):
        assert not lake.rows("t", where=text), text
