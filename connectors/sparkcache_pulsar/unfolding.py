"""Convert the records of a SequenceFile to frames, the input of all decoding.

A value that cannot be decompressed, or is no BytesWritable, is a fault of its entry.
Values of a block that cannot be decompressed are a fault of all its entries. The start
of the next record is known in either case.

Source: SequenceFile and BytesWritable in org.apache.hadoop.io.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache.model import Run
from sparkcache_pulsar import frames
from sparkcache_pulsar.codecs import RUN_TOO_LARGE, run_limit_bytes
from sparkcache_pulsar.hadoop_codecs import MAX_BYTES, CodecError
from sparkcache_pulsar.records import (
    METADATA_KEY,
    RECORD_HEADER_BYTES,
    RecordWalk,
    split,
)
from sparkcache_pulsar.sequencefile import (
    BLOCK_COMPRESSED,
    DataInput,
    Layout,
    block_values,
    read_block,
)
from sparkcache_pulsar.splitting import END, READ_BYTES

if TYPE_CHECKING:
    from sparkcache.connector import ByteStream, RawRun
    from sparkcache.model import Extent, Ledger
    from sparkcache_pulsar.splitting import Fault

_LENGTH = struct.Struct(">i")
_FRAME = struct.Struct(">iq")


@dataclass(slots=True)
class Unfolded:
    """Records as frames, as far as they can be cut out.

    Attributes:
        data: Frames of consecutive entries; empty frames for entries with a fault.
        starts: Start of each frame.
        offsets: Offset of its record, or block, in the object.
        faults: The faults of entries, which are counted from the first.
        end: Offset and fault of the first missing record; None if all are present.

    """

    data: bytes | memoryview = b""
    starts: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    faults: dict[int, Fault] = field(default_factory=dict)
    end: tuple[int, Fault] | None = None


def unfold(layout: Layout, ledger: Ledger, raw: RawRun) -> Unfolded:
    """Convert the stored records of a run to frames."""
    unfolding = _Unfolding(layout, raw)
    if layout.kind == BLOCK_COMPRESSED:
        unfolding.add_blocks(DataInput(ledger.object.uri, raw.data, raw.offset))
    else:
        unfolding.add_records(raw)
    return unfolding.finish()


def last_entry(
    layout: Layout, ledger: Ledger, extent: Extent, stream: ByteStream
) -> int:
    """Return the last entry that an extent really has; `first - 1` if it has none."""
    runs = [Run(extent.first, extent.last)]
    if layout.kind != BLOCK_COMPRESSED:
        runs = frames.runs(extent, READ_BYTES)
    for raw in split(layout, ledger, extent, runs, stream):
        cut = unfold(layout, ledger, raw)
        if cut.end is not None:
            return raw.run.first + len(cut.starts) - 1
    return extent.last


class _Unfolding:
    def __init__(self, layout: Layout, raw: RawRun) -> None:
        self._layout = layout
        self._run = raw.run
        self._limit_bytes = run_limit_bytes(len(raw.data))
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._unfolded = Unfolded()

    def finish(self) -> Unfolded:
        self._unfolded.data = b"".join(self._parts)
        return self._unfolded

    def add_records(self, raw: RawRun) -> None:
        data = memoryview(raw.data)
        walk = RecordWalk(self._layout.sync, self._run.first)
        walk.advance(data, self._run.last, len(data))
        for start, end in walk.values:
            offset = raw.offset + start - RECORD_HEADER_BYTES
            if self._size > self._limit_bytes:
                self._add_fault(offset, *RUN_TOO_LARGE)
                continue
            try:
                value = self._layout.decompress(data[start:end], MAX_BYTES)
            except CodecError as error:
                self._add_fault(offset, self._compressed(end - start), str(error))
            else:
                self._add(offset, memoryview(value))
        if walk.entry <= self._run.last:
            fault = walk.fault or (f"entry {walk.entry}", END)
            self._unfolded.end = raw.offset + walk.offset, fault

    def add_blocks(self, source: DataInput) -> None:
        try:
            while self._next <= self._run.last:
                self._add_block(source)
        except SourceError as error:
            self._unfolded.end = error.offset or 0, (error.expected, error.found)

    def _add_block(self, source: DataInput) -> None:
        block = read_block(source, self._layout)
        keys = block.keys.tolist()
        # The ledger's metadata precede the first entry, in the same block or not.
        skipped = 1 if self._next == 0 and keys[0] == METADATA_KEY else 0
        expected = list(range(self._next, self._next + len(keys) - skipped))
        if keys[skipped:] != expected:
            found = f"entries {keys[0]} to {keys[-1]}"
            raise source.fault(f"a block of entries from {self._next}", found)
        entries = expected[: self._run.last + 1 - self._next]
        if self._size > self._limit_bytes:
            for _ in entries:
                self._add_fault(block.offset, *RUN_TOO_LARGE)
            return
        try:
            values = block_values(block, self._layout)
        except CodecError as error:
            text = self._compressed(len(block.values))
            for _ in entries:
                self._add_fault(block.offset, text, str(error))
            return
        for value in values[skipped : skipped + len(entries)]:
            self._add(block.offset, value)

    @property
    def _next(self) -> int:
        return self._run.first + len(self._unfolded.starts)

    def _compressed(self, size: int) -> str:
        return f"{size} bytes of {self._layout.codec}"

    def _add(self, offset: int, value: memoryview) -> None:
        """Add the frame of an entry, whose `value` is a BytesWritable."""
        length = _LENGTH.unpack_from(value)[0] if len(value) >= _LENGTH.size else -1
        if length != len(value) - _LENGTH.size:
            expected = f"a length and that many bytes, {len(value)} in all"
            self._add_fault(offset, expected, f"a length of {length}")
            return
        self._append(offset, value[_LENGTH.size :])

    def _add_fault(self, offset: int, expected: str, found: str) -> None:
        self._unfolded.faults[len(self._unfolded.starts)] = expected, found
        self._append(offset, memoryview(b""))

    def _append(self, offset: int, entry: memoryview) -> None:
        header = _FRAME.pack(len(entry), self._next)
        self._unfolded.starts.append(self._size)
        self._unfolded.offsets.append(offset)
        self._parts += (header, entry)
        self._size += len(header) + len(entry)
