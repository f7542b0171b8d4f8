"""What the batches of a stream of a table are, while others write to it."""

from __future__ import annotations

import json
import os
import pickle
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from sparkcache.demand import Consumers
from sparkcache.errors import ConfigError
from sparkcache.model import Run, RunKey
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.streaming import change_offsets
from sparkcache.source.streaming.query_listener import reached
from tests.unit.delta.streamed_table import ROWS, Table, batches

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.delta.lake import Lake


def test_all_rows_there_are_then_what_is_added(table: Table) -> None:
    first = table.appends(2)
    reader = table.stream()
    start, end = batches(reader)
    table_id = str(table.now.metadata().id)
    assert start == {
        "t": {"table": table_id, "version": 1, "files": 0, "snapshot": True}
    }
    mark = {"table": table_id, "version": 2, "files": 0}
    reached = {"reached": str(change_offsets.reached(end)["t"])}
    assert end == {"t": {**mark, **reached, "since": start["t"]}}
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


def dated(table: Table) -> datetime:
    """Make a table's commits a second apart; return when the first one was."""
    for version, path in enumerate(table.log):
        written = re.sub(
            r'"timestamp":\d+',
            f'"timestamp":{1_780_000_000 + version}000',
            path.read_text(),
        )
        path.write_text(written)
        os.utime(path, (1_780_000_000 + version, 1_780_000_000 + version))
    return datetime.fromtimestamp(1_780_000_000, UTC)


def test_a_start_by_time(table: Table) -> None:
    table.appends(3)
    first = dated(table)
    for after_ms, version in ((-1, 0), (0, 0), (1, 1), (1000, 1), (1500, 2), (2001, 3)):
        time = first + timedelta(milliseconds=after_ms)
        start = table.stream(startingTimestamp=time.isoformat()).initialOffset()["t"]
        assert start == {**start, "version": version, "files": 0}, after_ms
    early = table.stream(startingTimestamp="2001-01-01").initialOffset()
    assert early["t"] == {**early["t"], "version": 0, "files": 0}


def test_a_stream_that_starts_by_time_goes_on_with_the_log_it_has(
    table: Table,
) -> None:
    table.appends(2)
    last = table.append()
    time = dated(table) + timedelta(milliseconds=1500)
    reader = table.stream(startingTimestamp=time.isoformat())
    start = reader.initialOffset()
    for path in table.log[:-1]:  # so that nobody can open it again
        path.unlink()
    start, end = batches(reader, start)
    assert table.ids(reader, start, end) == last


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


@pytest.mark.parametrize(
    "options",
    [{}, {"maxRowsPerTrigger": "10"}, {"startingVersion": "latest"}],
    ids=["all rows", "some", "none"],
)
def test_a_first_batch_that_is_read_again_after_commits(
    table: Table, options: dict[str, str]
) -> None:
    """As Spark does where it was planned and not committed: it asks where to begin."""
    expected = table.appends(2)
    reader = table.stream(**options)
    start, *_ = ends = batches(reader)
    if "startingVersion" in options:
        expected = []
    expected += table.appends(2)
    again = table.stream(**options)
    other = again.initialOffset()
    assert other != start
    assert table.ids(again, other, ends[1]) == table.ids(reader, start, ends[1])
    found = table.ids(again, other, ends[1])
    for begin_, end in pairwise(batches(again, ends[1])):
        found += table.ids(again, begin_, end)
    assert sorted(found) == expected


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


def test_rows_are_selected_by_where(table: Table) -> None:
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
        ({"startingTimestamp": "2999-01-01"}, "is in the future"),
        ({"startingTimestamp": "soon"}, "option startingTimestamp='soon': must be"),
        (
            {"startingVersion": "0", "startingTimestamp": "2026-01-01"},
            "use only one of",
        ),
        ({"versionAsOf": "0"}, "option versionAsOf: a stream follows all versions"),
        ({"timestampAsOf": "2999-01-01"}, "is after the newest version"),
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
    with pytest.raises(
        ConfigError, match="is a folder of Parquet files, not a Delta table"
    ):
        table.stream().initialOffset()
    given = {"path": str(lake.directory), "topic": "t", "connector": "delta"}
    source = SparkCacheSource({**given, "startingVersion": "0"})
    with pytest.raises(ConfigError, match=r"startingVersion='0'.*spark\.readStream"):
        source.reader(source.schema())


@pytest.mark.parametrize(
    "late_by_ms", [0, 10_000], ids=["in order", "the last file is the oldest"]
)
def test_nodes_wait_for_what_a_batch_has_left(table: Table, late_by_ms: int) -> None:
    table.appends(4)
    _antedate(table.log[-1], late_by_ms)
    reader = table.stream(startingVersion="0", maxRowsPerTrigger="10")
    offset = reader.initialOffset()
    keys, plans = [], []
    for _ in range(4):
        before, offset = offset, reader.latestOffset(offset, ReadMaxRows(10))
        (part,) = reader.partitions(before, offset)
        (piece,) = part.partition.pieces
        keys.append(RunKey(piece.ledger, Run(piece.extent.first, piece.extent.last)))
        plans.append(part.stream.remaining_after(reached([json.dumps(offset)])))
    assert reader.reportLatestOffset() == offset
    for read, plan in enumerate(plans, start=1):
        expected = [key for key in keys if Consumers(plan.consumers).reads(key)]
        assert not set(keys[read:]) - set(expected)
        if not late_by_ms or read == len(keys):
            assert expected == keys[read:]


def _antedate(commit: Path, by_ms: int) -> None:
    """Say that a commit's file was written that much earlier."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["modificationTime"] -= by_ms
    commit.write_text("\n".join(map(json.dumps, actions)))
