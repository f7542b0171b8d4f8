"""Find the queue offsets in each object of a commit log, by means of the consume queue.

A broker appends to the commit log first, then to the consume queue. So a record without
an item is not committed yet, and the record of an item exists, if the consume queue was
listed before the commit log. Records or items deleted at the beginning of either file
have expired and are no loss. But a broker deletes expired items no later than their
records, so items without any commit log are a loss. If the consume queue has a hole or
is missing, the records themselves are read.

Source: getMessageAsync of Apache RocketMQ, which defines where a queue begins and ends.
Different here: records that are missing in the middle are reported as losses.
"""

from __future__ import annotations

from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from sparkcache.model import UNKNOWN_END, Loss
from sparkcache.progress import steps
from sparkcache_rocketmq.extents import OffsetSpan, cut
from sparkcache_rocketmq.headers import (
    CODA_BYTES,
    Found,
    Header,
    coda_bytes,
    read_beginning,
    walk,
)
from sparkcache_rocketmq.queue_index import ITEM_BYTES, QueueIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.connector import Storage
    from sparkcache_rocketmq.flat_files import Piece, QueueFiles

_MAX_REQUESTS = 8


@dataclass(frozen=True, slots=True)
class Segment:
    """An object of a commit log, and the ranges of it to read.

    Attributes:
        piece: The object.
        beginning: Its first bytes.
        spans: The ranges whose queue offsets are committed.

    """

    piece: Piece
    beginning: bytes
    spans: tuple[OffsetSpan, ...]


@dataclass(slots=True)
class Survey:
    """The readable queue offsets of a queue, and the missing ones.

    Attributes:
        first: The first offset that can be read.
        stop: The offset after the last one that can be read.
        segments: The objects that hold these offsets.
        losses: Offsets in between that are missing.

    """

    first: int
    stop: int
    segments: list[Segment] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)

    def __repr__(self) -> str:
        extents = sum(len(segment.spans) for segment in self.segments)
        return (
            f"offsets {self.first} to {self.stop}, not included, in {extents} extents "
            f"of {len(self.segments)} objects, {len(self.losses)} ranges missing"
        )


def survey(
    storage: Storage, queue_id: int, files: QueueFiles, extent_bytes: int
) -> Survey:
    """Find the ranges of a queue to read. Raises SourceError."""
    surveyor = _Surveyor(storage, queue_id, files)
    return surveyor.survey(extent_bytes)


