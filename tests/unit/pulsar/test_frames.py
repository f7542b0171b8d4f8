"""Cutting a block into runs: by arithmetic, and while its bytes arrive."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache.model import Extent, Ledger, ObjectId, Run
from sparkcache_pulsar import frames
from sparkcache_pulsar.testing import ledger_objects

from .topics import TOPIC

if TYPE_CHECKING:
    from sparkcache.connector import RawRun


@pytest.mark.parametrize(
    ("extent", "run_bytes", "runs"),
    [
        pytest.param(Extent(0, 9, 0, 1000), 1000, [(0, 9)], id="all in one"),
        pytest.param(
            Extent(0, 9, 0, 1000),
            300,
            [(0, 2), (3, 5), (6, 8), (9, 9)],
            id="less in the last",
        ),
        pytest.param(
            Extent(0, 9, 0, 1000), 301, [(0, 3), (4, 7), (8, 9)], id="rounded up"
        ),
        pytest.param(Extent(5, 7, 0, 1000), 1, [(5, 5), (6, 6), (7, 7)], id="one each"),
        pytest.param(Extent(5, 7, 0, 1000), 1 << 40, [(5, 7)], id="larger than it is"),
    ],
)
def test_runs(extent: Extent, run_bytes: int, runs: list[tuple[int, int]]) -> None:
    assert frames.runs(extent, run_bytes) == [Run(*run) for run in runs]


@dataclass
class Stream:
    """Bytes in chunks of given sizes, again and again; counts what was asked for."""

    data: bytes
    position: int = 0
    chunks: tuple[int, ...] = (1 << 30,)
    end: int = 1 << 62
    reads: list[int] = field(default_factory=list)

    def read(self, size_bytes: int) -> bytes:
        assert self.position + size_bytes <= self.end, "read past the extent"
        self.reads.append(size_bytes)
        size_bytes = min(size_bytes, self.chunks[len(self.reads) % len(self.chunks)])
        chunk = self.data[self.position : self.position + size_bytes]
        self.position += len(chunk)
        return chunk

    def close(self) -> None:
        pass


def block(entries: list[bytes], max_block_bytes: int = 1 << 20) -> tuple[bytes, Extent]:
    """A data object that is one block."""
    data = ledger_objects(TOPIC, 7, entries, max_block_bytes=max_block_bytes)[0].data
    return data, Extent(0, len(entries) - 1, 0, len(data))


def ledger(data: bytes) -> Ledger:
    return Ledger("pulsar", f"memory://b#{TOPIC}", 7, ObjectId("u", len(data), "1"))


def cut(data: bytes, extent: Extent, runs: list[Run], stream: Stream) -> list[RawRun]:
    stream.end = extent.offset + extent.size_bytes
    return list(frames.split(ledger(data), extent, runs, stream))


ENTRIES = [b"a" * 10, b"", b"c" * 100, b"d", b"e" * 50]
DATA, EXTENT = block(ENTRIES)
RUNS = [Run(0, 1), Run(2, 3), Run(4, 4)]
FRAMES = [struct.pack(">iq", len(entry), i) + entry for i, entry in enumerate(ENTRIES)]


@given(st.lists(st.integers(1, 200), min_size=1, max_size=5).map(tuple))
def test_runs_are_cut_wherever_chunks_end(chunks: tuple[int, ...]) -> None:
    raws = cut(DATA, EXTENT, RUNS, Stream(DATA, chunks=chunks))
    assert [raw.run for raw in raws] == RUNS
    assert [bytes(raw.data) for raw in raws] == [
        FRAMES[0] + FRAMES[1],
        FRAMES[2] + FRAMES[3],
        FRAMES[4],
    ]
    assert [DATA[raw.offset :][: len(raw.data)] for raw in raws] == [
        bytes(raw.data) for raw in raws
    ]
    assert not any(raw.losses for raw in raws)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_pass_may_begin_at_any_run(start: int) -> None:
    whole = cut(DATA, EXTENT, RUNS, Stream(DATA))
    stream = Stream(DATA, whole[start].offset)
    assert cut(DATA, EXTENT, RUNS[start:], stream) == whole[start:]


def test_a_run_is_yielded_before_the_next_one_has_come() -> None:
    stream = Stream(DATA, chunks=(1,))
    first = next(frames.split(ledger(DATA), EXTENT, RUNS, stream))
    assert stream.position == first.offset + len(first.data)


def test_runs_of_one_entry_do_not_copy_the_buffer_again_and_again() -> None:
    entries = [b"x" * 100] * 10_000
    data, extent = block(entries, 2 << 20)
    raws = cut(data, extent, frames.runs(extent, 1), Stream(data))
    buffers = {id(raw.data.obj) for raw in raws if isinstance(raw.data, memoryview)}
    assert len(buffers) <= 3


@pytest.mark.parametrize("padding", range(6))
def test_padding_may_have_any_length(padding: int) -> None:
    size = 128 + 2 * (12 + 10) + padding
    data = ledger_objects(TOPIC, 7, [b"x" * 10] * 4, max_block_bytes=size)[0].data
    assert len(data) == 2 * 128 + 4 * 22 + padding
    for extent in (
        Extent(0, 1, 0, size),
        Extent(2, 3, size, len(data) - size),
    ):
        runs = frames.runs(extent, 30)
        raws = cut(data, extent, runs, Stream(data, extent.offset))
        assert [bytes(raw.data[12:]) for raw in raws] == [b"x" * 10] * 2


def damaged(at: int, new: bytes) -> bytes:
    return DATA[:at] + new + DATA[at + len(new) :]


THIRD = 128 + len(FRAMES[0]) + len(FRAMES[1])


@pytest.mark.parametrize(
    ("data", "first_lost", "message"),
    [
        pytest.param(damaged(0, b"\0"), 0, "a block header 0xfbdbabcb", id="magic"),
        pytest.param(damaged(11, b"\0"), 0, "a block header", id="header length"),
        pytest.param(damaged(19, b"\0"), 0, "a block header", id="block length"),
        pytest.param(damaged(27, b"\1"), 0, "from entry 1", id="first entry"),
        pytest.param(DATA[:100], 0, "found 100 bytes", id="no whole header"),
        pytest.param(
            damaged(THIRD, b"\x7f\xff\xff\xff"), 2, "of 2147483647 bytes", id="too long"
        ),
        pytest.param(
            damaged(THIRD, b"\xff\xff\xff\xff"), 2, "of -1 bytes", id="negative"
        ),
        pytest.param(
            damaged(THIRD, frames.PADDING * 4), 2, "found padding", id="padding"
        ),
        pytest.param(
            damaged(THIRD + 11, b"\7"), 2, "a frame of entry 7", id="wrong id"
        ),
        pytest.param(
            damaged(THIRD + 3, b"\0"), 3, "expected a frame of entry 3", id="too short"
        ),
        pytest.param(DATA[:-51], 4, "found the end of the data", id="data too short"),
        pytest.param(DATA[:-1], 4, "found the end of the data", id="by one byte"),
    ],
)
def test_what_follows_a_fault_is_lost(
    data: bytes, first_lost: int, message: str
) -> None:
    raws = cut(data, EXTENT, RUNS, Stream(data, chunks=(13,)))
    assert [raw.run for raw in raws] == RUNS
    found = b"".join(raw.data for raw in raws)
    lost = [
        entry
        for raw in raws
        for loss in raw.losses
        for entry in range(loss.first, loss.last + 1)
    ]
    assert lost == list(range(first_lost, 5))
    assert all(message in str(loss) for raw in raws for loss in raw.losses)
    if message != "expected a frame of entry 3":
        assert found == b"".join(FRAMES[:first_lost])


def test_losses_name_the_place() -> None:
    data = damaged(THIRD + 11, b"\7")
    _, raw, last = cut(data, EXTENT, RUNS, Stream(data))
    (loss,) = raw.losses
    assert (loss.uri, loss.offset, loss.ledger) == ("u", THIRD, 7)
    assert last.losses[0].offset == THIRD


@given(
    st.integers(0, len(DATA) - 1),
    st.binary(min_size=1, max_size=16),
    st.integers(1, 300),
)
def test_any_damage_leaves_every_entry_cut_out_or_lost(
    at: int, new: bytes, run_bytes: int
) -> None:
    data = damaged(at, new)[: len(DATA)]
    runs = frames.runs(EXTENT, run_bytes)
    raws = cut(data, EXTENT, runs, Stream(data, chunks=(50,)))
    assert [raw.run for raw in raws] == runs
    for raw in raws:
        walk = frames.Walk(raw.run.first)
        walk.advance(raw.data, raw.run.last, len(raw.data))
        lost = sum(loss.last - loss.first + 1 for loss in raw.losses)
        assert len(walk.starts) + lost == raw.run.last - raw.run.first + 1
