"""A task that loads for itself: which requests it makes, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import CacheConfig
from sparkcache.errors import SourceError
from sparkcache.fetch import RunSlice, Scan
from sparkcache.fetch.direct import DirectReader
from sparkcache.fetch.direct_load import DirectLoad
from sparkcache.model import Extent, Ledger, ObjectId, Run
from tests.unit.node.client_world import NumbersConnector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUNS = 4
CONFIG = CacheConfig()


@pytest.fixture
def scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scan:
    """Three slices of four runs of one byte."""
    monkeypatch.setattr("sparkcache.connector.find", lambda _: NumbersConnector())
    runs = tuple(Run(entry, entry) for entry in range(RUNS))
    slices = []
    for number in range(3):
        path = tmp_path / str(number)
        path.write_bytes(bytes(range(10 * number, 10 * number + RUNS)))
        ledger = Ledger("numbers", "t", number, ObjectId(path.as_uri(), RUNS, ""))
        slices.append(RunSlice(ledger, Extent(0, RUNS - 1, 0, RUNS), runs, 0, RUNS))
    root = tmp_path.as_uri()
    return Scan(root, CONFIG.storage, CONFIG.scan, tuple(slices))


@pytest.fixture
def reader(scan: Scan) -> Iterator[DirectReader]:
    reader = DirectReader(scan)
    yield reader
    reader.close()


def read(reader: DirectReader, at: int, *indexes: int) -> list[int]:
    runs = [reader.read(at, index).decoded for index in indexes]
    return [n for run in runs for batch in run.batches for n in batch[0].to_pylist()]


def requested_ahead(reader: DirectReader) -> int:
    """Return how many responses are ready, once all those are that were requested."""
    prepared = [future.result() for future in reader._opener._prepared.values()]
    assert all(stream.position == 0 for stream in prepared)
    return len(prepared)


def test_consecutive_runs_come_with_one_request(reader: DirectReader) -> None:
    assert read(reader, 0, 0, 1) == [0, 1]
    assert reader.spent().gets == 1


def test_a_run_that_is_not_the_next_one_is_requested_again(
    reader: DirectReader,
) -> None:
    assert read(reader, 0, 1, 0) == [1, 0]
    assert reader.spent().gets == 2


def test_the_next_slice_is_requested_before_the_present_one_ends(
    reader: DirectReader,
) -> None:
    read(reader, 0, 0, 1, 2, 3)
    assert requested_ahead(reader) == 1
    assert read(reader, 1, 0, 1) == [10, 11]
    assert reader.spent().gets == 2
    read(reader, 1, 2, 3)
    assert requested_ahead(reader) == 1
    assert reader.spent().gets == 1


def test_what_was_requested_ahead_of_a_reader_that_leaves_is_closed(
    reader: DirectReader,
) -> None:
    read(reader, 0, 0, 1, 2, 3)
    [stream] = [it.result() for it in reader._opener._prepared.values()]
    reader.close()
    assert stream.read(1) == b""


def test_nothing_is_requested_ahead_of_the_first_run(reader: DirectReader) -> None:
    reader.plan([DirectLoad(0, 0, 1, 0, 1, 0, 1), DirectLoad(1, 0, 1, 0, 1, 0, 1)])
    read(reader, 0, 0)
    assert reader.spent().gets == 1


def test_large_loads_are_requested_ahead_one_at_a_time(scan: Scan) -> None:
    large = Extent(0, RUNS - 1, 0, 1 << 30)
    slices = tuple(replace(part, extent=large) for part in scan.slices)
    reader = DirectReader(replace(scan, slices=slices))
    read(reader, 0, 0, 1, 2)
    assert "1 prepared" in repr(reader)
    reader.close()


def test_planned_loads_request_no_more_than_they_say(reader: DirectReader) -> None:
    reader.plan([DirectLoad(1, 2, 3, 2, 3, 2, 3), DirectLoad(2, 0, 1, 0, 1, 0, 1)])
    assert read(reader, 1, 2) == [12]
    assert read(reader, 2, 0) == [20]
    spent = reader.spent()
    assert (spent.gets, spent.received_bytes) == (2, 2)


def test_offsets_are_those_in_the_object(reader: DirectReader) -> None:
    assert [reader.read(0, index).offset for index in range(RUNS)] == [0, 1, 2, 3]


def test_a_request_ahead_that_fails_does_so_for_the_run_that_needs_it(
    scan: Scan, reader: DirectReader
) -> None:
    from pathlib import Path

    uri = scan.slices[1].ledger.object.uri
    Path(uri.removeprefix("file://")).unlink()
    assert read(reader, 0, 0, 1, 2, 3) == [0, 1, 2, 3]
    with pytest.raises(SourceError, match=uri):
        read(reader, 1, 0)
