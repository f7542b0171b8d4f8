"""Tables of many files: what planning them asks for, and that it grows no faster."""

from __future__ import annotations

import cProfile
import json
import pickle
import pstats
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer

from sparkcache.config import StorageConfig
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.storage import Traffic, open_storage
from sparkcache.testing.reading import discover
from sparkcache_delta import small_files
from tests.benchmarks import many_files
from tests.unit.delta.lake import CONNECTOR, Lake

if TYPE_CHECKING:
    from pathlib import Path

    from sparkcache.connector import Snapshot
    from sparkcache.source.batch.scan_partition import ScanPartition

FILES = small_files.MANY + 4
MAP = pa.map_(pa.string(), pa.int64())
STRUCT = pa.struct({"day": pa.date32()})


def write(lake: Lake, **columns: Any) -> list[dict[str, Any]]:
    """Write a table of many files, in one commit; return its rows."""
    ids = list(range(2 * FILES))
    rows = pa.table(
        {"id": ids, "part": [f"p{id_ // 2}" for id_ in ids]}
        | {
            name: pa.array([value] * len(ids), kind)
            for name, (value, kind) in columns.items()
        }
    )
    lake.write("t", rows, partition_by=["part"])
    written: list[dict[str, Any]] = rows.to_pylist()
    return written


def plan(lake: Lake, **options: str) -> tuple[Snapshot, int]:
    """Return the snapshot of the table, and how many requests for files it took."""
    traffic = Traffic()
    storage = open_storage(f"file://{lake.directory}", StorageConfig(), traffic)
    snapshot = discover(CONNECTOR, storage, "t", lake.pin("t", **options))
    return snapshot, traffic.gets


