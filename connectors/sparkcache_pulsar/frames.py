"""A data object: blocks of frames, cut into runs while its bytes arrive.

    block   header of 128 bytes, frames, padding FE DC DE AD FE DC ...
    header  magic 0xFBDBABCB int32, header length int64, block length int64,
            id of the first entry int64, zeros
    frame   length int32, entry id int64, that many bytes

All numbers are big-endian and signed. A frame lies in one block; ids are consecutive.
In the streaming format the magic is 0x26A66D32, and the ledger's id, int64, follows
that of the first entry. That magic is a length that a frame could have, so where a
block ends is known from the index, never from what follows it.

A length that is wrong would send us anywhere, and nothing marks the next frame. So
what lies behind a frame that is not as expected is lost up to the end of the block.

Source: BlockAwareSegmentInputStreamImpl, DataBlockHeaderImpl, BufferedOffloadStream and
StreamingDataBlockHeaderImpl of Apache Pulsar.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.connector import RawRun
from sparkcache.model import Loss, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.connector import ByteStream
    from sparkcache.model import Extent, Ledger

MAGIC = 0xFBDBABCB
STREAMING_MAGIC = 0x26A66D32
STREAMING = "streaming"
"""`Ledger.decoding` of ledgers in the streaming format."""

HEADER_BYTES = 128
FRAME_HEADER_BYTES = 12
PADDING = b"\xfe\xdc\xde\xad"
READ_BYTES = 1 << 20

_HEADER = struct.Struct(">Iqqq")
_STREAMING_HEADER = struct.Struct(">Iqqqq")
_FRAME = struct.Struct(">iq")

_PADDING, _END = "padding", "the end of the data"
_ENDS = (_PADDING, _END)


def runs(extent: Extent, run_bytes: int) -> list[Run]:
    """Cut an extent into runs of an equal number of entries; the last may have less.

    All we know of an entry's size is the average of its extent.
    """
    entries = extent.last - extent.first + 1
    step = max(1, -(-entries * run_bytes // extent.size_bytes))
    return [
        Run(first, min(first + step - 1, extent.last))
        for first in range(extent.first, extent.last + 1, step)
    ]


@dataclass(slots=True)
class Walk:
    """A way over consecutive frames, as far as it has got.

    Attributes:
        entry: Id of the entry whose frame comes next.
        at: Where that frame begins.
        starts: Where the frames passed begin.
        fault: What came instead of the next frame: expected, found.

    """

    entry: int
    at: int = 0
    starts: list[int] = field(default_factory=list)
    fault: tuple[str, str] | None = None

    def advance(
        self, data: bytes | bytearray | memoryview, last: int, room: int
    ) -> bool:
        """Pass over frames up to entry `last`; tell whether it, or a fault, was met.

        If not, `data` has ended before the frame did. `room` is how far, counted like
        `at`, frames may reach once all data has come.
        """
        at, entry, end = self.at, self.entry, len(data)
        unpack, append, done = _FRAME.unpack_from, self.starts.append, entry > last
        while not done and at + FRAME_HEADER_BYTES <= end:
            length, found = unpack(data, at)
            after = at + FRAME_HEADER_BYTES + length
            if found != entry or length < 0 or after > room:
                self.fault = _frame_fault(entry, length, found, room - at)
                break
            if after > end:
                break
            append(at)
            at = after
            done = entry == last
            entry += 1
        self.at, self.entry = at, entry
        return done or self.fault is not None


def last_entry(ledger: Ledger, extent: Extent, stream: ByteStream) -> int:
    """Return the last entry that really is in a block, read from its beginning.

    `extent.last` is the last that there may be. It is what is returned if the frames
    do not end as those of a sound block do: whoever reads it shall be told.
    """
    for raw in split(ledger, extent, runs(extent, READ_BYTES), stream):
        for loss in raw.losses:
            is_end = loss.found in _ENDS and loss.first > extent.first
            return loss.first - 1 if is_end else extent.last
    return extent.last


def split(
    ledger: Ledger, extent: Extent, wanted: Sequence[Run], stream: ByteStream
) -> Iterator[RawRun]:
    """Yield the frames of each run as soon as its last one is there."""
    return _Splitter(ledger, extent, stream).split(wanted)


class _Splitter:
    """The state of one pass over an extent: a buffer, and what of it is passed on."""

    def __init__(self, ledger: Ledger, extent: Extent, stream: ByteStream) -> None:
        self._ledger = ledger
        self._extent = extent
        self._stream = stream
        self._end = extent.offset + extent.size_bytes
        self._buffer = bytearray()
        self._passed = 0
        self._offset = stream.position  # of the first byte that is not passed on
        self._fault: tuple[str, str] | None = None

    def split(self, wanted: Sequence[Run]) -> Iterator[RawRun]:
        if self._offset == self._extent.offset:
            self._fault = self._pass_header()
        for run in wanted:
            yield self._cut(run)

    def _pass_header(self) -> tuple[str, str] | None:
        while len(self._buffer) < HEADER_BYTES:
            if not self._read():
                return "a block header", f"{len(self._buffer)} bytes"
        extent, header = self._extent, _HEADER
        expected: tuple[int, ...] = MAGIC, HEADER_BYTES, extent.size_bytes, extent.first
        if self._ledger.decoding == STREAMING:
            header = _STREAMING_HEADER
            expected = (STREAMING_MAGIC, *expected[1:], self._ledger.id)
        found = header.unpack_from(self._buffer)
        if found != expected:
            return _header_text(expected), _header_text(found)
        self._pass(HEADER_BYTES)
        return None

    def _cut(self, run: Run) -> RawRun:
        walk = Walk(run.first, fault=self._fault)
        while walk.fault is None and not self._advance(walk, run):
            if not self._read():
                walk.fault = f"entry {walk.entry}", _END
        offset, data = self._offset, self._pass(walk.at)
        if walk.fault is None:
            return RawRun(run, offset, data)
        self._fault = walk.fault
        place = self._ledger.object.uri, self._offset, self._ledger.id
        loss = Loss(*place, walk.entry, run.last, *walk.fault)
        return RawRun(run, offset, data, (loss,))

    def _advance(self, walk: Walk, run: Run) -> bool:
        # A view that were still open would keep the buffer from growing.
        with memoryview(self._buffer)[self._passed :] as data:
            return walk.advance(data, run.last, self._end - self._offset)

    def _pass(self, size_bytes: int) -> memoryview:
        start, self._passed = self._passed, self._passed + size_bytes
        self._offset += size_bytes
        return memoryview(self._buffer)[start : self._passed].toreadonly()

    def _read(self) -> bool:
        if self._passed:  # what was passed on are views of the old buffer
            self._buffer = self._buffer[self._passed :]
            self._passed = 0
        left = self._end - self._offset - len(self._buffer)
        chunk = self._stream.read(min(READ_BYTES, left)) if left > 0 else b""
        self._buffer += chunk
        return bool(chunk)


def _frame_fault(entry: int, length: int, found: int, room: int) -> tuple[str, str]:
    expected = f"a frame of entry {entry} of up to {room} bytes"
    if _FRAME.pack(length, found).startswith(PADDING):
        return expected, _PADDING
    return expected, f"a frame of entry {found} of {length} bytes"


def _header_text(header: tuple[int, ...]) -> str:
    magic, header_bytes, block_bytes, first, *ledger = header
    return (
        f"a block header {magic:#x} of {header_bytes} bytes for a block of "
        f"{block_bytes} bytes from entry {first}"
        + "".join(f" of ledger {number}" for number in ledger)
    )
