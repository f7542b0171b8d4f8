"""The two flat files of a queue, commit log and consume queue, each cut into objects.

Positions are counted in bytes through all objects. The position of a byte changes
neither when old objects are deleted nor when objects are merged.
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
    """One object of a flat file.

    Attributes:
        start: Start of the object in the flat file.
        end: End of the object, as listed.
        object: The object to read; without a version if it may grow.

    """

    start: int
    end: int
    object: ObjectId


class FlatFile:
    """Objects of a flat file, in order; bytes between them may be missing."""

    def __init__(self, pieces: Sequence[Piece] = ()) -> None:
        self.pieces = tuple(pieces)
        self.begin = pieces[0].start if pieces else 0
        self.end = pieces[-1].end if pieces else 0

    def __repr__(self) -> str:
        return f"FlatFile({self.begin}-{self.end} in {len(self.pieces)} objects)"

    def up_to(self, end: int) -> FlatFile:
        """Return the flat file, cut off at this end."""
        kept = [
            Piece(piece.start, min(piece.end, end), piece.object)
            for piece in self.pieces
            if piece.start < end
        ]
        return FlatFile(kept)

    def read(self, storage: Storage, start: int, size_bytes: int) -> bytes | None:
        """Return a range; None if part of it is missing. Raises SourceError."""
        data = b""
        while len(data) < size_bytes:
            position = start + len(data)
            index = bisect_right(self.pieces, position, key=attrgetter("start")) - 1
            if index < 0 or position >= self.pieces[index].end:
                return None
            piece = self.pieces[index]
            wanted = min(size_bytes - len(data), piece.end - position)
            data += read_range(storage, piece.object, position - piece.start, wanted)
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
    """The two flat files of a queue."""

    commit_log: FlatFile
    consume_queue: FlatFile


def read_queues(
    storage: Storage, is_deleted: Callable[[Key], bool]
) -> dict[Queue, QueueFiles]:
    """List the files of each queue. Raises SourceError."""
    listed: defaultdict[Queue, list[tuple[Key, ObjectId]]] = defaultdict(list)
    prefix = f"{storage.root}/"
    for object_id in steps(storage.list(), f"Listing {storage.root}", "objects"):
        key = Key.parse(object_id.uri.removeprefix(prefix))
        if key is not None and not is_deleted(key):
            listed[key.queue].append((key, object_id))
    return {
        queue: QueueFiles(
            _flat_file(item for item in objects if item[0].kind == COMMIT_LOG),
            _flat_file(item for item in objects if item[0].kind == CONSUME_QUEUE),
        )
        for queue, objects in sorted(listed.items())
    }


def _flat_file(objects: Iterable[tuple[Key, ObjectId]]) -> FlatFile:
    """Sort objects by position. The last may grow, unless it is a chunk or merged."""
    by_base = sorted(objects, key=lambda item: (item[0].base, item[0].start))
    pieces: list[Piece] = []
    growing = False
    for _, group in groupby(by_base, key=lambda item: item[0].base):
        segment = list(group)
        whole = [item for item in segment if item[0].chunk_offset is None]
        for key, object_id in whole[:1] or segment:  # a merge may leave chunks
            pieces.append(Piece(key.start, key.start + object_id.size_bytes, object_id))
            growing = key.chunk_offset is None and not key.is_merged
    if growing:
        last = pieces.pop()
        pieces.append(Piece(last.start, last.end, last.object.may_grow()))
    return FlatFile([piece for piece in pieces if piece.end > piece.start])
