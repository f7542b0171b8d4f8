"""Assemble chunked messages.

A producer cuts a message that is too large for an entry into chunks, and sends them in
order; other messages may come between them. The message has the position of its last
chunk. So a task may need chunks from runs before those that it reads.

A first chunk restarts its message, since an interrupted producer sends all chunks
again. Any other chunk counts once if it is repeated. Chunks that follow the last one,
and were sent at the time of a chunk before it, are repetitions, and are ignored. Other
chunks that follow are of another message, whose first chunk is lost.

A message that began before the topic's first entry was trimmed, not lost. If nothing
before its first chunk in the topic is lost, that is where its missing chunks were.

A uuid is made of the producer's name and a sequence id. A producer with a fixed name
that starts again may count from the same sequence id, and so use a uuid again. Such
messages differ in their publish time. Clients send all chunks of a message with one
time, except those for Java up to version 2.7, which send each chunk with its own. So
chunks with different times are of one message only if no entry between them is lost,
which could have been the first chunk of another.

Source: ConsumerImpl of Apache Pulsar's client, which drops a message at the first
chunk that is out of order, and knows messages by their uuid. Different here: a message
is dropped only at its last chunk, a missing chunk is then reported as a loss, and
messages with one uuid are distinguished.

Source: ProducerImpl of the clients for Java and C++, and that for Go.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from sparkcache.model import Position
from sparkcache_pulsar import codecs, parts
from sparkcache_pulsar.faults import DamagedMessageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkcache.connector import DecodedRun
    from sparkcache.model import Loss
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
        missing: Returns the losses of entries that are in no run.

    """

    def __init__(
        self, before: RunsBefore, missing: Callable[[], Iterable[Loss]]
    ) -> None:
        self._lost = LostEntries(missing)
        self._by_uuid: dict[bytes, _Arrivals] = {}
        self._earlier = _EarlierChunks(before, self._lost)

    def __repr__(self) -> str:
        return f"Chunks({len(self._by_uuid)} messages)"

    def learn(self, losses: Iterable[Loss]) -> None:
        """Record the losses of the next run, before its chunks are added."""
        self._lost.add(losses)

    def add(self, chunk: Chunk) -> list[Chunk] | None:
        """Add the next chunk of the topic.

        Returns None unless this is the last chunk of its message, and if the beginning
        of the message was trimmed. Otherwise returns the message's chunks in order, up
        to the first missing one.
        """
        arrivals = self._by_uuid.setdefault(chunk.uuid, _Arrivals(self._lost))
        if chunk.is_last and not arrivals.is_known:
            arrivals.follow(self._earlier.pop(chunk.uuid))
        is_trimmed = self._is_trimmed(arrivals, chunk)
        arrived = arrivals.add(chunk)
        if arrived is None or is_trimmed:
            return None
        return _in_order(arrived)

    def _is_trimmed(self, arrivals: _Arrivals, chunk: Chunk) -> bool:
        """Return whether the next chunk's message began before the topic does."""
        if not (arrivals.begins_before and self._earlier.is_exhausted):
            return False
        first = arrivals.first_with(chunk)
        return first is not None and not self._lost.any_before(first)


class LostEntries:
    """The entries of a topic that are lost, as far as its runs were read.

    Args:
        missing: Returns the losses of entries that are in no run.

    """

    def __init__(self, missing: Callable[[], Iterable[Loss]]) -> None:
        self._missing: Callable[[], Iterable[Loss]] | None = missing
        self._ranges: list[tuple[Position, Position]] = []

    def __repr__(self) -> str:
        return f"LostEntries({len(self._ranges)} ranges)"

    def add(self, losses: Iterable[Loss]) -> None:
        """Add losses that do not overlap those added before."""
        for loss in losses:
            first, last = (
                Position(loss.ledger, entry) for entry in (loss.first, loss.last)
            )
            insort(self._ranges, (first, last))

    def between(self, first: Chunk, last: Chunk) -> bool:
        """Return whether any entry between two chunks is lost."""
        start, stop = (Position(chunk.ledger, chunk.entry) for chunk in (first, last))
        ranges = self._all()
        before = bisect_left(ranges, (stop, stop))
        return before > 0 and ranges[before - 1][1] > start

    def any_before(self, chunk: Chunk) -> bool:
        """Return whether any entry before a chunk is lost."""
        position = Position(chunk.ledger, chunk.entry)
        ranges = self._all()
        return bool(ranges) and ranges[0][0] < position

    def _all(self) -> list[tuple[Position, Position]]:
        """Return the ranges in order; few tasks need those of entries in no run."""
        if self._missing is not None:
            self.add(self._missing())
            self._missing = None
        return self._ranges


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


