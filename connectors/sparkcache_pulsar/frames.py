"""Cut a data object, blocks of frames, into runs while its bytes arrive.

    block   header of 128 bytes, frames, padding FE DC DE AD FE DC ...
    header  magic 0xFBDBABCB int32, header length int64, block length int64,
            id of the first entry int64, zeros
    frame   length int32, entry id int64, that many bytes

All numbers are big-endian and signed. A frame never crosses blocks; ids are
consecutive. In the streaming format the magic is 0x26A66D32, and the ledger's id,
int64, follows the id of the first entry. That magic is also a valid length of a frame,
so the end of a block is known from the index, never from the bytes that follow it.

A wrong length would point anywhere, and no marker shows the next frame. So all frames
after an unexpected one are lost, up to the end of the block.

Source: BlockAwareSegmentInputStreamImpl, DataBlockHeaderImpl, BufferedOffloadStream and
StreamingDataBlockHeaderImpl of Apache Pulsar.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sparkcache.model import Run
from sparkcache_pulsar.decoding import Streaming, form_of
from sparkcache_pulsar.splitting import END, READ_BYTES, Splitter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.connector import ByteStream, RawRun
    from sparkcache.model import Extent, Ledger
    from sparkcache_pulsar.splitting import Buffer, Fault

MAGIC = 0xFBDBABCB
STREAMING_MAGIC = 0x26A66D32
HEADER_BYTES = 128
FRAME_HEADER_BYTES = 12
PADDING = b"\xfe\xdc\xde\xad"

_HEADER = struct.Struct(">Iqqq")
_STREAMING_HEADER = struct.Struct(">Iqqqq")
_FRAME = struct.Struct(">iq")

_PADDING = "padding"
_ENDS = (_PADDING, END)


def runs(extent: Extent, run_bytes: int) -> list[Run]:
    """Cut an extent into runs of equal entry counts; the last may have fewer.

    Only the average size of an extent's entries is known.
    """
    entries = extent.last - extent.first + 1
    step = max(1, -(-entries * run_bytes // extent.size_bytes))
    return [
        Run(first, min(first + step - 1, extent.last))
        for first in range(extent.first, extent.last + 1, step)
    ]


@dataclass(slots=True)
class Walk:
    """A walk over consecutive frames, and its progress.

    Attributes:
        entry: Id of the entry whose frame is next.
        offset: Start of that frame.
        starts: Starts of the frames already passed.
        fault: Why the walk stopped at the next frame: expected, found.

    """

    entry: int
    offset: int = 0
    starts: list[int] = field(default_factory=list)
    fault: Fault | None = None

    def advance(self, data: Buffer, last: int, room: int) -> bool:
        """Walk over frames up to entry `last`; see `splitting.Walk`."""
        offset, entry, end = self.offset, self.entry, len(data)
        unpack, append, done = _FRAME.unpack_from, self.starts.append, entry > last
        while not done and offset + FRAME_HEADER_BYTES <= end:
            length, found_entry = unpack(data, offset)
            after = offset + FRAME_HEADER_BYTES + length
            if found_entry != entry or length < 0 or after > room:
                self.fault = _frame_fault(entry, length, found_entry, room - offset)
                break
            if after > end:
                break
            append(offset)
            offset = after
            done = entry == last
            entry += 1
        self.offset, self.entry = offset, entry
        return done or self.fault is not None


def last_entry(ledger: Ledger, extent: Extent, stream: ByteStream) -> int | None:
    """Return the last entry that a block really has, by reading it from its start.

    `extent.last` is the last entry that the block may have. Returns None if the frames
    do not end as in a sound block, so that reading the block reports the loss.
    """
    for raw in split(ledger, extent, runs(extent, READ_BYTES), stream):
        for loss in raw.losses:
            is_end = loss.found in _ENDS and loss.first > extent.first
            return loss.first - 1 if is_end else None
    return extent.last


def split(
    ledger: Ledger, extent: Extent, wanted: Sequence[Run], stream: ByteStream
) -> Iterator[RawRun]:
    """Yield the frames of each run as soon as its last frame has arrived."""
    splitter = Splitter(ledger, extent, stream, Walk)
    if stream.position == extent.offset:
        splitter.pass_head(HEADER_BYTES, partial(_header_fault, ledger, extent))
    # Segments that overlap are truncated, so entries may follow their last extent.
    is_end = extent.offset + extent.size_bytes == ledger.object.size_bytes
    is_checked = is_end and not isinstance(form_of(ledger), Streaming)
    for run in wanted:
        raw = splitter.cut(run)
        is_last = is_checked and run.last == extent.last
        yield splitter.with_excess(raw) if is_last else raw


def _header_fault(ledger: Ledger, extent: Extent, head: Buffer) -> Fault | None:
    if len(head) < HEADER_BYTES:
        return "a block header", f"{len(head)} bytes"
    header = _HEADER
    expected: tuple[int, ...] = MAGIC, HEADER_BYTES, extent.size_bytes, extent.first
    if isinstance(form_of(ledger), Streaming):
        header = _STREAMING_HEADER
        expected = (STREAMING_MAGIC, *expected[1:], ledger.id)
    values = header.unpack_from(head)
    if values != expected:
        return _header_text(expected), _header_text(values)
    return None


def _frame_fault(
    entry: int, length: int, found_entry: int, room: int
) -> tuple[str, str]:
    expected = f"a frame of entry {entry} of up to {room} bytes"
    if _FRAME.pack(length, found_entry).startswith(PADDING):
        return expected, _PADDING
    return expected, f"a frame of entry {found_entry} of {length} bytes"


def _header_text(header: tuple[int, ...]) -> str:
    magic, header_bytes, block_bytes, first, *ledger = header
    return (
        f"a block header {magic:#x} of {header_bytes} bytes for a block of "
        f"{block_bytes} bytes from entry {first}"
        + "".join(f" of ledger {number}" for number in ledger)
    )