class _Surveyor:
    def __init__(self, storage: Storage, queue_id: int, files: QueueFiles) -> None:
        self._storage = storage
        self._queue_id = queue_id
        self._pieces = files.commit_log.pieces
        self._consume_queue = files.consume_queue
        self._index = QueueIndex(storage, files.consume_queue)
        self._losses: list[Loss] = []

    def survey(self, extent_bytes: int) -> Survey:
        pieces, index = self._pieces, self._index
        if not pieces:
            return Survey(index.stop, index.stop, [], self._all_lost())
        beginnings = self._beginnings()
        firsts = self._firsts(beginnings)
        stops = self._stops(firsts)
        begin = max(firsts[0], index.first) if index.stop > index.first else firsts[0]
        result = Survey(min(begin, stops[-1]), stops[-1])
        result.losses = [loss for loss in self._losses if loss.last >= begin]
        lasts = [stop - 1 for stop in stops]
        firsts = [max(first, begin) for first in firsts]
        index.look_ahead([*firsts, *lasts])
        spans = map(self._spans, pieces, firsts, lasts)
        extents = cut(chain.from_iterable(spans), index, extent_bytes)
        by_piece = {
            piece: tuple(group) for piece, group in groupby(extents, self._piece_of)
        }
        result.segments = [
            Segment(piece, beginning, by_piece[piece])
            for piece, beginning in zip(pieces, beginnings, strict=True)
            if piece in by_piece
        ]
        return result

    def _all_lost(self) -> list[Loss]:
        """Return the loss of every item's record, for a queue without commit log."""
        first, last = self._index.first, self._index.stop - 1
        if first > last:
            return []
        item = self._consume_queue.pieces[0]
        offset = first * ITEM_BYTES - item.start
        expected = "a commit log with the records of these items"
        place = item.object.uri, offset, self._queue_id
        loss = Loss(*place, first, last, expected, "no object of a commit log")
        return [loss.of_rows()]

    def _beginnings(self) -> list[bytes]:
        """Return the first bytes of each object."""

        def read(piece: Piece) -> bytes:
            size_bytes = piece.end - piece.start
            return read_beginning(self._storage, piece.object, 0, size_bytes)

        if len(self._pieces) == 1:
            return [read(self._pieces[0])]
        with ThreadPoolExecutor(_MAX_REQUESTS) as pool:
            beginnings = steps(
                pool.map(read, self._pieces),
                f"Reading the first records of commit logs in {self._storage.root}",
                "objects",
                len(self._pieces),
            )
            return list(beginnings)

    def _firsts(self, beginnings: Sequence[bytes]) -> list[int]:
        """Return the queue offset of each object's first record."""
        codas = [coda_bytes(beginning) for beginning in beginnings]
        headers = list(map(Header.parse, beginnings, codas))
        self._index.look_ahead(header.offset for header in headers if header)
        firsts: list[int] = []
        for number, (piece, coda, header) in enumerate(
            zip(self._pieces, codas, headers, strict=True)
        ):
            first = self._first(piece, coda, header)
            if first is None or (firsts and first < firsts[-1]):
                first = self._first_after(number, firsts)
            firsts.append(first)
        return firsts

    def _first(self, piece: Piece, coda: int, header: Header | None) -> int | None:
        """Return the queue offset of an object's first record; None if not known.

        The record's own offset is used unless an item contradicts it.
        """
        is_ours = header is not None and header.queue == self._queue_id
        if header and is_ours and self._may_begin(piece, coda, header.offset):
            return header.offset
        return self._indexed(piece.start - CODA_BYTES)

    def _first_after(self, number: int, firsts: Sequence[int]) -> int:
        """Return the first offset of an object that neither it nor an item tells.

        The records of the object before tell it.
        """
        if number:
            found = self._walk(self._pieces[number - 1])
            after = firsts[-1] if found.last is None else found.last + 1
            return max(after, firsts[-1])
        if self._index.stop > self._index.first:
            return self._index.first
        found = self._walk(self._pieces[0])
        return 0 if found.first is None else max(0, found.first - 1)

    def _may_begin(self, piece: Piece, coda: int, offset: int) -> bool:
        """Return whether an object may begin with an offset, according to the items."""
        index, start = self._index, piece.start
        nearest = max(index.first, min(offset, index.stop - 1))
        item = index.item(nearest)
        if item is None:
            return True
        if offset < nearest:
            return item.start > start
        if offset > nearest:
            return item.start < start
        # The item may also point to the coda before the record.
        return item.start in (start, start + coda, start - CODA_BYTES)

    def _stops(self, firsts: Sequence[int]) -> list[int]:
        """Return the offset after the last one of each object."""
        index, last = self._index, self._pieces[-1]
        stops = [
            self._stop_before(piece, following, first)
            for (piece, following), first in zip(
                pairwise(self._pieces), firsts[1:], strict=True
            )
        ]
        if index.stop == index.first:
            return [*stops, self._walked(last, firsts[-1])]
        stop, item = index.stop, index.item(index.stop - 1)
        if item is not None and item.end > last.end:
            least = index.least(index.first, stop, lambda item: item.end > last.end)
            stop = stop - 1 if least is None else least
            self._lose(last, stop, index.stop - 1, "its end")
        return [min(end, stop) for end in [*stops, stop]]

    def _stop_before(self, piece: Piece, following: Piece, next_first: int) -> int:
        """Return the offset after the last one of an object that another follows."""
        if piece.end >= following.start:
            return next_first
        indexed = self._indexed(piece.end - CODA_BYTES)
        if indexed is None or indexed > next_first:
            return next_first
        last = min(next_first, self._index.stop) - 1  # the others are not committed
        self._lose(piece, indexed, last, f"nothing before byte {following.start}")
        return indexed

    def _indexed(self, start: int) -> int | None:
        """Return the offset of the first item whose record starts there or later.

        None if an item is missing that would show it.
        """
        index = self._index
        if index.first == index.stop:
            return None
        return index.least(index.first, index.stop, lambda item: item.start >= start)

    def _walked(self, piece: Piece, first: int) -> int:
        """Return the offset after the last record, for a queue without any item."""
        found = self._walk(piece)
        stop = first if found.last is None else found.last + 1
        if found.damage is not None:
            position = piece.start + found.damage
            expected = f"a record at byte {position}, or a consume queue"
            self._lose(piece, stop, UNKNOWN_END, "neither", found.damage, expected)
        return stop

    def _walk(self, piece: Piece) -> Found:
        size_bytes = piece.end - piece.start
        stream = self._storage.open(piece.object, 0, size_bytes)
        try:
            return walk(stream, piece.start, size_bytes, self._queue_id)
        finally:
            stream.close()

    def _spans(self, piece: Piece, first: int, last: int) -> tuple[OffsetSpan, ...]:
        """Return the byte range of an object that holds these offsets.

        The object does hold them. If the items contradict that, the range is extended
        to the whole object.
        """
        if first > last:
            return ()
        begin, end = self._index.item(first), self._index.item(last)
        start, stop = piece.start, piece.end
        if begin is not None and start - CODA_BYTES <= begin.start < stop:
            start = max(start, begin.start)
        if end is not None and end.start >= start - CODA_BYTES:
            stop = min(stop, max(start, end.start) + end.size_bytes)
        return (OffsetSpan(first, last, start, stop),)

    def _piece_of(self, span: OffsetSpan) -> Piece:
        index = bisect_right(self._pieces, span.start, key=attrgetter("start"))
        return self._pieces[index - 1]

    def _lose(
        self,
        piece: Piece,
        first: int,
        last: int,
        found: str,
        offset: int | None = None,
        expected: str = "",
    ) -> None:
        if first > last:
            return
        size_bytes = piece.end - piece.start
        position = size_bytes if offset is None else offset
        wanted = expected or f"the commit log to continue at byte {piece.end}"
        uri, queue_id = piece.object.uri, self._queue_id
        loss = Loss(uri, position, queue_id, first, last, wanted, found)
        self._losses.append(loss.of_rows())
