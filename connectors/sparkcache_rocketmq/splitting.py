"""Split an extent into raw runs while its bytes arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.connector import RawRun
from sparkcache.model import Loss
from sparkcache_rocketmq import queues
from sparkcache_rocketmq.walking import Walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkcache.arrays import Ints
    from sparkcache.connector import ByteStream
    from sparkcache.model import Extent, Ledger, Run

READ_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class CutRun(RawRun):
    """A raw run, and what is known of it from cutting it out.

    Attributes:
        starts: Start of each record; empty if that is not known.

    """

    starts: Ints = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)


def split(
    ledger: Ledger, extent: Extent, wanted: Sequence[Run], stream: ByteStream
) -> Iterator[RawRun]:
    """Yield the records of each run as soon as its last record has arrived."""
    splitter = Splitter(ledger, extent, stream)
    for run in wanted:
        yield splitter.cut(run)


class Splitter:
    """State of one pass over an extent: a buffer, and how much of it was split.

    The data of a raw run are complete, sound records of that run and nothing else, so
    the decoder can rely on their sizes.
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
        self._is_complete = False

    def __repr__(self) -> str:
        return f"Splitter({self._ledger.object.uri} at byte {self._offset})"

    def cut(self, run: Run) -> RawRun:
        """Return the records of the next run."""
        base = self._base + self._offset
        walk = Walk(self._queue, base, run.first, run.last, self._passed)
        while not walk.advance(
            self._buffer, self._end - self._offset, is_complete=self._is_complete
        ):
            walk.move_back(self._read())
        offset, self._passed = self._offset + self._passed, walk.position
        data, losses = self._data(walk), self._losses(walk)
        return CutRun(run, offset, data, losses, walk.starts())

    def _data(self, walk: Walk) -> bytes | memoryview:
        view = memoryview(self._buffer).toreadonly()
        pieces = [view[start:end] for start, end in walk.pieces]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _losses(self, walk: Walk) -> tuple[Loss, ...]:
        uri, queue_id = self._ledger.object.uri, self._ledger.id
        return tuple(
            Loss(
                uri,
                self._offset + hole.position,
                queue_id,
                hole.first,
                hole.last,
                hole.expected,
                hole.found,
            ).of_rows()
            for hole in walk.holes
        )

    def _read(self) -> int:
        """Read more; return how many bytes were dropped before what was not passed."""
        remaining = self._end - self._offset - len(self._buffer)
        chunk = self._stream.read(min(READ_BYTES, remaining)) if remaining > 0 else b""
        dropped, self._passed = self._passed, 0
        if dropped:  # earlier raw runs hold views of the buffer
            rest = memoryview(self._buffer)[dropped:]
            self._buffer = bytearray().join((rest, chunk))
            self._offset += dropped
        else:
            self._buffer += chunk
        self._is_complete = not chunk
        return dropped
