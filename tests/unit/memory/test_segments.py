"""Segments of the ring: each side maps one once, and it is emptied when done with."""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sparkcache.connector import DecodedRun
from sparkcache.errors import CacheUnavailable
from sparkcache.memory.encoded import EncodedRun
from sparkcache.memory.segment import MappedSegments, WritableSegments
from sparkcache.memory.segments import Segments
from sparkcache.model import Loss, Segment, Slot

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.binary())])
LOSS = Loss("s3://bucket/key", 4096, 7, 3, 5, "a frame", "zeros")
FIRST = Segment(0, 1 << 20)
SECOND = Segment(1, 1 << 16)


def run_of(first: int, rows: int = 100, losses: tuple[Loss, ...] = ()) -> DecodedRun:
    columns = [pa.array(range(first, first + rows)), pa.array([b"x" * 100] * rows)]
    return DecodedRun([pa.record_batch(columns, schema=SCHEMA)], losses)


RUNS = (run_of(0), run_of(1000, losses=(LOSS,)), DecodedRun([]), run_of(7, rows=0))


class Peer:
    """Somebody."""


def nothing() -> None:
    """Nobody waits for the end."""


@pytest.fixture
def segments() -> Iterator[Segments]:
    segments = Segments()
    segments.create(FIRST)
    segments.create(SECOND)
    yield segments
    segments.close()


def mapped(segments: Segments, segment: Segment) -> MappedSegments:
    found = MappedSegments()
    fd = segments.to_read(segment, found)
    assert fd is not None
    found.add(segment.number, fd)
    return found


def write(segments: Segments, *runs: DecodedRun) -> list[Slot]:
    """Write runs one after the other into the first segment."""
    writer = WritableSegments()
    fd = segments.to_write(FIRST, writer)
    assert fd is not None
    writer.add(FIRST.number, fd)
    slots = []
    offset = 0
    for run in runs:
        encoded = EncodedRun(run, SCHEMA)
        writer.write(encoded, FIRST, offset)
        slots.append(Slot(-(-encoded.size_bytes // 64) * 64, FIRST, offset))
        offset += slots[-1].size_bytes
    return slots


def test_runs_come_back_as_they_were(segments: Segments) -> None:
    reader = mapped(segments, FIRST)
    slots = write(segments, *RUNS)
    for run, slot in zip(RUNS, slots, strict=True):
        found = reader.read(slot, nothing)
        assert (found.batches, found.losses) == (run.batches, run.losses)


def test_nothing_is_copied_and_the_release_of_each_run_is_reported(
    segments: Segments,
) -> None:
    reader = mapped(segments, FIRST)
    slots = write(segments, run_of(0), run_of(1000))
    released: list[int] = []
    before = pa.total_allocated_bytes()
    first = reader.read(slots[0], lambda: released.append(0))
    second = reader.read(slots[1], lambda: released.append(1))
    assert pa.total_allocated_bytes() - before < 1000
    column = first.batches[0].column(1).slice(10, 1)
    del first
    assert released == []
    del second
    assert released == [1]
    del column
    assert released == [1, 0]


def test_a_batch_outlives_segments_and_descriptors(segments: Segments) -> None:
    [slot] = write(segments, run_of(0))
    reader = mapped(segments, FIRST)
    found = reader.read(slot, nothing)
    fd = segments.to_read(FIRST, Peer())
    assert fd is not None
    del reader
    gc.collect()
    assert found.batches == run_of(0).batches


def test_a_reader_cannot_write_and_nobody_can_shrink_it(segments: Segments) -> None:
    writable, readable = (
        segments.to_write(FIRST, Peer()),
        segments.to_read(FIRST, Peer()),
    )
    assert writable is not None
    assert readable is not None
    with pytest.raises(PermissionError):
        mmap.mmap(readable, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(readable, b"x")
    for change in (
        lambda: os.ftruncate(writable, 0),
        lambda: os.ftruncate(writable, 2 << 20),
        lambda: fcntl.fcntl(writable, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
    ):
        with pytest.raises(PermissionError):
            change()


def test_each_side_gets_a_segment_once(segments: Segments) -> None:
    one, other = Peer(), Peer()
    assert not segments.is_known(FIRST, one)
    assert segments.to_read(FIRST, one) is not None
    assert segments.is_known(FIRST, one)
    assert segments.to_read(FIRST, one) is None
    assert segments.to_read(SECOND, one) is not None
    assert segments.to_read(FIRST, other) is not None
    segments.keep_only([1])
    segments.create(FIRST)
    assert segments.to_read(FIRST, one) is not None, "another one of that number"


def resident_bytes() -> int:
    """Of all memfds that this process maps."""
    found, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            is_ours = "memfd:sparkcache" in line
        elif is_ours and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


def test_memory_is_free_at_once_though_others_map_it(segments: Segments) -> None:
    reader = mapped(segments, FIRST)
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names
    runs = [run_of(0, rows=1000) for _ in range(8)]
    slots = write(segments, *runs)
    for slot in slots:
        reader.read(slot, nothing)
    assert resident_bytes() > 500_000
    assert segments.keep_only([1]) == (0,)
    assert resident_bytes() == 0
    assert segments.keep_only([1]) == ()
    assert (len(segments), segments.size_bytes) == (1, SECOND.size_bytes)
    assert len(set(os.listdir("/proc/self/fd")) - before) == 0  # noqa: PTH208


def test_what_readers_map_stays_when_the_node_ends(segments: Segments) -> None:
    [slot] = write(segments, run_of(0))
    found = mapped(segments, FIRST).read(slot, nothing)
    segments.close()
    assert found.batches == run_of(0).batches


@pytest.mark.parametrize(
    "slot",
    [
        pytest.param(Slot(64, SECOND, 0), id="in a segment it has not got"),
        pytest.param(Slot(64), id="in none"),
        pytest.param(Slot((1 << 20) + 64, FIRST, 0), id="larger than the segment"),
        pytest.param(Slot(64, FIRST, (1 << 20) - 63), id="beyond its end"),
        pytest.param(Slot(64, FIRST, -64), id="before its beginning"),
        pytest.param(Slot(0, FIRST, 0), id="of no bytes"),
        pytest.param(Slot(4096, FIRST, 512 << 10), id="where nothing was written"),
    ],
)
def test_a_missing_slot_is_an_error_and_is_released(
    segments: Segments, slot: Slot
) -> None:
    reader = mapped(segments, FIRST)
    released: list[str] = []
    with pytest.raises(CacheUnavailable):
        reader.read(slot, lambda: released.append("gone"))
    gc.collect()
    assert released == ["gone"]


def test_what_may_shrink_is_not_mapped() -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    with pytest.raises(CacheUnavailable, match="may shrink"):
        MappedSegments().add(0, fd)
    os.close(fd)


def test_a_segment_that_cannot_be_created_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> int:
        raise OSError(24, "Too many open files")

    segments = Segments()
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr("os.open", fail)
    with pytest.raises(OSError, match="Too many"):
        segments.create(FIRST)
    monkeypatch.undo()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert FIRST not in segments


def test_a_writer_forgets_segments_on_request(segments: Segments) -> None:
    writer = WritableSegments()
    fd = segments.to_write(FIRST, writer)
    assert fd is not None
    writer.add(FIRST.number, fd)
    maps = Path("/proc/self/maps")
    assert "memfd:sparkcache" in maps.read_text()
    writer.forget((FIRST.number, 99))
    assert "memfd:sparkcache" not in maps.read_text()
