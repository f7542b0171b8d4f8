"""What batches of a stream of a table cost: requests, as an S3 server counts them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.errors import SourceError
from sparkcache.testing.s3_server import S3Server
from sparkcache_delta.footers import AT_ONCE
from tests.unit.delta.streamed_table import ROWS, Table, batches
from tests.unit.delta.vector_table import VectorTable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sparkcache.source.streaming.change_reader import ChangeReader
    from tests.unit.delta.lake import Lake


class StoredTable:
    """A table in a directory and, as it was last put there, on a server."""

    def __init__(self, lake: Lake, table: Table, server: S3Server) -> None:
        self.table = table
        self._root = lake.directory
        self._prefix = lake.directory.parent.name
        self._server = server
        self._put: set[Path] = set()

    def put(self) -> None:
        """Store what is new, and count from then on."""
        for path in sorted(set(self._root.rglob("*.*")) - self._put):
            key = f"{self._prefix}/{path.relative_to(self._root).as_posix()}"
            self._server.put("lake", key, path.read_bytes())
            self._put.add(path)
        self._server.forget()

    def stream(self, **options: str) -> ChangeReader:
        return self.table.stream(path=f"s3://lake/{self._prefix}", **options)

    def gets(self, *endings: str) -> list[int]:
        """Return how often files of names were read since that was asked last."""
        counts = self._server.counts()
        self._server.forget()
        return [
            sum(of.gets for key, of in counts.items() if key.endswith(ending))
            for ending in endings
        ]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server, server.as_environment():
        server.create_bucket("lake")
        yield server


@pytest.fixture
def stored(lake: Lake, table: Table, server: S3Server) -> StoredTable:
    return StoredTable(lake, table, server)


def limited(reader: ChangeReader, start: Any) -> Any:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_a_batch_that_is_read_again_reads_footers_of_its_own_files(
    stored: StoredTable,
) -> None:
    files = AT_ONCE + 4
    stored.table.appends(files)
    stored.put()
    reader = stored.stream(maxRowsPerTrigger="1")
    offset = reader.initialOffset()
    start, end = offset, limited(reader, offset)
    assert end["t"]["files"] == 1
    assert stored.gets(".parquet") == [AT_ONCE]
    again = stored.stream(maxRowsPerTrigger="1")
    assert len(again.partitions(start, end)) == 1
    assert stored.gets(".parquet") == [1]
    assert len(again.partitions(start, end)) == 1
    assert stored.gets(".parquet") == [0]
    offsets = [end]
    while (end := limited(again, offsets[-1])) != offsets[-1]:
        offsets.append(end)
    assert len(offsets) == files
    assert stored.gets(".parquet") == [files - 1]
    assert again.reportLatestOffset() == end


def test_a_stream_goes_on_where_footers_could_not_be_read(
    stored: StoredTable, server: S3Server
) -> None:
    expected = stored.table.appends(3)
    stored.put()
    reader = stored.stream(maxRowsPerTrigger=str(ROWS))
    start = reader.initialOffset()
    server.refuse(".parquet")
    with pytest.raises(SourceError, match="of version 2, which the stream still has"):
        limited(reader, start)
    server.heal()
    offsets = batches(reader, start)
    assert len(offsets) == len(expected) // ROWS + 1


def test_files_that_are_looked_up_later_are_planned_with_the_first(
    table: Table,
) -> None:
    """A file that was written before others may be committed after them."""
    table.appends(AT_ONCE + 1)
    reader = table.stream(maxRowsPerTrigger="1")
    start = reader.initialOffset()
    table.append()
    log = table.log[-1]
    log.write_text(
        re.sub('"modificationTime":[0-9]+', '"modificationTime":1', log.read_text())
    )
    (part,) = reader.partitions(start, limited(reader, start))
    (consumer,) = part.stream.consumers
    assert consumer.start is not None
    assert consumer.start.ledger >> 21 == 1
    assert part.partition.pieces[0].ledger.id >> 21 > 1


def test_a_commit_costs_what_it_has_added(stored: StoredTable) -> None:
    """Whatever the table had before: commits, and files with deletion vectors."""
    written = VectorTable(stored.table.path)
    for row in range(9):
        written.append([row])
    stored.put()
    reader = stored.stream()
    *_, end = batches(reader)
    (vectors,) = stored.gets(".bin")
    assert vectors == 9
    for _ in range(2):
        expected = written.append([], [])
        stored.put()
        start, end = end, limited(reader, end)
        assert end["t"]["version"] == start["t"]["version"] + 1
        vectors, commits, footers = stored.gets(".bin", ".json", ".parquet")
        assert (vectors, footers) == (0, 2)
        assert commits <= 5  # of more than ten there are
    assert stored.table.ids(stored.table.stream(), start, end) == expected


def test_rows_that_are_deleted_in_new_files(table: Table) -> None:
    """As where a commit restores files, or clones those of another table."""
    written = VectorTable(table.path)
    first = written.append([3], [])
    reader = table.stream()
    start, end = batches(reader)
    assert table.ids(reader, start, end) == first
    commits: list[tuple[list[int], ...]] = [([], [0, 9]), ([], []), ([5],)]
    for deleted in commits:
        expected = written.append(*deleted)
        start, end = batches(reader, end)
        assert table.ids(reader, start, end) == expected
