"""What the batches of a stream of a table are, while others write to it."""

from __future__ import annotations

import json
import os
import pickle
import re
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparkcache import connector as connectors
from sparkcache.errors import ConfigError, SourceError
from sparkcache.fetch.load import Load, begin, fetch
from sparkcache.source.change_reader import ChangeReader
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.partitions import stretch
from sparkcache.testing.s3_server import S3Server
from sparkcache_delta.evolution import changed, lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Lake

    from sparkcache.source.partitions import Piece
    from sparkcache.source.scan_partition import ScanPartition

ALL = ReadAllAvailable()
ROWS = 10
CONNECTOR = connectors.find("delta")


class Table:
    """A table, and streams of it."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._numbers = count()
        self.path = lake.directory / "t"

    def append(self, **columns: Any) -> list[int]:
        """Commit a file of ten rows; return their ids."""
        ids = [next(self._numbers) for _ in range(ROWS)]
        added = {name: [value] * ROWS for name, value in columns.items()}
        rows = pa.table({"id": ids, **added})
        write_deltalake(self.path, rows, mode="append", schema_mode="merge")
        return ids

    def appends(self, times: int) -> list[int]:
        return [id_ for _ in range(times) for id_ in self.append()]

    @property
    def now(self) -> DeltaTable:
        return DeltaTable(self.path)

    @property
    def log(self) -> list[Any]:
        return sorted((self.path / "_delta_log").glob("*.json"))

    def stream(self, **options: str) -> ChangeReader:
        """Return a stream as Spark makes it, of columns as they are now."""
        given = {"path": str(self._lake.directory), "topic": "t", "connector": "delta"}
        source = SparkCacheSource({**given, "pollInterval": "0s", **options})
        reader = source.streamReader(source.schema())
        assert isinstance(reader, ChangeReader)
        return reader

    def ids(self, reader: ChangeReader, start: Any, end: Any) -> list[int]:
        """Return the ids of a batch."""
        return [row["id"] for row in self.rows(reader, start, end)]

    def rows(self, reader: ChangeReader, start: Any, end: Any) -> list[dict[str, Any]]:
        """Return the rows of a batch, after a journey through JSON."""
        start, end = json.loads(json.dumps([start, end]))
        return [
            row
            for part in reader.partitions(start, end)
            for piece in part.partition.pieces
            for row in self._rows(reader, part.partition, piece)
        ]

    def _rows(
        self, reader: ChangeReader, part: ScanPartition, piece: Piece
    ) -> Iterator[dict[str, Any]]:
        runs = tuple(CONNECTOR.runs(piece.extent, reader.config.run_bytes))
        wanted = stretch(piece, runs, part.consumer)
        extent = piece.extent
        end = extent.offset + extent.size_bytes
        load = Load(piece.ledger, extent, runs, extent.offset, end)
        stream = begin(self._lake.storage(), load)
        for index, raw in enumerate(fetch(CONNECTOR, load, stream)):
            if wanted and wanted.start <= index < wanted.stop:
                for batch in CONNECTOR.decode(piece.ledger, raw, 1 << 20).batches:
                    yield from batch.to_pylist()


@pytest.fixture
def table(lake: Lake) -> Table:
    return Table(lake)


def batches(reader: ChangeReader, start: Any = None) -> list[Any]:
    """Return the offsets up to where there is nothing more."""
    offsets = [reader.initialOffset() if start is None else start]
    limit = reader.getDefaultReadLimit()
    while (end := reader.latestOffset(offsets[-1], limit)) != offsets[-1]:
        offsets.append(end)
    return offsets


def test_all_rows_there_are_then_what_is_added(table: Table) -> None:
    first = table.appends(2)
    reader = table.stream()
    start, end = batches(reader)
    table_id = str(table.now.metadata().id)
    assert start == {
        "t": {"table": table_id, "version": 1, "files": 0, "snapshot": True}
    }
    assert end == {"t": {"table": table_id, "version": 2, "files": 0}}
    assert sorted(table.ids(reader, start, end)) == first
    assert batches(reader, end) == [end]
    more = table.appends(2)
    _, later = batches(reader, end)
    assert table.ids(reader, end, later) == more
    assert table.ids(table.stream(), end, later) == more
    assert reader.reportLatestOffset() == later
    assert reader.partitions(later, later) == []


@pytest.mark.parametrize(
    ("version", "first"), [("0", 0), ("2", 20), ("latest", 30), ("LATEST ", 30)]
)
def test_a_start_is_kept_to(table: Table, version: str, first: int) -> None:
    table.appends(3)
    reader = table.stream(startingVersion=version)
    start = reader.initialOffset()
    table.append()
    (*_, end) = batches(reader, start)
    assert sorted(table.ids(reader, start, end)) == list(range(first, 40))


def test_a_start_by_time(table: Table) -> None:
    table.appends(3)
    for version, path in enumerate(table.log):
        written = re.sub(
            r'"timestamp":\d+',
            f'"timestamp":{1_780_000_000 + version}000',
            path.read_text(),
        )
        path.write_text(written)
        os.utime(path, (1_780_000_000 + version, 1_780_000_000 + version))
    first = datetime.fromtimestamp(1_780_000_000, UTC)
    for after_ms, version in ((-1, 0), (0, 0), (1, 1), (1000, 1), (1500, 2), (2001, 3)):
        time = first + timedelta(milliseconds=after_ms)
        start = table.stream(startingTimestamp=time.isoformat()).initialOffset()["t"]
        assert start == {**start, "version": version, "files": 0}, after_ms
    early = table.stream(startingTimestamp="2001-01-01").initialOffset()
    assert early["t"] == {**early["t"], "version": 0, "files": 0}


@pytest.mark.parametrize(
    "limit",
    [
        {"maxRowsPerTrigger": "25"},
        {"maxRowsPerTrigger": "1"},
        {"maxBytesPerTrigger": "1"},
        {"maxRowsPerTrigger": "30", "maxBytesPerTrigger": "1m"},
    ],
    ids=str,
)
@pytest.mark.parametrize("start", [{}, {"startingVersion": "0"}], ids=str)
def test_limited_batches_read_each_file_once(
    table: Table, limit: dict[str, str], start: dict[str, str]
) -> None:
    expected = table.appends(7)
    offsets = batches(table.stream(**limit, **start))
    most = max(int(limit.get("maxRowsPerTrigger", "1")), ROWS)
    found = []
    for begin_, end in pairwise(offsets):
        ids = table.ids(table.stream(), begin_, end)  # as if it had been restarted
        assert 0 < len(ids) <= most
        found += ids
    assert sorted(found) == expected
    assert len(offsets) - 1 == -(-7 // (most // ROWS))
    assert len(batches(table.stream(**start))) == 2


def test_a_limited_stream_goes_on_where_it_was(table: Table) -> None:
    """Restarted after each batch, while others append: each row once."""
    expected = table.appends(3)
    offset = table.stream().initialOffset()
    found: list[int] = []
    for _ in range(6):
        reader = table.stream(maxRowsPerTrigger="10")
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        found += table.ids(reader, offset, end)
        offset = end
        expected += table.append()
    reader = table.stream()
    for start, end in pairwise(batches(reader, offset)):
        found += table.ids(reader, start, end)
    assert sorted(found) == expected


def test_now_is_when_the_query_began(table: Table) -> None:
    expected = table.appends(2)
    reader = table.stream()
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    table.append()
    start, end = batches(reader, start)
    assert sorted(table.ids(reader, start, end)) == expected
    again = table.stream()
    again.prepareForTriggerAvailableNow()
    assert len(batches(again, end)) == 2
    assert len(batches(again, batches(again, end)[-1])) == 1


def test_a_commit_between_looking_and_beginning(table: Table) -> None:
    table.append()
    reader = table.stream()
    reader.prepareForTriggerAvailableNow()
    table.append()
    start, end = batches(reader)
    assert len(table.ids(reader, start, end)) == 2 * ROWS


def test_rewritten_rows_are_not_new(table: Table) -> None:
    expected = table.appends(3)
    reader = table.stream(startingVersion="0")
    start = reader.initialOffset()
    (*_, end) = batches(reader, start)
    assert table.now.optimize.compact()["numFilesAdded"] == 1
    *_, optimized = batches(reader, end)
    assert table.ids(reader, end, optimized) == []
    # What it has replaced is read from the files that were there.
    assert sorted(table.ids(table.stream(), start, optimized)) == expected
    more = table.append()
    *_, last = batches(reader, optimized)
    assert table.ids(reader, optimized, last) == more
    fresh = table.stream()
    assert sorted(table.ids(fresh, *batches(fresh))) == expected + more


def test_rows_that_are_taken_away_end_a_stream(table: Table) -> None:
    table.appends(2)
    reader = table.stream()
    *_, end = batches(reader)
    table.now.delete("id = 3")
    table.append()
    says = r"found version 2, which changes some; skipChangeCommits=true"
    with pytest.raises(SourceError, match=says):
        reader.latestOffset(end, ALL)
    with pytest.raises(SourceError, match=says):
        table.stream(ignoreDeletes="true").latestOffset(end, ALL)
    skipping = table.stream(skipChangeCommits="true")
    *_, last = batches(skipping, end)
    assert table.ids(skipping, end, last) == list(range(20, 30))


def test_whole_files_that_are_deleted(table: Table) -> None:
    table.appends(2)
    reader = table.stream(startingVersion="0")
    start = reader.initialOffset()
    table.now.delete("id < 10")
    with pytest.raises(SourceError, match=r"deletes some;.*ignoreDeletes=true"):
        reader.latestOffset(start, ALL)
    ignoring = table.stream(ignoreDeletes="true")
    *_, end = batches(ignoring, start)
    assert sorted(table.ids(ignoring, start, end)) == list(range(20))


def test_a_file_that_was_vacuumed_before_it_was_read(table: Table) -> None:
    table.appends(2)
    reader = table.stream(startingVersion="0")
    start, end = batches(reader)
    table.now.optimize.compact()
    table.now.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    says = "of version 0, which a stream has still.*begin anew, with another checkpoint"
    with pytest.raises(SourceError, match=says):
        table.stream().partitions(start, end)
    with pytest.raises(SourceError, match=says):
        table.stream().latestOffset(start, ALL)
    fresh = table.stream()
    assert len(table.ids(fresh, *batches(fresh))) == 2 * ROWS


def test_a_log_that_was_trimmed(table: Table) -> None:
    table.appends(2)
    reader = table.stream(startingVersion="0")
    start = reader.initialOffset()
    _, end = batches(reader, start)
    table.now.create_checkpoint()
    table.log[0].unlink()
    more = table.append()
    says = r"00\.json: expected the commit with which.* if the table's log was trimmed"
    with pytest.raises(SourceError, match=says):
        table.stream().latestOffset(start, ALL)
    *_, last = batches(table.stream(), end)
    assert table.ids(table.stream(), end, last) == more


def test_a_log_that_was_trimmed_before_all_rows_were_read(table: Table) -> None:
    table.appends(2)
    _, first, _ = batches(table.stream(maxRowsPerTrigger="10"))
    table.append()
    table.now.create_checkpoint()
    table.log[0].unlink()
    says = "version 1, with which a stream goes on.*begin anew, with another"
    with pytest.raises(SourceError, match=says):  # as it builds on version 0
        table.stream().latestOffset(first, ALL)
    table.log[0].unlink()
    with pytest.raises(SourceError, match=says):
        table.stream().latestOffset(first, ALL)
    with pytest.raises(ConfigError, match="versionAsOf='1': not a version of"):
        table.stream(versionAsOf="1")


def test_credentials_that_end_while_a_stream_waits(lake: Lake, table: Table) -> None:
    table.appends(2)
    with S3Server() as server, server.as_environment():
        _put(server, lake)
        reader = table.stream(startingVersion="0", path="s3://lake")
        _, end = batches(reader)
        table.append()
        _put(server, lake)
        server.fail("_delta_log", status=400, code="ExpiredToken")
        _, last = batches(reader, end)
        assert last["t"]["version"] == 3
        server.refuse("_delta_log")
        with pytest.raises(SourceError):
            reader.latestOffset(last, ALL)


def _put(server: S3Server, lake: Lake) -> None:
    server.create_bucket("lake")
    for path in sorted(lake.directory.rglob("*.*")):
        key = path.relative_to(lake.directory).as_posix()
        server.put("lake", key, path.read_bytes())


def test_another_table_in_its_place(table: Table, lake: Lake) -> None:
    table.appends(2)
    _, end = batches(table.stream())
    table.path.rename(lake.directory / "old")
    table.appends(3)
    with pytest.raises(SourceError, match="begin anew, with another checkpoint"):
        table.stream().latestOffset(end, ALL)


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        ({"orders": {"table": "a", "version": 1, "files": 0}}, "means another topic"),
        ({"t": {"3": 24}}, "{'3': 24}, which is none of a table"),
        ({"t": {"table": "a", "version": "x", "files": 0}}, "which is none of a table"),
        ({"t": 23}, "23, which is none of a table"),
        ({}, "the offset {}, and option topic='t' means another topic"),
    ],
    ids=str,
)
def test_a_checkpoint_of_another_source(table: Table, offset: Any, says: str) -> None:
    table.append()
    for planned in (
        lambda: table.stream().latestOffset(offset, ALL),
        lambda: table.stream().partitions(offset, {**offset, "t": None}),
    ):
        with pytest.raises(ConfigError, match=f"{says}.*another checkpointLocation"):
            planned()


def test_a_checkpoint_of_what_has_a_name_and_a_table_without(table: Table) -> None:
    table.append()
    reader = table.stream(path=str(table.path), topic="")
    says = rf"and file://{table.path} means another topic: .* the path and options"
    with pytest.raises(ConfigError, match=says):
        reader.latestOffset({"t": {"table": "a", "version": 1, "files": 0}}, ALL)


def test_columns_that_are_added_later(table: Table) -> None:
    table.append()
    reader = table.stream()
    chosen = table.stream(columns="id")
    _, end = batches(reader)
    table.append(shop="eu")
    with pytest.raises(SourceError, match=r"others in version 1: shop; load the table"):
        reader.latestOffset(end, ALL)
    for fits in (chosen, table.stream()):
        _, last = batches(fits, end)
        assert table.ids(fits, end, last) == list(range(10, 20))


def test_columns_that_are_gone_since(table: Table) -> None:
    table.append(shop="eu")
    start = table.stream(startingVersion="0").initialOffset()
    rows = pa.table({"id": range(5)})
    write_deltalake(table.path, rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SourceError, match=r"others in version 0: shop; begin with"):
        table.stream(skipChangeCommits="true").latestOffset(start, ALL)
    kept = table.stream(skipChangeCommits="true", columns="id")
    *_, last = batches(kept, start)
    assert table.ids(kept, start, last) == list(range(10))


class MappedTable:
    """A table of one row in each file, whose columns have other names in files."""

    def __init__(self, lake: Lake) -> None:
        self._path = lake.directory / "t"
        self._commits = count()
        (self._path / "_delta_log").mkdir(parents=True)

    def commit(self, names: dict[str, str], *, days: str = "", takes: str = "") -> None:
        """Commit columns by their names in files, files of days, and removals."""
        actions: list[dict[str, Any]] = [
            {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
            {"metaData": self._columns(names)},
            *({"add": self._file(day)} for day in days),
            *({"remove": {"path": day, "dataChange": False}} for day in takes),
        ]
        log = self._path / "_delta_log" / f"{next(self._commits):020}.json"
        log.write_text("\n".join(map(json.dumps, actions)))

    def _columns(self, names: dict[str, str]) -> dict[str, Any]:
        fields = [
            {
                "name": name,
                "type": "string",
                "nullable": True,
                "metadata": {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": stored,
                },
            }
            for number, (stored, name) in enumerate(names.items(), start=1)
        ]
        return {
            "id": "one",
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [names["c1"]],
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "configuration": {
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": "9",
            },
        }

    def _file(self, day: str) -> dict[str, Any]:
        row = {"c2": f"b{day}", "c3": f"c{day}"}
        pq.write_table(pa.table({name: [row[name]] for name in row}), self._path / day)
        none = dict.fromkeys(row, 0)
        stats = {"numRecords": 1, "minValues": row, "maxValues": row, "nullCount": none}
        return {
            "path": day,
            "partitionValues": {"c1": day},
            "size": (self._path / day).stat().st_size,
            "modificationTime": int(day),
            "dataChange": True,
            "stats": json.dumps(stats),
        }


def test_columns_that_are_called_otherwise_since(table: Table, lake: Lake) -> None:
    """What was known of a file by its columns' old names, is known by the new ones."""
    mapped = MappedTable(lake)
    mapped.commit({"c1": "day", "c2": "b", "c3": "c"}, days="12")
    reader = table.stream(maxRowsPerTrigger="1")
    (start, first, *_) = batches(reader)
    mapped.commit({"c1": "date", "c2": "c", "c3": "b"}, days="3")
    mapped.commit({"c1": "date", "c2": "c", "c3": "b"}, takes="3")
    with pytest.raises(SourceError, match="others in version 1: b, c, date; load"):
        reader.latestOffset(first, ALL)
    row = {"c": "b2", "b": "c2", "date": "2"}
    later = {"c": "b3", "b": "c3", "date": "3"}
    for where, expected in (
        ("", [row, later]),
        ("date = '3'", [later]),
        ("b >= 'c2' and c < 'b3'", [row]),
        ("date != '1'", [row, later]),
    ):
        again = table.stream(where=where)
        (_, end) = batches(again, first)
        assert table.rows(again, first, end) == expected
    assert start != first


