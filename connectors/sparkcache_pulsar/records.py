"""The records of a SequenceFile, cut into runs as they are stored.

Runs of plain records, and of those that are compressed one by one, are cut like those
of frames. A compressed block can be read as a whole only, so its extent is one run.

Source: SequenceFile in org.apache.hadoop.io.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sparkcache.connector import RawRun
from sparkcache.model import Extent, Run
from sparkcache_pulsar.sequencefile import (
    BLOCK_COMPRESSED,
    KEY_BYTES,
    SYNC_BYTES,
    Layout,
)
from sparkcache_pulsar.splitting import READ_BYTES, Splitter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.connector import ByteStream
    from sparkcache.model import Ledger
    from sparkcache_pulsar.splitting import Buffer, Fault

METADATA_KEY = -1
RECORD_HEADER_BYTES = 16

_LENGTH = struct.Struct(">i")
_RECORD = struct.Struct(">iiq")


@dataclass(frozen=True, slots=True)
class OneRun(Extent):
    """An extent of compressed blocks. Planning alone has to know it from others."""


def runs(extent: OneRun) -> list[Run]:
    """Return the one run that it is."""
    return [Run(extent.first, extent.last)]


@dataclass(slots=True)
class RecordWalk:
    """A way over records; see `splitting.Walk`.

    Attributes:
        sync: The file's sync marker, which may stand before any record.
        entry: Id of the entry whose record comes next.
        at: Where that record, or the sync marker before it, begins.
        values: Where the values passed begin and end.
        fault: What came instead of the next record.

    """

    sync: bytes
    entry: int
    at: int = 0
    values: list[tuple[int, int]] = field(default_factory=list)
    fault: Fault | None = None

    def advance(self, data: Buffer, last: int, room: int) -> bool:
        """Pass over records up to entry `last`."""
        done = self.entry > last
        while not done and self.fault is None:
            after = self._next(data, room)
            if after is None:
                break
            done = self.entry == last
            self.entry += 1
            self.at = after
        return done or self.fault is not None

    def _next(self, data: Buffer, room: int) -> int | None:
        """Return where the record that comes next ends; None if data does before."""
        at = self.at
        if at + _LENGTH.size <= len(data) and _LENGTH.unpack_from(data, at)[0] == -1:
            marker = bytes(data[at + _LENGTH.size : at + _LENGTH.size + SYNC_BYTES])
            if marker != self.sync[: len(marker)]:
                self.fault = "a sync marker", marker.hex()
                return None
            at += _LENGTH.size + SYNC_BYTES
        if at + RECORD_HEADER_BYTES > len(data):
            return None
        length, key_bytes, key = _RECORD.unpack_from(data, at)
        after: int = at + length + RECORD_HEADER_BYTES - KEY_BYTES
        if (key_bytes, key) != (KEY_BYTES, self.entry) or length < KEY_BYTES:
            self.fault = (
                f"a record of entry {self.entry}",
                f"one of {length} bytes with a key of {key_bytes} bytes, {key}",
            )
        elif after > room:
            self.fault = (
                f"a record of entry {self.entry} of up to {room - at} bytes",
                f"one of {after - at} bytes",
            )
        if self.fault is not None or after > len(data):
            return None
        self.values.append((at + RECORD_HEADER_BYTES, after))
        return after


def split(
    layout: Layout,
    ledger: Ledger,
    extent: Extent,
    wanted: Sequence[Run],
    stream: ByteStream,
) -> Iterator[RawRun]:
    """Yield the stored records of each run as soon as its last one is there."""
    if layout.kind != BLOCK_COMPRESSED:
        splitter = Splitter(ledger, extent, stream, partial(RecordWalk, layout.sync))
        for run in wanted:
            yield splitter.cut(run)
        return
    (run,) = wanted
    data = bytearray()
    while chunk := stream.read(READ_BYTES):
        data += chunk
    yield RawRun(run, extent.offset, memoryview(data).toreadonly())
