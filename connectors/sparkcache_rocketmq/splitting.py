"""Cuts an extent into runs while its bytes arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.connector import RawRun
from sparkcache.model import Loss
from sparkcache_rocketmq import queues
from sparkcache_rocketmq.walking import Walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.connector import ByteStream
    from sparkcache.model import Extent, Ledger, Run

READ_BYTES = 1 << 20


def split(
    ledger: Ledger, extent: Extent, wanted: Sequence[Run], stream: ByteStream
) -> Iterator[RawRun]:
    """Yield the records of each run as soon as its last one is there."""
    splitter = Splitter(ledger, extent, stream)
    for run in wanted:
        yield splitter.cut(run)


class Splitter:
    """The state of one pass over an extent: a buffer, and what of it is passed on.

    What a run's data holds are whole records of the run that are sound, and nothing
    else, so whoever decodes it can go by their sizes.
    """

    def __init__(self, ledger: Ledger, extent: Extent, stream: ByteStream) -> None:
        self._ledger = ledger
        self._queue = queues.queue(ledger)
        self._base = queues.base(ledger)
        self._stream = stream
        self._end = extent.offset + extent.size_bytes
        self._buffer = bytearray()
        self._offset = stream.position  # of the buffer's first byte
        self._passed = 0
        self._is_all = False

    def __repr__(self) -> str:
        return f"Splitter({self._ledger.object.uri} at byte {self._offset})"

    def cut(self, run: Run) -> RawRun:
        """Return the records of the next run."""
        if self._passed:  # what was passed on are views of the old buffer
            self._buffer = self._buffer[self._passed :]
            self._offset += self._passed
            self._passed = 0
        base = self._base + self._offset
        walk = Walk(self._queue, base, run.first, run.last, 0)
        room = self._end - self._offset
        while not walk.advance(self._buffer, room, is_all=self._is_all):
            self._read()
        self._passed = walk.at
        return RawRun(run, self._offset, self._data(walk), self._losses(walk))

    def _data(self, walk: Walk) -> bytes | memoryview:
        view = memoryview(self._buffer).toreadonly()
        pieces = [view[start:end] for start, end in walk.pieces]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _losses(self, walk: Walk) -> tuple[Loss, ...]:
        uri, queue_id = self._ledger.object.uri, self._ledger.id
        return tuple(
            Loss(
                uri,
                self._offset + hole.at,
                queue_id,
                hole.first,
                hole.last,
                hole.expected,
                hole.found,
            )
            for hole in walk.holes
        )

    def _read(self) -> None:
        left = self._end - self._offset - len(self._buffer)
        chunk = self._stream.read(min(READ_BYTES, left)) if left > 0 else b""
        self._buffer += chunk
        self._is_all = not chunk
