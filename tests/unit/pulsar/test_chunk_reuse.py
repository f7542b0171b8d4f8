"""Producers that use uuids again, with entries damaged, against a slow model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import given, settings

from sparkcache.testing import MemoryStorage
from tests.effort import tries

from .resolving import read, single, values
from .topics import store


@dataclass(frozen=True)
class Sent:
    """A message that a producer has begun to send.

    Attributes:
        uuid: Other messages may have it, too.
        time_ms: When it was sent; no other message was sent then.
        chunks: Number of its chunks.
        has_times: Whether each chunk has a time of its own.

    """

    uuid: str
    time_ms: int
    chunks: int
    has_times: bool

    @property
    def value(self) -> bytes:
        return bytes([self.time_ms % 256]) * self.chunks

    def encode(self, number: int) -> bytes:
        time_ms = 100 * self.time_ms + (number if self.has_times else 0)
        entry = single(self.value, publish_time_ms=time_ms)
        return entry.encode_chunks(1, self.uuid)[number]


class Stored(NamedTuple):
    """An entry of the topic: a chunk of a message."""

    sent: Sent
    number: int
    is_damaged: bool

    @property
    def is_last(self) -> bool:
        return self.number == self.sent.chunks - 1

    def encode(self) -> bytes:
        data = self.sent.encode(self.number)
        return data[:-1] + bytes([data[-1] ^ 1]) if self.is_damaged else data


@st.composite
def topics(draw: st.DrawFn) -> list[Stored]:
    """Draw what producers send, interleaved; each starts several times."""
    times = iter(range(1, 1000))
    written = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        mine = []
        for _ in range(draw(st.integers(0, 4))):
            sent = Sent(name, next(times), draw(st.integers(2, 4)), draw(st.booleans()))
            stop = draw(st.sampled_from([sent.chunks] * 3 + [1, sent.chunks - 1]))
            mine += [(sent, number) for number in range(stop)]
            for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):  # sends some again
                begin = draw(st.integers(0, stop - 1))
                mine += [(sent, number) for number in range(begin, stop)]
        written.append(mine)
    order = draw(st.permutations([n for n, mine in enumerate(written) for _ in mine]))
    bad = st.sampled_from([False, False, False, True])
    return [Stored(*written[n].pop(0), draw(bad)) for n in order]


def outcomes(topic: list[Stored], end: int) -> set[bytes | str | None]:
    """Say what may be read at an entry: a value, "lost" or nothing."""
    sent, is_damaged = topic[end].sent, topic[end].is_damaged
    if is_damaged:
        return {"lost"}
    if not topic[end].is_last:
        return {None}
    mine = [
        (position, entry)
        for position, entry in enumerate(topic[: end + 1])
        if entry.sent == sent and not entry.is_damaged
    ]
    has_beginning = any(entry.number == 0 for _, entry in mine)
    begin = max((at for at, entry in mine if entry.number == 0), default=mine[0][0])
    mine = [(position, entry) for position, entry in mine if position >= begin]
    if any(entry.is_last for _, entry in mine[:-1]):
        return {None}
    # Chunks with times of their own could be of two messages.
    is_doubtful = sent.has_times and any(e.is_damaged for e in topic[begin:end])
    also: set[bytes | str | None] = {"lost"} if is_doubtful else set()
    if not has_beginning and not any(entry.is_damaged for entry in topic[:begin]):
        return {None} | also  # trimmed
    wanted = 0
    for _, entry in mine:
        wanted += entry.number == wanted
    return {"lost"} if wanted < sent.chunks else {sent.value, *also}


@settings(max_examples=tries(150))
@given(topics(), st.integers(0, 5), st.integers(1, 6), st.integers(1, 20))
def test_every_message_is_a_row_or_a_loss(
    topic: list[Stored], trimmed: int, parts: int, ledger_entries: int
) -> None:
    topic = topic[trimmed:]
    storage = MemoryStorage()
    for first in range(0, len(topic), ledger_entries):
        entries = [entry.encode() for entry in topic[first : first + ledger_entries]]
        store(entries, ledger=first, storage=storage)
    if not topic:
        return
    rows, losses = read(storage, parts=parts)
    found: dict[int, bytes | str] = {
        loss.ledger + loss.first: "lost" for loss in losses
    }
    assert len(found) == len(losses)
    for row, value in zip(rows, values(rows), strict=True):
        position = row["__ledgerId"] + row["__entryId"]
        assert position not in found
        found[position] = value
    for position in range(len(topic)):
        assert found.get(position) in outcomes(topic, position)