def test_rows_that_are_wanted(table: Table) -> None:
    table.appends(3)
    reader = table.stream(where="id >= 20", startingVersion="0")
    start, end = batches(reader)
    assert table.ids(reader, start, end) == list(range(20, 30))
    nothing = table.stream(where="id > 99", startingVersion="0")
    start, end = batches(nothing)
    assert nothing.partitions(start, end) == []


def test_a_partition_is_as_large_however_many_files_a_batch_has(table: Table) -> None:
    sizes = []
    for _ in range(2):
        table.appends(10)
        reader = table.stream(partitionBytes="1k")
        parts = reader.partitions(*batches(reader))
        sizes.append((len(parts), len(pickle.dumps(parts[0]))))
    (few, before), (many, after) = sizes
    assert many == 2 * few
    assert after < 1.05 * before


def test_streams_and_scans_share_runs(table: Table, lake: Lake) -> None:
    table.appends(3)
    reader = table.stream(startingVersion="1")
    parts = reader.partitions(*batches(reader))
    of_stream = {
        (piece.ledger, piece.extent)
        for part in parts
        for piece in part.partition.pieces
    }
    of_scan = {
        (of.ledger, extent)
        for of in lake.snapshot("t").ledgers
        for extent in of.extents
    }
    assert len(of_stream) == 2
    assert of_stream < of_scan
    (consumer,) = parts[0].stream.consumers
    assert consumer.start is not None
    assert consumer.start.ledger == min(ledger.id for ledger, _ in of_stream)
    assert consumer.end is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingVersion": "7"}, "option startingVersion=7: the newest version of"),
        ({"startingVersion": "x"}, "must be the number of a version"),
        ({"startingTimestamp": "2999-01-01"}, "is yet to come"),
        ({"startingTimestamp": "soon"}, "option startingTimestamp='soon': must be"),
        ({"startingVersion": "0", "startingTimestamp": "2026-01-01"}, "give one of"),
        ({"versionAsOf": "0"}, "option versionAsOf: a stream goes on with the table"),
        ({"timestampAsOf": "2999-01-01"}, "is yet to come"),
        ({"startingOffsets": "latest"}, "option startingOffsets='latest': a table"),
        ({"skipChangeCommits": "perhaps"}, "option skipChangeCommits='perhaps'"),
    ],
)
def test_wrong_options(table: Table, options: dict[str, str], says: str) -> None:
    table.append()
    with pytest.raises(ConfigError, match=says):
        table.stream(**options).initialOffset()


