"""Assemble chunked messages.

A producer cuts a message that is too large for an entry into chunks, and sends them in
order; other messages may come between them. The message has the position of its last
chunk. So a task may need chunks from runs before those that it reads.

A first chunk restarts its message, since an interrupted producer sends all chunks
again. Any other chunk counts once if it is repeated. Chunks that follow the last one
are repetitions, and are ignored.

Source: ConsumerImpl of Apache Pulsar's client, which drops a message at the first
chunk that is out of order. Different here: a message is dropped only at its last chunk,
and a missing chunk is then reported as a loss.
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
"""How far back to search for the first chunk of a message, in decoded bytes."""


class RunsBefore(Protocol):
    """The runs before those that a task reads; see `SurroundingRuns.before`."""

    def __call__(self) -> Iterator[Iterator[DecodedRun]]:
        """Yield groups of runs, backwards from the first run that the task reads."""


class Chunks:
    """The incomplete messages: some chunks have arrived, but not the last one.

    Args:
        before: Yields the runs before the first run whose chunks are added.

    """

    def __init__(self, before: RunsBefore) -> None:
        self._open: dict[bytes, list[Chunk] | None] = {}  # None: all arrived
        self._earlier = _EarlierChunks(before)

    def __repr__(self) -> str:
        return f"Chunks({len(self._open)} messages)"

    def add(self, chunk: Chunk) -> list[Chunk] | None:
        """Add the next chunk of the topic.

        Returns None unless this is the last chunk of its message. Otherwise returns
        the message's chunks in order, up to the first missing one.
        """
        arrived = _add(self._open, chunk)
        if arrived is not None and arrived[0].number:
            earlier = self._earlier.chunks(chunk.uuid)
            arrived = None if earlier is None else earlier + arrived
        return None if arrived is None else _in_order(arrived)


class MemoryBudget:
    """The memory for the chunked messages that end in one run, all held together.

    Source: `codecs.run_limit_bytes`. Different here: the stored size is that of all
    chunks of these messages.
    """

    def __init__(self) -> None:
        self._stored_bytes = self._taken_bytes = 0

    def __repr__(self) -> str:
        return f"MemoryBudget({self._taken_bytes} bytes of {self._stored_bytes})"

    def take(self, stored_bytes: int, size_bytes: int) -> None:
        """Take memory for a message; raises DamagedMessageError if none is left."""
        stored_bytes += self._stored_bytes
        size_bytes += self._taken_bytes
        if size_bytes > codecs.run_limit_bytes(stored_bytes):
            raise DamagedMessageError(*codecs.RUN_TOO_LARGE)
        self._stored_bytes, self._taken_bytes = stored_bytes, size_bytes


def assemble(count: int, chunks: list[Chunk], budget: MemoryBudget) -> bytes:
    """Return the payload of a message of `count` chunks.

    Raises DamagedMessageError.
    """
    if len(chunks) < count:
        raise DamagedMessageError(
            f"a message of {count} chunks",
            f"no chunk {len(chunks)} before the last one",
        )
    last = chunks[-1]
    stored_bytes = sum(len(chunk.data) for chunk in chunks)
    is_plain = last.codec == codecs.NONE
    size_bytes = stored_bytes if is_plain else last.decoded_bytes
    if size_bytes > codecs.MAX_PAYLOAD_BYTES:
        raise DamagedMessageError(
            f"a message of up to {codecs.MAX_PAYLOAD_BYTES} bytes",
            f"a message of {size_bytes} bytes",
        )
    budget.take(stored_bytes, size_bytes)
    data = b"".join(chunk.data for chunk in chunks)
    if is_plain:
        return data
    target = np.empty(last.decoded_bytes, np.uint8)
    fault = codecs.decompress(last.codec, np.frombuffer(data, np.uint8), target)
    if fault is not None:
        raise DamagedMessageError(*fault)
    return target.tobytes()


def _in_order(arrived: list[Chunk]) -> list[Chunk]:
    ordered: list[Chunk] = []
    for chunk in arrived:
        if chunk.number == len(ordered) and chunk.chunks == arrived[-1].chunks:
            ordered.append(chunk)
    return ordered


class _EarlierChunks:
    """Chunks in the runs before those that a task reads, as far as searched."""

    def __init__(self, before: RunsBefore) -> None:
        self._before = before
        self._groups: Iterator[Iterator[DecodedRun]] | None = None
        self._by_uuid: dict[bytes, list[Chunk] | None] = {}
        self._searched_bytes = 0

    def chunks(self, uuid: bytes) -> list[Chunk] | None:
        """Return the earlier chunks of a message; None if all had arrived before."""
        while not self._is_known(uuid) and self._searched_bytes < MAX_BYTES_BACK:
            if self._groups is None:
                self._groups = self._before()
            group = next(self._groups, None)
            if group is None:
                break
            self._search(group)
        return self._by_uuid.get(uuid, [])

    def _is_known(self, uuid: bytes) -> bool:
        chunks = self._by_uuid.get(uuid, [])
        return chunks is None or (chunks != [] and chunks[0].number == 0)

    def _search(self, group: Iterator[DecodedRun]) -> None:
        in_group: dict[bytes, list[Chunk] | None] = {}
        for run in group:
            for batch in run.batches:
                self._searched_bytes += batch.nbytes
                if parts.has_columns(batch):
                    for _, chunk in parts.chunks_of(batch):
                        _add(in_group, chunk)
        for uuid, chunks in in_group.items():
            if not self._is_known(uuid):
                later = self._by_uuid.get(uuid) or []
                self._by_uuid[uuid] = None if chunks is None else chunks + later


def _add(
    open_messages: dict[bytes, list[Chunk] | None], chunk: Chunk
) -> list[Chunk] | None:
    """Add a chunk to its message; return all its chunks if this is the last one."""
    if chunk.number == 0:
        open_messages[chunk.uuid] = [chunk]
        return None
    arrived = open_messages.setdefault(chunk.uuid, [])
    if arrived is None:
        return None
    arrived.append(chunk)
    if not chunk.is_last:
        return None
    open_messages[chunk.uuid] = None
    return arrived
