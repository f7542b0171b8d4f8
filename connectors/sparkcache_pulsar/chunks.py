"""Puts chunked messages together.

A producer cuts a message that is too large for an entry into chunks, and sends one
after the other, between which other messages may come. The message lies where its last
chunk does. So what a task needs of runs that it does not read lies before them.

A first chunk begins anew, since a producer that was interrupted sends all again. Of
others sent again one counts. What follows the last one is a repetition of what was
there already.

Source: ConsumerImpl of Apache Pulsar's client, which gives up a message at the first
chunk that is not the next one. Different here: nothing is given up before its last
chunk has come; and what is then missing is a loss, not silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from sparkcache_pulsar import codecs, parts
from sparkcache_pulsar.faults import DamagedMessageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.connector import DecodedRun
    from sparkcache_pulsar.parts import Chunk

MAX_BYTES_BACK = 1 << 30
"""How far back the beginning of a message is looked for, in decoded bytes."""


class Before(Protocol):
    """The runs before those that a task reads; see `Neighbours.before`."""

    def __call__(self) -> Iterator[Iterator[DecodedRun]]:
        """Yield groups of runs, back from the first that the task reads."""


class Chunks:
    """The messages of which some chunks have come, but not the last.

    Args:
        before: Yields the runs before the first whose chunks are added.

    """

    def __init__(self, before: Before) -> None:
        self._open: dict[bytes, list[Chunk] | None] = {}  # None: all have come
        self._earlier = _Earlier(before)

    def __repr__(self) -> str:
        return f"Chunks({len(self._open)} messages)"

    def add(self, chunk: Chunk) -> list[Chunk] | None:
        """Take the next chunk of the topic.

        Returns the message's chunks if it is the last one of them: all of them in
        order, or those before the first that is missing. Otherwise None.
        """
        come = _add(self._open, chunk)
        if come is not None and come[0].number:
            earlier = self._earlier.of(chunk.uuid)
            come = None if earlier is None else earlier + come
        return None if come is None else _in_order(come)


class Room:
    """What the messages that end in one run may become: they are in memory together.

    Source: `codecs.most_of_run`. Different here: what is stored are all their chunks.
    """

    def __init__(self) -> None:
        self._stored_bytes = self._taken_bytes = 0

    def __repr__(self) -> str:
        return f"Room({self._taken_bytes} bytes of {self._stored_bytes})"

    def take(self, stored_bytes: int, size_bytes: int) -> None:
        """Take room for a message; raises DamagedMessageError if there is none."""
        stored_bytes += self._stored_bytes
        size_bytes += self._taken_bytes
        if size_bytes > codecs.most_of_run(stored_bytes):
            raise DamagedMessageError(*codecs.TOO_MUCH)
        self._stored_bytes, self._taken_bytes = stored_bytes, size_bytes


def put_together(count: int, chunks: list[Chunk], room: Room) -> bytes:
    """Return the payload of a message of so many chunks; raises DamagedMessageError."""
    if len(chunks) < count:
        raise DamagedMessageError(
            f"a message of {count} chunks",
            f"no chunk {len(chunks)} in what comes before the last one",
        )
    last = chunks[-1]
    stored_bytes = sum(len(chunk.data) for chunk in chunks)
    is_plain = last.codec == codecs.NONE
    size_bytes = stored_bytes if is_plain else last.decoded_bytes
    if size_bytes > codecs.MAX_PAYLOAD_BYTES:
        raise DamagedMessageError(
            f"a message of up to {codecs.MAX_PAYLOAD_BYTES} bytes",
            f"one of {size_bytes}",
        )
    room.take(stored_bytes, size_bytes)
    data = b"".join(chunk.data for chunk in chunks)
    if is_plain:
        return data
    target = np.empty(last.decoded_bytes, np.uint8)
    fault = codecs.decompress(last.codec, np.frombuffer(data, np.uint8), target)
    if fault is not None:
        raise DamagedMessageError(*fault)
    return target.tobytes()


def _in_order(come: list[Chunk]) -> list[Chunk]:
    ordered: list[Chunk] = []
    for chunk in come:
        if chunk.number == len(ordered) and chunk.chunks == come[-1].chunks:
            ordered.append(chunk)
    return ordered


class _Earlier:
    """Chunks in runs before those that a task reads, as far as was looked."""

    def __init__(self, before: Before) -> None:
        self._before = before
        self._groups: Iterator[Iterator[DecodedRun]] | None = None
        self._found: dict[bytes, list[Chunk] | None] = {}
        self._passed_bytes = 0

    def of(self, uuid: bytes) -> list[Chunk] | None:
        """Return the chunks of a message that there are; None if all have come."""
        while not self._is_known(uuid) and self._passed_bytes < MAX_BYTES_BACK:
            if self._groups is None:
                self._groups = self._before()
            group = next(self._groups, None)
            if group is None:
                break
            self._look_at(group)
        return self._found.get(uuid, [])

    def _is_known(self, uuid: bytes) -> bool:
        found = self._found.get(uuid, [])
        return found is None or (found != [] and found[0].number == 0)

    def _look_at(self, group: Iterator[DecodedRun]) -> None:
        in_group: dict[bytes, list[Chunk] | None] = {}
        for run in group:
            for batch in run.batches:
                self._passed_bytes += batch.nbytes
                if parts.has_columns(batch):
                    for _, chunk in parts.chunks_of(batch):
                        _add(in_group, chunk)
        for uuid, chunks in in_group.items():
            if not self._is_known(uuid):
                later = self._found.get(uuid) or []
                self._found[uuid] = None if chunks is None else chunks + later


def _add(open_: dict[bytes, list[Chunk] | None], chunk: Chunk) -> list[Chunk] | None:
    """Add a chunk to those of its message; return all that have come with the last."""
    if chunk.number == 0:
        open_[chunk.uuid] = [chunk]
        return None
    come = open_.setdefault(chunk.uuid, [])
    if come is None:
        return None
    come.append(chunk)
    if not chunk.is_last:
        return None
    open_[chunk.uuid] = None
    return come
