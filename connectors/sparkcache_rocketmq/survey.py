"""Which queue offsets lie in which object of a commit log, as far as they are indexed.

A broker appends to the commit log first and to the consume queue then, so records that
have no item yet are not committed; what has an item is there, if both were listed in
the other order. What was cut off at the front of either is not there any more, and no
loss. Where the consume queue has a hole, and where there is none at all, the records
tell.

Source: getMessageAsync of Apache RocketMQ, which says where a queue begins and ends.
Different here: what is missing in the midst is told.
"""

from __future__ import annotations

from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from sparkcache.model import Loss
from sparkcache.progress import steps
from sparkcache_rocketmq.extents import OffsetSpan, cut
from sparkcache_rocketmq.headers import (
    CODA_BYTES,
    Header,
    coda_bytes,
    read_beginning,
    walk,
)
from sparkcache_rocketmq.queue_index import QueueIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.connector import Storage
    from sparkcache_rocketmq.flat_files import Piece, QueueFiles

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Segment:
    """An object of a commit log, and what to read of it.

    Attributes:
        piece: The object.
        beginning: Its first bytes.
        spans: What of it has queue offsets that are committed.

    """

    piece: Piece
    beginning: bytes
    spans: tuple[OffsetSpan, ...]


@dataclass(slots=True)
class Survey:
    """What was found of a queue.

    Attributes:
        first: The first offset that can be read.
        stop: The offset behind the last one.
        segments: Where they are.
        losses: What should be there too.

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
    """Find out what to read of a queue. Raises SourceError."""
    surveyor = _Surveyor(storage, queue_id, files)
    return surveyor.survey(extent_bytes)


class _Surveyor:
    def __init__(self, storage: Storage, queue_id: int, files: QueueFiles) -> None:
        self._storage = storage
        self._queue_id = queue_id
        self._pieces = files.commit_log.pieces
        self._index = QueueIndex(storage, files.consume_queue)
        self._losses: list[Loss] = []

    def survey(self, extent_bytes: int) -> Survey:
        pieces, index = self._pieces, self._index
        if not pieces:
            return Survey(index.stop, index.stop)
        beginnings = self._beginnings()
        firsts = self._firsts(beginnings)
        stops = self._stops(firsts)
        begin = max(firsts[0], index.first) if index.stop > index.first else firsts[0]
        found = Survey(min(begin, stops[-1]), stops[-1])
        found.losses = [loss for loss in self._losses if loss.last >= begin]
        lasts = [stop - 1 for stop in stops]
        firsts = [max(first, begin) for first in firsts]
        index.look_ahead([*firsts, *lasts])
        spans = map(self._spans, pieces, firsts, lasts)
        extents = cut(chain.from_iterable(spans), index, extent_bytes)
        of_piece = {
            piece: tuple(group) for piece, group in groupby(extents, self._piece_of)
        }
        found.segments = [
            Segment(piece, beginning, of_piece[piece])
            for piece, beginning in zip(pieces, beginnings, strict=True)
            if piece in of_piece
        ]
        return found

    def _beginnings(self) -> list[bytes]:
        """Return how each object begins."""

        def read(piece: Piece) -> bytes:
            size_bytes = piece.end - piece.place
            return read_beginning(self._storage, piece.object, 0, size_bytes)

        if len(self._pieces) == 1:
            return [read(self._pieces[0])]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = steps(
                pool.map(read, self._pieces),
                f"Looking at commit logs in {self._storage.root}",
                "objects",
                len(self._pieces),
            )
            return list(found)

    def _firsts(self, beginnings: Sequence[bytes]) -> list[int]:
        """Return the queue offset of each object's first record."""
        codas = [coda_bytes(beginning) for beginning in beginnings]
        headers = list(map(Header.parse, beginnings, codas))
        self._index.look_ahead(header.offset for header in headers if header)
        return list(map(self._first, self._pieces, codas, headers))

    def _first(self, piece: Piece, coda: int, header: Header | None) -> int:
        """Return the queue offset of an object's first record.

        What the record says is believed if no item says otherwise.
        """
        is_ours = header is not None and header.queue == self._queue_id
        if header and is_ours and self._may_begin(piece, coda, header.offset):
            return header.offset
        indexed = self._indexed(piece.place - CODA_BYTES)
        if indexed is not None:
            return indexed
        return self._index.first if header is None else header.offset

    def _may_begin(self, piece: Piece, coda: int, offset: int) -> bool:
        """Tell whether an object may begin with an offset, by what is indexed."""
        index, place = self._index, piece.place
        nearest = max(index.first, min(offset, index.stop - 1))
        item = index.item(nearest)
        if item is None:
            return True
        if offset < nearest:
            return item.place > place
        if offset > nearest:
            return item.place < place
        # It may also lie on a coda before the record.
        return item.place in (place, place + coda, place - CODA_BYTES)

    def _stops(self, firsts: Sequence[int]) -> list[int]:
        """Return the offset behind the last one of each object."""
        index, last = self._index, self._pieces[-1]
        stops = [
            self._before(piece, behind, first)
            for (piece, behind), first in zip(
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

    def _before(self, piece: Piece, behind: Piece, following: int) -> int:
        """Return the offset behind an object's last, if not the last object."""
        if piece.end >= behind.place:
            return following
        indexed = self._indexed(piece.end - CODA_BYTES)
        if indexed is None or indexed > following:
            return following
        self._lose(piece, indexed, following - 1, f"none before byte {behind.place}")
        return indexed

    def _indexed(self, place: int) -> int | None:
        """Return the offset of the first item at a place or behind it."""
        index = self._index
        return index.least(index.first, index.stop, lambda item: item.place >= place)

    def _walked(self, piece: Piece, first: int) -> int:
        """Return the offset behind the last record, where there is no item at all."""
        stream = self._storage.open(piece.object, 0, piece.end - piece.place)
        try:
            end = walk(stream)
        finally:
            stream.close()
        stop = first if end.last is None else end.last + 1
        if end.damage is not None:
            place = piece.place + end.damage
            expected = f"a record at byte {place}, or a consume queue"
            self._lose(piece, stop, stop, "neither", end.damage, expected)
        return stop

    def _spans(self, piece: Piece, first: int, last: int) -> tuple[OffsetSpan, ...]:
        """Return what of an object has these offsets; whatever the items say, it has.

        Where they cannot be right, all of it may be of these offsets.
        """
        if first > last:
            return ()
        begin, end = self._index.item(first), self._index.item(last)
        place, stop = piece.place, piece.end
        if begin is not None and place - CODA_BYTES <= begin.place < stop:
            place = max(place, begin.place)
        if end is not None and end.place >= place - CODA_BYTES:
            stop = min(stop, max(place, end.place) + end.size_bytes)
        return (OffsetSpan(first, last, place, stop),)

    def _piece_of(self, span: OffsetSpan) -> Piece:
        index = bisect_right(self._pieces, span.place, key=attrgetter("place"))
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
        size_bytes = piece.end - piece.place
        at = size_bytes if offset is None else offset
        more = expected or f"the commit log to go on at byte {piece.end}"
        uri, queue_id = piece.object.uri, self._queue_id
        self._losses.append(Loss(uri, at, queue_id, first, last, more, found))
