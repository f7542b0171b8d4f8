"""The records of a SequenceFile become frames, which all that decodes begins with.

A value that cannot be decompressed, or is no BytesWritable, is a fault of its entry; so
is a block of which the values are not, for all its entries. Where the next record
begins is known all the same.

Source: SequenceFile and BytesWritable in org.apache.hadoop.io.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.errors import SourceError
from sparkcache.model import Run
from sparkcache_pulsar import frames
from sparkcache_pulsar.codecs import TOO_MUCH, most_of_run
from sparkcache_pulsar.hadoop_codecs import MAX_BYTES, CodecError
from sparkcache_pulsar.records import (
    METADATA_KEY,
    RECORD_HEADER_BYTES,
    RecordWalk,
    split,
)
from sparkcache_pulsar.sequencefile import (
    BLOCK_COMPRESSED,
    Cursor,
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
        data: Frames of consecutive entries; empty ones for those with a fault.
        starts: Where each begins.
        offsets: Where its record, or block, begins in the object.
        faults: What is wrong with which of them, counted from the first.
        end: Where, and what came instead of the next record; None if none is missing.

    """

    data: bytes | memoryview = b""
    starts: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    faults: dict[int, Fault] = field(default_factory=dict)
    end: tuple[int, Fault] | None = None


def unfold(layout: Layout, ledger: Ledger, raw: RawRun) -> Unfolded:
    """Turn the stored records of a run into frames."""
    unfolding = _Unfolding(layout, raw)
    if layout.kind == BLOCK_COMPRESSED:
        unfolding.add_blocks(Cursor(ledger.object.uri, raw.data, raw.offset))
    else:
        unfolding.add_records(raw)
    return unfolding.finish()


def last_entry(
    layout: Layout, ledger: Ledger, extent: Extent, stream: ByteStream
) -> int:
    """Return the last entry that really is in an extent; one before it if none is."""
    wanted = [Run(extent.first, extent.last)]
    if layout.kind != BLOCK_COMPRESSED:
        wanted = frames.runs(extent, READ_BYTES)
    for raw in split(layout, ledger, extent, wanted, stream):
        cut = unfold(layout, ledger, raw)
        if cut.end is not None:
            return raw.run.first + len(cut.starts) - 1
    return extent.last


class _Unfolding:
    def __init__(self, layout: Layout, raw: RawRun) -> None:
        self._layout = layout
        self._run = raw.run
        self._most_bytes = most_of_run(len(raw.data))
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._found = Unfolded()

    def finish(self) -> Unfolded:
        self._found.data = b"".join(self._parts)
        return self._found

    def add_records(self, raw: RawRun) -> None:
        data = memoryview(raw.data)
        walk = RecordWalk(self._layout.sync, self._run.first)
        walk.advance(data, self._run.last, len(data))
        for start, end in walk.values:
            offset = raw.offset + start - RECORD_HEADER_BYTES
            if self._size > self._most_bytes:
                self._add_fault(offset, *TOO_MUCH)
                continue
            try:
                value = self._layout.decompress(data[start:end], MAX_BYTES)
            except CodecError as error:
                self._add_fault(offset, self._compressed(end - start), str(error))
            else:
                self._add(offset, memoryview(value))
        if walk.entry <= self._run.last:
            fault = walk.fault or (f"entry {walk.entry}", END)
            self._found.end = raw.offset + walk.at, fault

    def add_blocks(self, cursor: Cursor) -> None:
        try:
            while self._next <= self._run.last:
                self._add_block(cursor)
        except SourceError as error:
            self._found.end = error.offset or 0, (error.expected, error.found)

    def _add_block(self, cursor: Cursor) -> None:
        block = read_block(cursor, self._layout)
        keys = block.keys.tolist()
        # The ledger's metadata stand before the first entry, in the same block or not.
        passed = 1 if self._next == 0 and keys[0] == METADATA_KEY else 0
        expected = list(range(self._next, self._next + len(keys) - passed))
        if keys[passed:] != expected:
            found = f"{keys[0]} to {keys[-1]}"
            raise cursor.fault(f"a block of entries from {self._next}", found)
        wanted = expected[: self._run.last + 1 - self._next]
        if self._size > self._most_bytes:
            for _ in wanted:
                self._add_fault(block.offset, *TOO_MUCH)
            return
        try:
            values = block_values(block, self._layout)
        except CodecError as error:
            text = self._compressed(len(block.values))
            for _ in wanted:
                self._add_fault(block.offset, text, str(error))
            return
        for value in values[passed : passed + len(wanted)]:
            self._add(block.offset, value)

    @property
    def _next(self) -> int:
        return self._run.first + len(self._found.starts)

    def _compressed(self, size: int) -> str:
        return f"{size} bytes of {self._layout.codec}"

    def _add(self, offset: int, value: memoryview) -> None:
        """Add the frame of an entry, given as BytesWritable writes it."""
        length = _LENGTH.unpack_from(value)[0] if len(value) >= _LENGTH.size else -1
        if length != len(value) - _LENGTH.size:
            expected = f"a length and that many bytes, {len(value)} in all"
            self._add_fault(offset, expected, f"a length of {length}")
            return
        self._append(offset, value[_LENGTH.size :])

    def _add_fault(self, offset: int, expected: str, found: str) -> None:
        self._found.faults[len(self._found.starts)] = expected, found
        self._append(offset, memoryview(b""))

    def _append(self, offset: int, entry: memoryview) -> None:
        header = _FRAME.pack(len(entry), self._next)
        self._found.starts.append(self._size)
        self._found.offsets.append(offset)
        self._parts += (header, entry)
        self._size += len(header) + len(entry)
