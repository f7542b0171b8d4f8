"""The two files that a queue is stored in, each cut into objects.

Their bytes are counted through all objects: what begins at byte n of a flat file does
so whatever was cut off at its front, or how it is cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from sparkcache.progress import steps
from sparkcache_rocketmq.names import COMMIT_LOG, CONSUME_QUEUE, Key, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId


@dataclass(frozen=True, slots=True)
class Piece:
    """An object of a flat file.

    Attributes:
        place: Where in the flat file it begins.
        end: Where it ends, as it was listed.
        object: What to read; without a version if it may grow.

    """

    place: int
    end: int
    object: ObjectId


class FlatFile:
    """The objects of a flat file, in order; there may be holes between them."""

    def __init__(self, pieces: Sequence[Piece] = ()) -> None:
        self.pieces = tuple(pieces)
        self.begin = pieces[0].place if pieces else 0
        self.end = pieces[-1].end if pieces else 0

    def __repr__(self) -> str:
        return f"FlatFile({self.begin}-{self.end} in {len(self.pieces)} objects)"

    def up_to(self, end: int) -> FlatFile:
        """Return it without what was appended behind a place."""
        kept = [
            Piece(piece.place, min(piece.end, end), piece.object)
            for piece in self.pieces
            if piece.place < end
        ]
        return FlatFile(kept)

    def read(self, storage: Storage, place: int, size_bytes: int) -> bytes | None:
        """Return bytes of it; None if they are not all there. Raises SourceError."""
        data = b""
        while len(data) < size_bytes:
            at = place + len(data)
            index = bisect_right(self.pieces, at, key=attrgetter("place")) - 1
            if index < 0 or at >= self.pieces[index].end:
                return None
            piece = self.pieces[index]
            wanted = min(size_bytes - len(data), piece.end - at)
            data += read_range(storage, piece.object, at - piece.place, wanted)
        return data


def read_range(
    storage: Storage, object_id: ObjectId, offset: int, size_bytes: int
) -> bytes:
    """Return a range of an object. Raises SourceError."""
    stream = storage.open(object_id, offset, size_bytes)
    data = b""
    try:
        while chunk := stream.read(size_bytes - len(data)):
            data += chunk
    finally:
        stream.close()
    return data


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """What is stored of a queue."""

    commit_log: FlatFile
    consume_queue: FlatFile


def read_queues(
    storage: Storage, is_deleted: Callable[[Key], bool]
) -> dict[Queue, QueueFiles]:
    """List what is stored of each queue. Raises SourceError."""
    listed: defaultdict[Queue, list[tuple[Key, ObjectId]]] = defaultdict(list)
    prefix = f"{storage.root}/"
    for found in steps(storage.list(), f"Listing {storage.root}", "objects"):
        key = Key.parse(found.uri.removeprefix(prefix))
        if key is not None and not is_deleted(key):
            listed[key.queue].append((key, found))
    return {
        queue: QueueFiles(
            _flat_file(item for item in of_queue if item[0].kind == COMMIT_LOG),
            _flat_file(item for item in of_queue if item[0].kind == CONSUME_QUEUE),
        )
        for queue, of_queue in sorted(listed.items())
    }


def _flat_file(found: Iterable[tuple[Key, ObjectId]]) -> FlatFile:
    """Put objects in order. The last segment may grow, unless its chunks are more."""
    by_base = sorted(found, key=lambda item: (item[0].base, item[0].place))
    pieces: list[Piece] = []
    growing = False
    for _, group in groupby(by_base, key=lambda item: item[0].base):
        of_segment = list(group)
        whole = [item for item in of_segment if item[0].behind is None]
        for key, object_id in whole[:1] or of_segment:  # chunks may be left of a merge
            pieces.append(Piece(key.place, key.place + object_id.size_bytes, object_id))
            growing = key.behind is None and not key.is_merged
    if growing:
        last = pieces.pop()
        pieces.append(Piece(last.place, last.end, last.object.may_grow()))
    return FlatFile([piece for piece in pieces if piece.end > piece.place])
