"""What ends a stream of a table: rows taken away, files and commits that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.errors import ConfigError, SourceError
from sparkcache.testing.s3_server import S3Server
from tests.unit.delta.streamed_table import ALL, ROWS, Table, batches

if TYPE_CHECKING:
    from tests.unit.delta.lake import Lake


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
    says = r"found version 2, which changes rows; skipChangeCommits=true"
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
    with pytest.raises(SourceError, match=r"deletes rows;.*ignoreDeletes=true"):
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
    says = "of version 0, which the stream still has.*again with a new checkpoint"
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
    says = r"00\.json: expected the next commit.* if the table's log was trimmed"
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
    says = "version 1, which the stream reads next.*again with a new checkpoint"
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
    reader = table.stream()
    _, end = batches(reader)
    table.path.rename(lake.directory / "old")
    table.appends(3)
    for stream in reader, table.stream():
        with pytest.raises(
            SourceError, match="start the query again with a new checkpoint"
        ):
            stream.latestOffset(end, ALL)


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        ({"orders": {"table": "a", "version": 1, "files": 0}}, "means another topic"),
        ({"t": {"3": 24}}, "{'3': 24}, which is not an offset of a table"),
        (
            {"t": {"table": "a", "version": "x", "files": 0}},
            "which is not an offset of a table",
        ),
        ({"t": 23}, "23, which is not an offset of a table"),
        ({"t": {"version": 1, "reached": "x"}}, "'version': 1}, which is not an"),
        ({}, "the offset {}, and option topic='t' means another topic"),
    ],
    ids=str,
)
def test_a_checkpoint_of_another_source(table: Table, offset: Any, says: str) -> None:
    table.append()
    end: Any = {**offset, "t": None}
    for planned in (
        lambda: table.stream().latestOffset(offset, ALL),
        lambda: table.stream().partitions(offset, end),
    ):
        with pytest.raises(ConfigError, match=f"{says}.*another checkpointLocation"):
            planned()


def test_a_checkpoint_of_a_named_table_for_a_table_without_a_name(table: Table) -> None:
    table.append()
    reader = table.stream(path=str(table.path), topic="")
    says = rf"and file://{table.path} means another topic: .* the path and options"
    with pytest.raises(ConfigError, match=says):
        reader.latestOffset({"t": {"table": "a", "version": 1, "files": 0}}, ALL)
