"""Tables through the connector: versions, columns, files, and what is wrong."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcache.connector import Selection
from sparkcache.errors import ConfigError, SourceError
from sparkcache.source.options import ScanOptions
from sparkcache.testing.reading import discover
from sparkcache_delta import DeltaConnector, pinned_files

if TYPE_CHECKING:
    from tests.unit.delta.lake import Lake

CONNECTOR = DeltaConnector()


def numbers(first: int, stop: int) -> pa.Table:
    values = list(range(first, stop))
    names = [f"n{value}" for value in values]
    parts = [value % 2 for value in values]
    return pa.table({"id": values, "name": names, "part": parts})


def test_the_newest_version_and_older_ones(lake: Lake) -> None:
    for first in (0, 10, 20):
        lake.write("t", numbers(first, first + 10), partition_by=["part"])
    assert sorted(row["id"] for row in lake.rows("t")) == list(range(30))
    assert sorted(row["id"] for row in lake.rows("t", versionAsOf="1")) == [*range(20)]
    assert lake.rows("t", versionAsOf="0")[0].keys() == {"id", "name", "part"}


def test_what_is_pinned_stays(lake: Lake) -> None:
    lake.write("t", numbers(0, 10))
    pinned = lake.pin("t")
    lake.write(
        "t",
        numbers(10, 20).append_column("x", pa.nulls(10, pa.int32())),
        schema_mode="merge",
    )
    assert pinned["versionAsOf"] == "0"
    catalog = CONNECTOR.catalog(lake.storage(), pinned)
    assert len(catalog.snapshot("t").ledgers) == 1
    assert CONNECTOR.schema(CONNECTOR.decoding(pinned)).names == ["id", "name", "part"]
    assert len(lake.rows("t")) == 20
    assert lake.rows("t", columns="x") == [{"x": None}] * 20


def test_versions_share_the_files_that_they_have_in_common(lake: Lake) -> None:
    lake.write("t", numbers(0, 10))
    (before,) = lake.snapshot("t").ledgers
    lake.write("t", numbers(10, 20))
    after = lake.snapshot("t").ledgers
    assert before in after
    assert [found.ledger.id for found in after] == sorted(
        {found.ledger.id for found in after}
    )


def test_runs_cover_all_rows_once(lake: Lake) -> None:
    lake.write("t", numbers(0, 5000))
    rows = lake.read("t", run_bytes=1024)[0]
    assert [row["id"] for row in rows] == list(range(5000))
    (ledger,) = lake.snapshot("t").ledgers
    (extent,) = ledger.extents
    runs = CONNECTOR.runs(extent, 1024)
    assert len(runs) > 10
    assert [run.first for run in runs[1:]] == [run.last + 1 for run in runs[:-1]]
    assert (runs[0].first, runs[-1].last) == (0, 4999)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"versionAsOf": "7"}, "option versionAsOf='7': not a version"),
        ({"versionAsOf": "7"}, "the newest one is 0"),
        ({"versionAsOf": "x"}, "option versionAsOf='x': must be the number"),
        ({"timestampAsOf": "soon"}, "option timestampAsOf='soon': must be a time"),
        (
            {"timestampAsOf": "1999-01-01"},
            "before the first version that is kept, which is of 2",
        ),
        ({"timestampAsOf": "2999-01-01"}, "is after the newest version"),
        ({"versionAsOf": "0", "timestampAsOf": "2026-01-01"}, "use only one of them"),
        ({"columns": "id,nothing"}, "has no column nothing; it has id, name"),
        ({"columns": "[1]"}, "must be JSON such as"),
        ({"where": "nothing = 1"}, "column nothing is not one of id, name"),
        ({"startingTime": "0"}, "option startingTime: a table has no time column"),
    ],
)
def test_wrong_options(lake: Lake, options: dict[str, str], says: str) -> None:
    lake.write("t", numbers(0, 10))
    with pytest.raises(ConfigError, match=re.escape(says)):
        lake.pin("t", **options)


def test_missing_tables(lake: Lake) -> None:
    lake.write("t", numbers(0, 10))
    with pytest.raises(ConfigError, match="neither a Delta table nor a Parquet file"):
        lake.pin("nothing")
    for topic in ("../t", "s3://bucket/t"):
        with pytest.raises(ConfigError, match="must be the path of a table below"):
            CONNECTOR.topic_name(topic)
    with pytest.raises(ConfigError, match="a scan reads one table"):
        CONNECTOR.pin(lake.storage(), Selection(("a", "b")), {})
    a_file = next(lake.directory.glob("t/*.parquet"))
    with pytest.raises(ConfigError, match=r"\.parquet: must be the directory"):
        lake.pin(f"t/{a_file.name}")


@pytest.mark.parametrize(
    ("given", "rows"),
    [("3:4", "the rows of a table"), ('{"t": "3:4"}', "the rows of t")],
)
def test_rows_have_no_positions(given: str, rows: str) -> None:
    options = {"path": "/lake", "connector": "delta", "endingOffsets": given}
    with pytest.raises(
        ConfigError, match=f"{rows} have no positions; .*, or for a str.*n$"
    ):
        ScanOptions.parse(options)


def test_a_table_in_the_root_itself(lake: Lake) -> None:
    lake.write("", numbers(0, 10))
    assert len(lake.rows(".")) == 10
    assert CONNECTOR.topic_name("./sales//orders/") == "sales/orders"


def test_a_file_that_is_gone_or_was_replaced(lake: Lake) -> None:
    lake.write("t", numbers(0, 1000))
    (path,) = (lake.directory / "t").glob("*.parquet")
    snapshot = lake.snapshot("t")
    data = path.read_bytes()
    path.write_bytes(data)
    with pytest.raises(SourceError, match="as planned, found version"):
        lake.storage().open(snapshot.ledgers[0].ledger.object, 0, 10)
    path.write_bytes(data + b" ")
    with pytest.raises(SourceError, match="as recorded in the table's log"):
        lake.snapshot("t")
    path.write_bytes(data[:-1] + b"?")
    with pytest.raises(SourceError, match="end of a Parquet file"):
        lake.snapshot("t")
    path.unlink()
    with pytest.raises(SourceError, match="No such file"):
        lake.snapshot("t")


def test_a_damaged_row_group_is_a_loss(lake: Lake) -> None:
    lake.write("t", numbers(0, 1000))
    lake.write("t", numbers(1000, 2000))
    path = sorted((lake.directory / "t").glob("*.parquet"))[0]
    data = bytearray(path.read_bytes())
    data[4:600] = b"\xff" * 596
    path.write_bytes(data)
    rows, losses = lake.read("t", run_bytes=1024)
    assert len(rows) == 1000
    assert {loss.uri for loss in losses} == {f"file://{path}"}
    assert sum(loss.last - loss.first + 1 for loss in losses) == 1000
    assert sum(loss.rows or 0 for loss in losses) == 1000


def test_columns_are_read_by_themselves(lake: Lake) -> None:
    wide = pa.table({f"c{at}": [bytes([at]) * 3_000_000] for at in range(4)})
    folder = lake.directory / "t"
    folder.mkdir()
    pq.write_table(
        wide,
        folder / "a.parquet",
        compression="none",
        use_dictionary=False,
        write_statistics=False,
    )
    assert lake.rows("t", columns="c2")[0]["c2"] == b"\2" * 3_000_000
    (chosen,) = lake.snapshot("t", columns="c0,c2").ledgers[0].extents
    assert len(chosen.ranges) == 3
    assert 6_000_000 < chosen.size_bytes < 6_010_000
    (whole,) = lake.snapshot("t").ledgers[0].extents
    assert not whole.ranges
    assert set(lake.rows("t", columns="c3,c0")[0]) == {"c0", "c3"}


@pytest.mark.parametrize(
    ("said", "old", "refused"),
    [
        ({}, "1066-10-14", False),
        ({"org.apache.spark.version": "3.5.1"}, "1066-10-14", False),
        ({"org.apache.spark.version": "2.4.8"}, "1066-10-14", True),
        ({"org.apache.spark.version": "2.4.8"}, "1582-10-15", False),
        (
            {
                "org.apache.spark.version": "4.2.0",
                "org.apache.spark.legacyDateTime": "",
            },
            "1582-10-14",
            True,
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["day", "times", "nested"])
def test_days_of_the_old_calendar_are_refused(
    lake: Lake, said: dict[str, str], old: str, refused: bool, kind: str
) -> None:
    day = date.fromisoformat(old)
    if kind == "times":
        refused = "legacyDateTime" in str(said) or "2.4" in str(said)
        value: Any = datetime(1899, 12, 31, tzinfo=UTC)
    else:
        value = {"a": [day]} if kind == "nested" else day
    rows = pa.table({"id": [1, 2], "then": [value, None]})
    path = lake.directory / "t" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(rows.replace_schema_metadata(said), path)
    assert lake.rows("t", columns="id") == [{"id": 1}, {"id": 2}]
    if refused:
        with pytest.raises(SourceError, match="1900-01-01 in column then"):
            lake.rows("t")
    else:
        assert lake.rows("t")[0]["then"] == value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("2026-01-31 12%3A00%3A00", "as times"),
        ("9223372036854775808", "as decimals"),
        ("1e5", "as decimals"),
        ("5.", "as decimals"),
    ],
)
def test_partitions_of_which_no_type_is_known(
    lake: Lake, value: str, says: str
) -> None:
    path = lake.directory / "t" / f"part={value}" / "a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), path)
    with pytest.raises(ConfigError, match=f"partition part=.*{says}"):
        lake.pin("t")


def test_a_root_of_tables_is_no_folder_of_files(lake: Lake) -> None:
    for name in ("b", "a/x", "c", "d", "_hidden"):
        lake.write(f"below/{name}", numbers(0, 10))
    lake.write("one", numbers(0, 10))
    pq.write_table(numbers(0, 10), lake.directory / "below" / "beside.parquet")
    says = "below/a/x, below/b, below/c and 1 more; .* topic='below/a/x'"
    with pytest.raises(ConfigError, match=says):
        lake.pin("below")
    (lake.directory / "one" / "_delta_log" / f"{0:020}.json").rename(
        lake.directory / "one" / "_delta_log" / "x.json"
    )
    with pytest.raises(ConfigError, match="no version of a table in it"):
        lake.pin("one")


@pytest.mark.parametrize("where", ["", "id > 15", "day = '2026-01-02'"])
def test_what_is_read_is_planned_without_the_log(lake: Lake, where: str) -> None:
    for number, day in enumerate((date(2026, 1, 1), date(2026, 1, 2), None)):
        ids = range(10 * number, 10 * number + 10)
        rows = pa.table({"id": ids, "day": pa.array([day] * 10, pa.date32())})
        lake.write("t", rows, partition_by=["day"])
    options = lake.pin("t", **({"where": where} if where else {}))
    read = discover(CONNECTOR, lake.storage(), "t", options)
    others = {name: text for name, text in options.items() if name != "pinnedFiles"}
    assert others != options
    assert discover(CONNECTOR, lake.storage(), "t", others) == read
    shutil.rmtree(lake.directory / "t" / "_delta_log")
    assert discover(CONNECTOR, lake.storage(), "t", options) == read


def test_the_log_of_many_files_is_read_at_planning(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_files, "MOST", 2)
    for count, is_pinned in ((2, True), (3, False)):
        while len(lake.write("t", pa.table({"id": [1]})).file_uris()) < count:
            pass
        assert ("pinnedFiles" in lake.pin("t")) is is_pinned