def assemble(count: int, chunks: list[Chunk], budget: MemoryBudget) -> bytes | None:
    """Return the payload of a message of `count` chunks; None if it is a tombstone.

    Raises DamagedMessageError.
    """
    if len(chunks) < count:
        raise DamagedMessageError(
            f"a message of {count} chunks",
            f"no chunk {len(chunks)} before the last one",
        )
    last = chunks[-1]
    pieces = [chunk.data for chunk in chunks if chunk.data is not None]
    if len(pieces) < count:
        return None
    stored_bytes = sum(map(len, pieces))
    is_plain = last.codec == codecs.NONE
    size_bytes = stored_bytes if is_plain else last.decoded_bytes
    if size_bytes > codecs.MAX_PAYLOAD_BYTES:
        raise DamagedMessageError(
            f"a message of up to {codecs.MAX_PAYLOAD_BYTES} bytes",
            f"a message of {size_bytes} bytes",
        )
    budget.take(stored_bytes, size_bytes)
    data = b"".join(pieces)
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
        if chunk.number == len(ordered):
            ordered.append(chunk)
    return ordered


_Sending: TypeAlias = "tuple[int, int, int | None]"


def _sending(chunk: Chunk) -> _Sending:
    """Return what repetitions of a chunk have in common with it."""
    return chunk.sequence_id, chunk.chunks, chunk.publish_time


class _Arrivals:
    """The chunks with one uuid that have arrived, of the message that is not complete.

    Attributes:
        is_known: Whether no earlier chunk with this uuid matters. Until then, nothing
            says which chunks are of one message.
        begins_before: Whether their message may begin before them.

    """

    def __init__(self, lost: LostEntries) -> None:
        self.is_known = False
        self.begins_before = True
        self._lost = lost
        self._chunks: list[Chunk] = []
        self._ended: frozenset[_Sending] = frozenset()  # of the complete message

    def __repr__(self) -> str:
        return f"<{len(self._chunks)} chunks>"

    def add(self, chunk: Chunk) -> list[Chunk] | None:
        """Add a chunk to its message; return all its chunks if this is the last one."""
        if chunk.number == 0:
            self.is_known, self._chunks, self._ended = True, [], frozenset()
            self.begins_before = False
        elif _sending(chunk) in self._ended:
            return None
        elif self.is_known and self._chunks and not self._continues(chunk):
            self.begins_before, self._chunks = False, []
        self._chunks.append(chunk)
        if not chunk.is_last:
            return None
        arrived, self._chunks = self._chunks, []
        self.is_known, self._ended = True, frozenset(map(_sending, arrived))
        self.begins_before = False
        return arrived

    def first_with(self, chunk: Chunk) -> Chunk | None:
        """Return the first chunk of the next chunk's message; None if it was another.

        That is, if the chunks so far are of another message than the next one.
        """
        if not self._chunks:
            return chunk
        return self._chunks[0] if self._continues(chunk) else None

    def follow(self, earlier: _Arrivals) -> None:
        """Add earlier chunks before those that have arrived, none of them the last."""
        chunks, self._chunks = self._chunks, earlier._chunks
        self.is_known, self._ended = earlier.is_known, earlier._ended
        self.begins_before = earlier.begins_before
        for chunk in chunks:
            self.add(chunk)

    def settle(self) -> None:
        """Assign the chunks to messages, since no earlier ones can be found."""
        if not self.is_known:
            chunks, self._chunks, self.is_known = self._chunks, [], True
            for chunk in chunks:
                self.add(chunk)

    def _continues(self, chunk: Chunk) -> bool:
        """Return whether a chunk is of the same message as those before it."""
        last = self._chunks[-1]
        if (last.sequence_id, last.chunks) != (chunk.sequence_id, chunk.chunks):
            return False
        if any(chunk.publish_time == other.publish_time for other in self._chunks):
            return True
        is_repeated = any(chunk.number == other.number for other in self._chunks)
        return not is_repeated and not self._lost.between(last, chunk)


class _EarlierChunks:
    """Chunks in the runs before those that a task reads, as far as searched.

    Attributes:
        is_exhausted: Whether the search has reached the topic's first entry.

    """

    def __init__(self, before: RunsBefore, lost: LostEntries) -> None:
        self.is_exhausted = False
        self._before = before
        self._lost = lost
        self._groups: Iterator[Iterator[DecodedRun]] | None = None
        self._by_uuid: dict[bytes, _Arrivals] = {}
        self._searched_bytes = 0

    def pop(self, uuid: bytes) -> _Arrivals:
        """Return the earlier chunks with a uuid, and forget them."""
        while not self._is_known(uuid) and self._searched_bytes < MAX_BYTES_BACK:
            if self._groups is None:
                self._groups = self._before()
            group = next(self._groups, None)
            if group is None:
                self.is_exhausted = True
                break
            self._search(group)
        arrivals = self._by_uuid.pop(uuid, _Arrivals(self._lost))
        arrivals.settle()
        return arrivals

    def _is_known(self, uuid: bytes) -> bool:
        return uuid in self._by_uuid and self._by_uuid[uuid].is_known

    def _search(self, group: Iterator[DecodedRun]) -> None:
        in_group: dict[bytes, _Arrivals] = {}
        for run in group:
            self._lost.add(run.losses)
            for batch in run.batches:
                self._searched_bytes += batch.nbytes
                if parts.has_columns(batch):
                    for _, chunk in parts.chunks_of(batch):
                        arrivals = in_group.setdefault(
                            chunk.uuid, _Arrivals(self._lost)
                        )
                        arrivals.add(chunk)
        for uuid, arrivals in in_group.items():
            later = self._by_uuid.setdefault(uuid, arrivals)
            if later is not arrivals and not later.is_known:
                later.follow(arrivals)
