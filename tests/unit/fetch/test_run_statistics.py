"""Statistics of runs: no row that passes a filter is left out by them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcache.connector import DecodedRun
from sparkcache.fetch.run_statistics import run_statistics
from sparkcache.filters import IN, NOT_NULL, NULL, Bounds, Filter
from sparkcache.model import Loss
from sparkcache_delta import DeltaConnector

if TYPE_CHECKING:
    from collections.abc import Callable


class OneColumn(DeltaConnector):
    """A connector whose runs have the column `a`, and columns that are not bounded."""

    def schema(self, decoding: str) -> pa.Schema:
        return pa.schema([("a", pa.int64())])

    def bounded_columns(self, decoding: str) -> list[str]:
        return ["a"]


def statistics_of(*columns: pa.Array, losses: tuple[Loss, ...] = ()) -> Any:
    batches = [pa.RecordBatch.from_arrays([column], ["a"]) for column in columns]
    return run_statistics(OneColumn(), "", DecodedRun(batches, losses))


@pytest.mark.parametrize(
    ("values", "kind", "bounds"),
    [
        ([3, None, -1], pa.int64(), Bounds(-1, 3, 1)),
        ([3, 4], pa.int8(), Bounds(3, 4, 0)),
        ([None, None], pa.int64(), Bounds(None, None, 2)),
        (["b", "a"], pa.string(), Bounds("a", "b", 0)),
        ([b"\xff", b"\x80a"], pa.binary(), Bounds("\x80a", "\xff", 0)),
        (["x" * 100, "z" * 100], pa.string(), Bounds("x" * 64, None, 0)),
        ([True, False], pa.bool_(), Bounds(False, True, 0)),
        ([date(1970, 1, 3)], pa.date32(), Bounds(2, 2, 0)),
        (
            [datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)],
            pa.timestamp("us", "UTC"),
            Bounds(1_000_005, 1_000_005, 0),
        ),
    ],
)
def test_bounds(values: list[Any], kind: pa.DataType, bounds: Bounds) -> None:
    found = statistics_of(pa.array(values, kind))
    assert (found.rows, found.bounds) == (len(values), {"a": bounds})


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(9, 2), pa.time64("us")])
def test_other_types_have_no_bounds(kind: pa.DataType) -> None:
    found = statistics_of(pa.array([None, None], kind))
    assert (found.rows, found.bounds) == (2, {})


def test_a_run_without_rows() -> None:
    assert statistics_of().rows == 0
    assert statistics_of(pa.array([], pa.int64())).rows == 0


def test_a_run_whose_rows_are_not_those_of_scans() -> None:
    loss = Loss("s3://bucket/key", 0, 1, 0, 0, "a frame", "zeros")
    assert statistics_of(pa.array([1]), losses=(loss,)) is None
    two = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], ["a", "parts"])
    assert run_statistics(OneColumn(), "", DecodedRun([two])) is None


BATCHES = st.lists(
    st.lists(st.none() | st.text("ab\u00e9\U0001f600", max_size=70), max_size=5),
    min_size=1,
    max_size=3,
)
COMPARED: dict[str, Callable[[str, tuple[str, ...]], bool]] = {
    "=": lambda a, b: a == b[0],
    "<": lambda a, b: a < b[0],
    "<=": lambda a, b: a <= b[0],
    ">": lambda a, b: a > b[0],
    ">=": lambda a, b: a >= b[0],
    "!=": lambda a, b: a != b[0],
    IN: lambda a, b: a in b,
    NOT_NULL: lambda *_: True,
}


@given(BATCHES, st.data())
def test_no_matching_row_is_left_out(
    batches: list[list[str | None]], data: st.DataObject
) -> None:
    found = statistics_of(*(pa.array(batch, pa.string()) for batch in batches))
    rows = [value for batch in batches for value in batch]
    sign = data.draw(st.sampled_from(sorted(COMPARED)))
    known = st.sampled_from([value for value in rows if value is not None] or [""])
    values = tuple(data.draw(st.lists(known | st.text(max_size=3), min_size=1)))
    if any(row is not None and COMPARED[sign](row, values) for row in rows):
        assert found.may_match([Filter("a", sign, values)])
    if None in rows:
        assert found.may_match([Filter("a", NULL)])
    assert found.may_match([Filter("other", "=", (1,))]) or not rows
