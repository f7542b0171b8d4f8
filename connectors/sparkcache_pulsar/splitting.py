"""Cuts an extent into runs while its bytes arrive, whatever its records look like.

Records lie one behind the other, an entry each, and their ids are consecutive. A walk
knows how they look, and passes over them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sparkcache.connector import RawRun
from sparkcache.model import Loss, Run
from sparkcache_pulsar.names import LAST_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache.connector import ByteStream
    from sparkcache.model import Extent, Ledger

    Buffer = bytes | bytearray | memoryview
    Fault = tuple[str, str]

READ_BYTES = 1 << 20
END = "the end of the data"


class Walk(Protocol):
    """A way over consecutive records, as far as it has got.

    Attributes:
        entry: Id of the entry whose record comes next.
        at: Where that record begins.
        fault: What came instead of it: expected, found.

    """

    entry: int
    at: int
    fault: Fault | None

    def advance(self, data: Buffer, last: int, room: int) -> bool:
        """Pass over records up to entry `last`; tell whether it, or a fault, was met.

        If not, `data` has ended before the record did. `room` is how far, counted like
        `at`, records may reach once all data has come.
        """


class Splitter:
    """The state of one pass over an extent: a buffer, and what of it is passed on."""

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
        self._buffer = bytearray()
        self._passed = 0
        self._offset = stream.position  # of the first byte that is not passed on
        self._fault: Fault | None = None

    def __repr__(self) -> str:
        return f"Splitter({self._ledger.object.uri} at byte {self._offset})"

    def pass_head(
        self, size_bytes: int, check: Callable[[Buffer], Fault | None]
    ) -> None:
        """Pass over what stands before the records; `check` may get less of it."""
        while len(self._buffer) < size_bytes and self._read():
            pass
        self._fault = check(self._buffer)
        if self._fault is None:
            self._pass(size_bytes)

    def cut(self, run: Run) -> RawRun:
        """Return the records of the next run."""
        walk = self._begin(run.first)
        walk.fault = self._fault
        while walk.fault is None and not self._advance(walk, run):
            if not self._read():
                walk.fault = f"entry {walk.entry}", END
        offset, data = self._offset, self._pass(walk.at)
        if walk.fault is None:
            return RawRun(run, offset, data)
        self._fault = walk.fault
        place = self._ledger.object.uri, self._offset, self._ledger.id
        loss = Loss(*place, walk.entry, run.last, *walk.fault)
        return RawRun(run, offset, data, (loss,))

    def behind(self, raw: RawRun) -> RawRun:
        """Tell of records that follow the last run of the last extent.

        Whoever said that there are none was wrong, and nobody else would read them.
        """
        first = raw.run.last + 1
        walk, beyond = self._begin(first), Run(first, LAST_ID)
        while self._fault is None and not self._advance(walk, beyond) and self._read():
            pass
        if walk.entry == first:
            return raw
        place = self._ledger.object.uri, self._offset, self._ledger.id
        expected, found = f"entry {raw.run.last} to be the last", "others behind it"
        loss = Loss(*place, first, walk.entry - 1, expected, found)
        return replace(raw, losses=(*raw.losses, loss))

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
