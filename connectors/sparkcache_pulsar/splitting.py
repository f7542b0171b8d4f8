"""Split an extent of records of any form into runs while its bytes arrive.

Records are contiguous, an entry each, and their ids are consecutive. A walk knows the
form of the records, and steps over them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sparkcache.connector import RawRun
from sparkcache.model import Loss, Run
from sparkcache_pulsar.names import LAST_ID
from sparkcache_pulsar.protobuf import SLACK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache.arrays import Bytes
    from sparkcache.connector import ByteStream
    from sparkcache.model import Extent, Ledger

    Buffer = bytes | bytearray | memoryview
    Fault = tuple[str, str]

READ_BYTES = 1 << 20
END = "the end of the data"


class Walk(Protocol):
    """A walk over consecutive records, and its progress.

    Attributes:
        entry: Id of the entry whose record is next.
        offset: Start of that record.
        fault: Why the walk stopped at that record: expected, found.

    """

    entry: int
    offset: int
    fault: Fault | None

    def advance(self, data: Buffer, last: int, room: int) -> bool:
        """Walk over records up to entry `last`; return whether it or a fault was met.

        If not, `data` ended within a record. `room` is the end, counted like `offset`,
        that no record may exceed even after all data have arrived.
        """


class Splitter:
    """The state of one pass over an extent: a buffer, and how much of it is passed.

    What was passed on stays as it is: what follows is read into another buffer. That
    is as large as the last one had to be, so that it rarely has to grow.
    """

    def __init__(
        self,
        ledger: Ledger,
        extent: Extent,
        stream: ByteStream,
        begin: Callable[[int], Walk],
    ) -> None:
        self._ledger = ledger
        self._stream = stream
        self._begin = begin
        self._end = extent.offset + extent.size_bytes
        self._buffer: Bytes = np.empty(READ_BYTES + SLACK_BYTES, np.uint8)
        self._filled = 0
        self._passed = 0
        self._offset = stream.position  # of the first byte not passed on
        self._fault: Fault | None = None

    def __repr__(self) -> str:
        return f"Splitter({self._ledger.object.uri} at byte {self._offset})"

    def pass_head(
        self, size_bytes: int, check: Callable[[Buffer], Fault | None]
    ) -> None:
        """Skip the head before the records; `check` gets less if the data end."""
        while self._filled < size_bytes and self._read():
            pass
        self._fault = check(self._buffer.data[: self._filled])
        if self._fault is None:
            self._pass(size_bytes)

    def cut(self, run: Run) -> RawRun:
        """Return the records of the next run."""
        walk = self._begin(run.first)
        walk.fault = self._fault
        while walk.fault is None and not self._advance(walk, run):
            if not self._read():
                walk.fault = f"entry {walk.entry}", END
        offset, data = self._offset, self._pass(walk.offset)
        if walk.fault is None:
            return RawRun(run, offset, data)
        self._fault = walk.fault
        location = self._ledger.object.uri, self._offset, self._ledger.id
        loss = Loss(*location, walk.entry, run.last, *walk.fault)
        return RawRun(run, offset, data, (loss,))

    def with_excess(self, raw: RawRun) -> RawRun:
        """Add a loss for records that follow the last run of the last extent.

        The index is then wrong about the last entry, and nothing else reads them.
        """
        first = raw.run.last + 1
        walk, beyond = self._begin(first), Run(first, LAST_ID)
        while self._fault is None and not self._advance(walk, beyond) and self._read():
            pass
        if walk.entry == first:
            return raw
        location = self._ledger.object.uri, self._offset, self._ledger.id
        expected, found = f"entry {raw.run.last} to be the last", "entries after it"
        loss = Loss(*location, first, walk.entry - 1, expected, found)
        return replace(raw, losses=(*raw.losses, loss))

    def _advance(self, walk: Walk, run: Run) -> bool:
        data = self._buffer.data[self._passed : self._filled]
        return walk.advance(data, run.last, self._end - self._offset)

    def _pass(self, size_bytes: int) -> memoryview:
        start, self._passed = self._passed, self._passed + size_bytes
        self._offset += size_bytes
        return self._buffer.data[start : self._passed].toreadonly()

    def _read(self) -> bool:
        rest = self._filled - self._passed
        remaining = self._end - self._offset - rest
        chunk = self._stream.read(min(READ_BYTES, remaining)) if remaining > 0 else b""
        needed = rest + len(chunk) + SLACK_BYTES
        if self._passed or needed > len(self._buffer):
            is_larger = needed > len(self._buffer)
            room = 2 * needed if is_larger else len(self._buffer)
            buffer: Bytes = np.empty(room, np.uint8)
            buffer[:rest] = self._buffer[self._passed : self._filled]
            self._buffer, self._passed = buffer, 0
        self._filled = rest + len(chunk)
        self._buffer[rest : self._filled] = np.frombuffer(chunk, np.uint8)
        return bool(chunk)


def with_slack(data: bytes | memoryview) -> Bytes:
    """Return data as an array, followed by SLACK_BYTES of any value; read-only.

    Copies data only if nothing follows them in their buffer.
    """
    found = np.frombuffer(data, np.uint8)
    whole = data.obj if isinstance(data, memoryview) else None
    if isinstance(whole, np.ndarray) and whole.dtype == np.uint8 and whole.ndim == 1:
        start = _address(found) - _address(whole)
        if start + len(found) + SLACK_BYTES <= len(whole):
            view: Bytes = whole[start : start + len(found) + SLACK_BYTES]
            view.flags.writeable = False
            return view
    return np.concatenate([found, np.zeros(SLACK_BYTES, np.uint8)])


def _address(array: Bytes) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
