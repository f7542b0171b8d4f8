"""Partitions that are named by times without a zone, as delta-rs writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sparkcache.errors import ConfigError
from tests.unit.delta.streamed_table import batches

if TYPE_CHECKING:
    from tests.unit.delta.lake import Lake
    from tests.unit.delta.streamed_table import Table

ELEVEN = datetime(2026, 7, 31, 11, 0, 0, 5, UTC)
FOUR_HOURS_LATER = ELEVEN.replace(hour=15)
ZURICH, NEW_YORK = "Europe/Zurich", "America/New_York"


def rows(first: int, *times: datetime | None) -> pa.Table:
    ids = range(first, first + len(times))
    return pa.table({"id": ids, "at": pa.array(times, pa.timestamp("us", "UTC"))})


def write(lake: Lake, *times: datetime | None) -> None:
    for number, time in enumerate(times):
        lake.write("t", rows(number, time), partition_by=["at"])


def say_zone(lake: Lake, version: int) -> None:
    """Have a commit write its times as Spark's Delta does today."""
    path = lake.directory / "t" / "_delta_log" / f"{version:020}.json"
    found = r'("partitionValues":\{"at":"[^"]* [^"]*)"'
    path.write_text(re.sub(found, r'\1Z"', path.read_text()))


def test_the_zone_has_to_be_given(lake: Lake) -> None:
    write(lake, ELEVEN, None)
    with pytest.raises(ConfigError, match="partition column at has times without"):
        lake.pin("t")
    assert [row["at"] for row in lake.rows("t", timeZone="UTC")] == [ELEVEN, None]
    found = lake.rows("t", timeZone=NEW_YORK)
    assert [row["at"] for row in found] == [FOUR_HOURS_LATER, None]
    assert [row["id"] for row in lake.rows("t", columns="id")] == [0, 1]
    with pytest.raises(ConfigError, match="option timeZone='there': must be the name"):
        lake.pin("t", timeZone="there")


def test_files_are_chosen_by_times_in_the_zone(lake: Lake) -> None:
    write(lake, ELEVEN, FOUR_HOURS_LATER)
    where = "at < '2026-07-31T12:00:00Z'"
    for zone, found in ("UTC", [0]), (ZURICH, [0]), (NEW_YORK, []):
        options = {"where": where, "timeZone": zone}
        assert [row["id"] for row in lake.rows("t", **options)] == found
        assert len(lake.snapshot("t", **options).ledgers) == len(found)
    local = lake.rows("t", where="at < '2026-07-31 12:00:00'", timeZone=NEW_YORK)
    assert [row["id"] for row in local] == [0]


def test_times_with_a_zone_need_no_option(lake: Lake) -> None:
    write(lake, ELEVEN, FOUR_HOURS_LATER)
    say_zone(lake, 0)
    with pytest.raises(ConfigError, match="partition column at has times without"):
        lake.pin("t")
    assert lake.rows("t", versionAsOf="0")[0]["at"] == ELEVEN
    found = lake.rows("t", timeZone=NEW_YORK)
    assert [row["at"] for row in found] == [ELEVEN, ELEVEN.replace(hour=19)]
    say_zone(lake, 1)
    assert len(lake.rows("t")) == 2


def test_the_same_time_both_ways(lake: Lake) -> None:
    write(lake, ELEVEN, ELEVEN)
    say_zone(lake, 1)
    assert [row["at"] for row in lake.rows("t", timeZone="UTC")] == [ELEVEN] * 2
    says = r"timeZone=Europe/Zurich: .* 2026-07-31 11:00:00.000005 have this time both"
    with pytest.raises(ConfigError, match=says):
        lake.rows("t", timeZone=ZURICH)
    assert len(lake.rows("t", timeZone=ZURICH, columns="id")) == 2


def test_a_time_out_of_range_in_the_zone(lake: Lake) -> None:
    write(lake, datetime.max.replace(tzinfo=UTC))
    assert lake.rows("t", timeZone="UTC")[0]["at"] == datetime.max.replace(tzinfo=UTC)
    with pytest.raises(ConfigError, match="is out of range in this zone"):
        lake.rows("t", timeZone=NEW_YORK)


def test_a_stream_takes_times_in_the_zone(lake: Lake, table: Table) -> None:
    write(lake, ELEVEN)
    stream = table.stream(timeZone=NEW_YORK)
    write(lake, ELEVEN)
    start, *_, end = batches(stream)
    found = table.rows(stream, start, end)
    assert [row["at"] for row in found] == [FOUR_HOURS_LATER] * 2


def test_a_stream_that_needs_a_zone_later_fails(lake: Lake, table: Table) -> None:
    write(lake, ELEVEN)
    say_zone(lake, 0)
    stream = table.stream()
    write(lake, FOUR_HOURS_LATER)
    with pytest.raises(ConfigError, match="partition column at has times without"):
        batches(stream)
