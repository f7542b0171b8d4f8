"""Cut the records of a SequenceFile, as stored, into runs.

Plain records and individually compressed records are cut into runs as frames are. A
compressed block can only be read as a whole, so its extent is one run.

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
    """An extent of compressed blocks; only planning distinguishes it from others."""


def runs(extent: OneRun) -> list[Run]:
    """Return the extent as its only run."""
    return [Run(extent.first, extent.last)]


@dataclass(slots=True)
class RecordWalk:
    """A walk over records; see `splitting.Walk`.

    Attributes:
        sync: The file's sync marker, which may precede any record.
        entry: Id of the entry whose record is next.
        offset: Start of that record, or of the sync marker before it.
        values: Start and end of each value already passed.
        fault: Why the walk stopped at the next record.

    """

    sync: bytes
    entry: int
    offset: int = 0
    values: list[tuple[int, int]] = field(default_factory=list)
    fault: Fault | None = None

    def advance(self, data: Buffer, last: int, room: int) -> bool:
        """Walk over records up to entry `last`."""
        done = self.entry > last
        while not done and self.fault is None:
            after = self._next(data, room)
            if after is None:
                break
            done = self.entry == last
            self.entry += 1
            self.offset = after
        return done or self.fault is not None

    def _next(self, data: Buffer, room: int) -> int | None:
        """Return the end of the next record; None if the data end before it."""
        offset = self.offset
        if (
            offset + _LENGTH.size <= len(data)
            and _LENGTH.unpack_from(data, offset)[0] == -1
        ):
            marker = bytes(
                data[offset + _LENGTH.size : offset + _LENGTH.size + SYNC_BYTES]
            )
            if marker != self.sync[: len(marker)]:
                self.fault = "a sync marker", marker.hex()
                return None
            offset += _LENGTH.size + SYNC_BYTES
        if offset + RECORD_HEADER_BYTES > len(data):
            return None
        length, key_bytes, key = _RECORD.unpack_from(data, offset)
        after: int = offset + length + RECORD_HEADER_BYTES - KEY_BYTES
        if (key_bytes, key) != (KEY_BYTES, self.entry) or length < KEY_BYTES:
            self.fault = (
                f"a record of entry {self.entry}",
                f"a record of {length} bytes with a key of {key_bytes} bytes, {key}",
            )
        elif after > room:
            self.fault = (
                f"a record of entry {self.entry} of up to {room - offset} bytes",
                f"a record of {after - offset} bytes",
            )
        if self.fault is not None or after > len(data):
            return None
        self.values.append((offset + RECORD_HEADER_BYTES, after))
        return after


def split(
    layout: Layout,
    ledger: Ledger,
    extent: Extent,
    wanted: Sequence[Run],
    stream: ByteStream,
) -> Iterator[RawRun]:
    """Yield the stored records of each run as soon as its last record has arrived."""
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