def test_what_has_no_streams(lake: Lake, table: Table) -> None:
    (lake.directory / "t").mkdir()
    pq.write_table(pa.table({"id": [1]}), lake.directory / "t" / "a.parquet")
    with pytest.raises(ConfigError, match="no Delta table but a folder"):
        table.stream().initialOffset()
    given = {"path": str(lake.directory), "topic": "t", "connector": "delta"}
    source = SparkCacheSource({**given, "startingVersion": "0"})
    with pytest.raises(ConfigError, match=r"startingVersion='0'.*spark\.readStream"):
        source.reader(source.schema())


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("earlier", "now", "is_lost"),
    [
        (pa.int32(), pa.int64(), False),
        (pa.int64(), pa.int32(), True),
        (pa.int32(), pa.float64(), False),
        (pa.int64(), pa.float64(), True),
        (pa.int64(), pa.string(), True),
        (pa.float32(), pa.float64(), False),
        (pa.int32(), pa.decimal128(12, 2), False),
        (pa.int32(), pa.decimal128(11, 2), True),
        (pa.decimal128(5, 2), pa.decimal128(7, 4), False),
        (pa.decimal128(5, 2), pa.decimal128(6, 4), True),
        (pa.date32(), pa.timestamp("us"), False),
        (pa.date32(), pa.timestamp("us", "UTC"), True),
        (pa.list_(pa.int16()), pa.list_(pa.int32()), False),
        (struct(a=pa.int8()), struct(a=pa.int8(), b=pa.int8()), False),
        (struct(a=pa.int8(), b=pa.int8()), struct(a=pa.int8()), True),
        (pa.map_(pa.int8(), pa.int8()), pa.map_(pa.int8(), pa.int16()), False),
        (pa.map_(pa.int16(), pa.int8()), pa.map_(pa.int8(), pa.int8()), True),
    ],
    ids=str,
)
def test_columns_that_have_become_others(
    earlier: pa.DataType, now: pa.DataType, is_lost: bool
) -> None:
    before, after = pa.schema([("a", earlier)]), pa.schema([("a", now)])
    assert lost(after, before, are_all=True) == ("a" if is_lost else "")
    assert changed(after, before, are_all=True) == "a"
    assert changed(after, after, are_all=True) == ""
