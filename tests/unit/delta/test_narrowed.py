"""Scans of a table for which only some columns are fetched."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.testing.reading import discover, read_topic
from tests.unit.delta.lake import CONNECTOR, RUN_BYTES

if TYPE_CHECKING:
    from tests.unit.delta.lake import Lake


def test_fewer_columns_are_fewer_bytes(lake: Lake) -> None:
    pads = [os.urandom(1_000_000) for _ in range(9)]
    lake.write("t", pa.table({"n": range(9), "m": range(9), "pad": pads}))
    every = lake.pin("t")
    some = CONNECTOR.narrowed(every, {"n", "m"})
    assert CONNECTOR.schema(CONNECTOR.decoding(some)).names == ["n", "m"]
    assert json.loads(some["columns"]) == ["n", "m"]
    storage = lake.storage()
    found, losses = read_topic(CONNECTOR, storage, "t", some, run_bytes=RUN_BYTES)
    assert not losses
    assert found == [{"n": n, "m": n} for n in range(9)]
    (whole,), (narrow,) = (
        discover(CONNECTOR, storage, "t", options).ledgers for options in (every, some)
    )
    assert narrow.extents[0].size_bytes < whole.extents[0].size_bytes / 3
    assert narrow.ledger.decoding != whole.ledger.decoding


def test_all_columns_change_nothing(lake: Lake) -> None:
    lake.write("t", pa.table({"n": [1], "m": [2]}))
    every = lake.pin("t")
    assert CONNECTOR.narrowed(every, ["m", "n"]) == every
    chosen = lake.pin("t", columns="m")
    assert CONNECTOR.narrowed(chosen, ["m"]) == chosen


def test_columns_of_where_stay(lake: Lake) -> None:
    lake.write("t", pa.table({"n": [1, 2], "m": [3, 4], "x": [5, 6]}))
    some = CONNECTOR.narrowed(lake.pin("t", where="n = 2"), ["m"])
    found, _ = read_topic(CONNECTOR, lake.storage(), "t", some, run_bytes=RUN_BYTES)
    assert found == [{"n": 2, "m": 4}]