def edit_log(lake: Lake, change: Any) -> None:
    """Change what the only commit says of each file that it adds."""
    (log,) = (lake.directory / "t" / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            change(action["add"])
    log.write_text("\n".join(map(json.dumps, actions)))


def with_rows(rows: int) -> Any:
    """Return a change that says how many rows a file has."""

    def change(added: dict[str, Any]) -> None:
        statistics = json.loads(added["stats"])
        added["stats"] = json.dumps({**statistics, "numRecords": rows})

    return change


@pytest.mark.parametrize(
    ("column", "options", "footers"),
    [
        pytest.param((1, pa.int64()), {}, 0, id="numbers"),
        pytest.param(
            (date(1990, 1, 1), pa.date32()), {}, 0, id="days in both calendars"
        ),
        pytest.param((date(1500, 1, 1), pa.date32()), {}, FILES, id="days before 1582"),
        pytest.param((None, pa.timestamp("us", "UTC")), {}, 0, id="nulls for times"),
        pytest.param(
            ({"day": None}, STRUCT), {}, FILES, id="days in a struct, without bounds"
        ),
        pytest.param(
            ([("a", 1)], MAP), {}, FILES, id="maps, whose keys may be optional"
        ),
        pytest.param(
            ([("a", 1)], MAP), {"columns": "id"}, 0, id="a map that is not read"
        ),
        pytest.param((1, pa.int64()), {"where": "x = 1"}, 0, id="where with bounds"),
        pytest.param(
            (b"1", pa.binary()), {"where": "x = '1'"}, FILES, id="where without bounds"
        ),
        pytest.param(
            (1, pa.int64()), {"where": "part < 'p15'"}, 57, id="where leaves few files"
        ),
    ],
)
def test_footers_are_read_only_of_files_that_the_log_tells_too_little_of(
    lake: Lake, column: tuple[Any, pa.DataType], options: dict[str, str], footers: int
) -> None:
    rows = write(lake, x=column)
    snapshot, gets = plan(lake, **options)
    assert gets == footers
    if options:
        return
    assert len(snapshot.ledgers) == FILES
    if column[1] != MAP and column[0] != date(1500, 1, 1):
        found = sorted(lake.rows("t"), key=lambda row: int(row["id"]))
        assert found == rows


def test_footers_are_read_where_the_log_has_no_statistics(lake: Lake) -> None:
    rows = write(lake)
    edit_log(lake, lambda added: added.pop("stats"))
    _, gets = plan(lake)
    assert gets == FILES
    assert len(lake.rows("t")) == len(rows)


@pytest.mark.parametrize(
    ("value", "footers"), [("x" * 7000, 1), (7, 0)], ids=["texts", "numbers"]
)
def test_the_footer_is_read_of_a_file_with_texts_in_many_rows(
    lake: Lake, value: Any, footers: int
) -> None:
    """It tells how large they become: a text that is stored once may be in each row."""
    write(lake, x=(value, pa.array([value]).type))
    rows = small_files.MOST_ROWS + 1
    large = {"id": pa.array(range(rows)), "part": ["large"] * rows}
    large["x"] = pa.array([value]).take(pa.array([0] * rows))
    lake.write("t", pa.table(large), partition_by=["part"])
    snapshot, gets = plan(lake)
    assert gets == footers
    row_bytes = 2 * 8 if footers == 0 else 8 + 7000
    (most,) = (
        len(CONNECTOR.runs(extent, 16 << 10))
        for ledger_map in snapshot.ledgers
        for extent in ledger_map.extents
        if extent.last == rows - 1
    )
    assert most > 0.9 * rows * row_bytes / (64 << 10)


def test_ledgers_are_the_same_with_footers_and_without(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake)
    without, _ = plan(lake)
    monkeypatch.setattr(small_files, "MANY", 2 * FILES)
    with_footers, gets = plan(lake)
    assert gets == FILES
    assert [each.ledger for each in without.ledgers] == [
        each.ledger for each in with_footers.ledgers
    ]
    for one, other in zip(without.ledgers, with_footers.ledgers, strict=True):
        runs, others = (
            [CONNECTOR.runs(extent, 1 << 20) for extent in each.extents]
            for each in (one, other)
        )
        assert runs == others


@pytest.mark.parametrize("rows", [1, 3], ids=["too few", "too many"])
def test_a_wrong_number_of_rows_in_the_log_is_a_loss(lake: Lake, rows: int) -> None:
    """Not rows that are missing without a word."""
    write(lake)
    edit_log(lake, with_rows(rows))
    found, losses = lake.read("t")
    assert not found
    assert len(losses) == FILES
    assert "the file has 2 rows" in losses[0].found


def test_files_of_another_length_than_in_the_log_are_an_error(lake: Lake) -> None:
    write(lake)
    edit_log(lake, lambda added: added.update(size=added["size"] + 1))
    with pytest.raises(Exception, match="bytes, as recorded in the table's log"):
        plan(lake)


def test_files_that_are_gone_are_an_error(lake: Lake) -> None:
    write(lake)
    next((lake.directory / "t").glob("part=p7/*.parquet")).unlink()
    with pytest.raises(Exception, match=r"part=p7/.*No such file"):
        plan(lake)


def planned(server: many_files.TableServer) -> tuple[list[ScanPartition], int]:
    """Plan as Spark does; return the partitions, and how many calls that took."""
    options = {"connector": "delta", "topic": many_files.TABLE}
    source = SparkCacheSource({**options, "path": f"s3://{many_files.BUCKET}"})
    server.counts()
    with cProfile.Profile() as profile:
        partitions: Any = source.reader(source.schema()).partitions()
    calls: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return partitions, calls


@pytest.mark.parametrize("checkpoint", [False, True], ids=["commits", "checkpoint"])
def test_planning_grows_no_faster_than_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: bool
) -> None:
    calls = {}
    for files in (1000, 4000):
        directory = tmp_path / str(files)
        many_files.write_log(directory, files, checkpoint=checkpoint)
        with many_files.serving(directory, files, 0.0) as server:
            for name, text in server.environment().items():
                monkeypatch.setenv(name, text)
            partitions, calls[files] = planned(server)
            counts = server.counts()
        assert sum(len(each.pieces) for each in partitions) == files
        assert "footers" not in counts
        assert counts["pages"] <= files // 1000 + 4
        sent = list(map(CloudPickleSerializer().dumps, partitions))
        assert sum(map(len, sent)) <= 80 * files
        first = pickle.loads(sent[0]).unpacked(partitions[0].dictionary)
        assert first.pieces == partitions[0].pieces
    assert calls[4000] <= 4 * calls[1000]


def test_a_stream_reads_few_footers_of_a_table_that_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_files.write_log(tmp_path, 3000, checkpoint=True)
    with many_files.serving(tmp_path, 3000, 0.0) as server:
        for name, text in server.environment().items():
            monkeypatch.setenv(name, text)
        options = {"connector": "delta", "topic": many_files.TABLE}
        source = SparkCacheSource({**options, "path": f"s3://{many_files.BUCKET}"})
        reader: Any = source.streamReader(source.schema())
        start = reader.initialOffset()
        server.counts()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        counts = server.counts()
        parts = reader.partitions(start, end)
    assert sum(len(part.partition.pieces) for part in parts) == 3000
    assert counts["footers"] == 16 + 32 + 64 + 128  # until listing pays
    assert counts["pages"] <= 3 + 4
