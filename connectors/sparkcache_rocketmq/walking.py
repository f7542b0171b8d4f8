"""Walks over the records of a run, and around what is damaged.

A record is the next one if it is of this queue, lies where it says to lie, its parts
make up its size, and its queue offset is the one that is due. Of those there are many
in a row, looked at together. What else there may be, one by one:

    a coda          passed over
    a repeat        of offsets that were there: passed over. A broker that ends before
                    it has committed the consume queue writes such records again, and
                    every broker does an inner batch, once for each of its messages
    a jump          to a later offset: those between are lost. It is believed only if
                    the next record goes on from there, since nothing else protects a
                    queue offset; if the run ends with it, unless the next one is of
                    the run too. So is the number of messages of an inner batch
    anything else   is damage. The next record is looked for by its magic number; it
                    says where it lies, so what a body may hold is not taken for one.
                    Its offset tells how many are lost

Where a run ends depends only on the bytes from its beginning on. So what is lost of it
is the same whether a load brings it alone or with others. An inner batch that does not
end in the run in which it begins is of both: each takes the next of the records that
there are of it. If there is one alone, what the second would have of it is lost.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sparkcache_rocketmq.records import (
    CODA_BYTES,
    HEADER_BYTES,
    INNER_BATCH,
    LEAST_BYTES,
    V1,
    V2,
    chain,
    is_coda,
    read,
)

if TYPE_CHECKING:
    from sparkcache.arrays import Bools, Ints
    from sparkcache_rocketmq.names import Queue
    from sparkcache_rocketmq.records import Records

END = "the end of the data"

_HEADER = struct.Struct(">IIIiiqqI")
_MAGIC_START = b"\xda\xa3\x20"
_MAGIC_AT, _PLACE_AT, _FLAG_AT = 4, 28, 36
_LEAST_STRIDE, _MOST_STRIDE = 16, 1 << 30


@dataclass(frozen=True, slots=True)
class Hole:
    """Entries that are not there: where the trouble begins, and what it is."""

    at: int
    first: int
    last: int
    expected: str
    found: str


@dataclass(slots=True)
class Walk:
    """A way over the records of one run, as far as it has got.

    Attributes:
        queue: Whose records they are.
        base: Where in the flat file the data begins.
        entry: The queue offset that is due.
        last: The last of the run.
        at: Where in the data the next record is due.
        pieces: Where the records of the run begin and end: neighbours together.
        holes: What of the run is lost.

    """

    queue: Queue
    base: int
    entry: int
    last: int
    at: int
    pieces: list[tuple[int, int]] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    _fault: tuple[int, str, str] | None = None
    _stride: int = _MOST_STRIDE

    def advance(self, data: bytearray, room: int, *, is_all: bool) -> bool:
        """Go on to the end of the run; tell whether it was reached.

        If not, more data is needed. `room` is how much of it there may be, `is_all`
        tells that there will be no more.
        """
        while self.entry <= self.last:
            if self._fault is None and self._pass_many(data):
                continue
            if self._pass_one(data, room, is_all=is_all):
                continue
            if not is_all:
                return False
            self.at = len(data)
            self._lose(self.last, f"entry {self.entry}", END)
        return True

    def _pass_many(self, data: bytearray) -> bool:
        """Pass over records that are due, or repeats; tell whether there were any.

        A look at many that leads to a few is a waste, so the next one is at less.
        """
        most = min(self.last - self.entry + 1, self._stride)
        starts = chain(data, self.at, most)
        if not starts:
            return False
        records = read(np.frombuffer(data, np.uint8), np.array(starts, np.int64))
        taken = records.offsets_taken()
        ours = self._are_ours(records) & (taken > 0)
        first, behind = records.queue_offset, records.queue_offset + taken
        reached = np.maximum.accumulate(np.append(self.entry, behind))
        due = reached[:-1]
        is_due = (first == due) & (behind - 1 <= self.last)
        is_batch = records.has(INNER_BATCH)
        if is_batch.any():
            is_due &= _are_followed(records, ours, taken) | ~is_batch
        is_repeat = (first < due) & (behind <= due)
        count = _leading(ours & (due <= self.last) & (is_due | is_repeat))
        if count:
            self._keep_some(records, np.flatnonzero(is_due[:count]))
            self.at, self.entry = int(records.end[count - 1]), int(reached[count])
        wide = min(4 * self._stride, _MOST_STRIDE)
        self._stride = wide if count == len(starts) else _LEAST_STRIDE
        return count > 0

    def _pass_one(self, data: bytearray, room: int, *, is_all: bool) -> bool:
        """Pass over what is not simply due; tell whether something was decided."""
        at = self.at
        if is_coda(data, at) and at + CODA_BYTES <= len(data):
            self.at += CODA_BYTES
            return True
        if at + HEADER_BYTES > len(data):
            return False
        header = _HEADER.unpack_from(data, at)
        size, offset = header[0], header[5]
        if not self._is_header(header, at) or size > room - at:
            return self._damage(data, room, *self._header_fault(header, at, room))
        if at + size > len(data):
            fault = f"entry {offset} of {size} bytes", END
            return is_all and self._damage(data, room, *fault)
        records = read(np.frombuffer(data, np.uint8), np.array([at]))
        taken = int(records.offsets_taken()[0])
        if not taken or not self._are_ours(records)[0]:
            expected = f"a record of topic {self.queue.topic} of {size} bytes"
            found = "one whose parts are not that"
            return self._damage(data, room, expected, found)
        return self._pass_record(data, room, at + size, offset, taken, is_all=is_all)

    def _pass_record(
        self,
        data: bytearray,
        room: int,
        end: int,
        first: int,
        taken: int,
        *,
        is_all: bool,
    ) -> bool:
        """Pass over a record that is sound; its offsets may be any."""
        behind = first + taken
        if behind <= self.entry:
            self.at = end
            return True
        is_batch = _is_batch(data, self.at)
        if first != self.entry or is_batch:
            after = end + CODA_BYTES if is_coda(data, end) else end
            needed = end - self.at if is_batch else HEADER_BYTES
            if not is_all and len(data) < min(after + needed, room):
                return False
            if not self._is_believed(data, after, first, behind):
                what = f"a record of entry {self.entry}", f"one of {first}"
                self._note(
                    *what if taken == 1 else (what[0], f"{what[1]}-{behind - 1}")
                )
                self.at = end
                return True
            if first > self.entry:
                last = min(first - 1, self.last)
                self._lose(last, f"entry {self.entry}", f"entry {first}")
            if first > self.last:
                return True  # it is for the next run
        self._fault = None
        self._keep(end)
        self.entry = behind
        return True

    def _is_believed(
        self, data: bytearray, after: int, first: int, behind: int
    ) -> bool:
        """Tell whether to believe a record that skips offsets, or takes many.

        Of what comes behind the run nothing is known where that run is loaded alone.
        """
        if first < self.entry and (self.pieces or self.holes):
            return False  # it has what the run has already
        if self._is_again(data, after, behind - first):
            return True
        due = self._offset(data, after)
        if first <= self.last < behind:
            return due is None or not self.entry <= due <= self.last
        if after + HEADER_BYTES > len(data):
            return first > self.last
        return due == behind

    def _is_again(self, data: bytearray, after: int, taken: int) -> bool:
        """Tell whether an inner batch comes a second time, whatever its body."""
        if not _is_batch(data, self.at) or self._offset(data, after) is None:
            return False
        one, other = (data[at : at + HEADER_BYTES] for at in (self.at, after))
        if one[:_PLACE_AT] + one[_FLAG_AT:] != other[:_PLACE_AT] + other[_FLAG_AT:]:
            return False
        if after + int.from_bytes(other[:4], "big") > len(data):
            return False
        found = read(np.frombuffer(data, np.uint8), np.array([after]))
        return int(found.offsets_taken()[0]) == taken

    def _offset(self, data: bytearray, at: int) -> int | None:
        """Return the queue offset that a header has, if there is one."""
        if at + HEADER_BYTES > len(data):
            return None
        header = _HEADER.unpack_from(data, at)
        offset: int = header[5]
        return offset if self._is_header(header, at) else None

    def _damage(self, data: bytearray, room: int, expected: str, found: str) -> bool:
        """Look for the next record; tell whether there may be one."""
        self._note(expected, found)
        at = self.at + 1
        while (magic := data.find(_MAGIC_START, at + _MAGIC_AT)) >= 0:
            at = magic - _MAGIC_AT
            if at + HEADER_BYTES > len(data):
                break
            header = _HEADER.unpack_from(data, at)
            if self._is_header(header, at) and header[0] <= room - at:
                self.at = at
                return True
            at += 1
        # What may be the beginning of a header is looked at again with what follows.
        self.at = max(self.at, len(data) - HEADER_BYTES)
        return False

    def _is_header(self, header: tuple[int, ...], at: int) -> bool:
        size, magic, _, queue_id, _, offset, place, _ = header
        return (
            magic in (V1, V2)
            and place == self.base + at
            and queue_id == self.queue.id
            and size >= LEAST_BYTES
            and offset >= 0
        )

    def _are_ours(self, records: Records) -> Bools:
        """Tell which records are sound, of this queue, and where they say to be."""
        start = records.start
        magic = records.int32(start + 4) & 0xFFFFFFFF
        ours: Bools = records.sound & ((magic == V1) | (magic == V2))
        ours &= records.int32(start + 12) == self.queue.id
        ours &= records.int64(start + 28) == start + self.base
        topic = np.frombuffer(self.queue.topic.encode(), np.uint8)
        ours &= records.topic_end - records.topic == len(topic)
        places: Ints = records.topic[ours][:, None] + np.arange(len(topic))
        ours[ours] = (records.buffer[places] == topic).all(axis=1)
        return ours

    def _keep_some(self, records: Records, lanes: Ints) -> None:
        """Pass to the last of these records, which belong to the run."""
        start, end = records.start[lanes], records.end[lanes]
        apart = np.flatnonzero(start[1:] != end[:-1])
        begins = start[np.append(0, apart + 1)[: len(lanes)]]
        ends = end[np.append(apart, len(lanes) - 1)[: len(lanes)]]
        for self.at, stop in zip(begins.tolist(), ends.tolist(), strict=True):
            self._keep(stop)

    def _keep(self, end: int) -> None:
        """Pass over records that belong to the run."""
        start, self.at = self.at, end
        if self.pieces and self.pieces[-1][1] == start:
            start, _ = self.pieces.pop()
        self.pieces.append((start, end))

    def _note(self, expected: str, found: str) -> None:
        """Remember the first thing that is wrong since the last record."""
        if self._fault is None:
            self._fault = self.at, expected, found

    def _lose(self, last: int, expected: str, found: str) -> None:
        """Give up the entries up to `last`, for what was noted first, or this."""
        at, expected, found = self._fault or (self.at, expected, found)
        self.holes.append(Hole(at, self.entry, last, expected, found))
        self.entry, self._fault = last + 1, None

    def _header_fault(
        self, header: tuple[int, ...], at: int, room: int
    ) -> tuple[str, str]:
        size, magic, _, queue_id, _, offset, place, _ = header
        return (
            f"a record of entry {self.entry} of queue {self.queue.id} at place "
            f"{self.base + at} of up to {room - at} bytes",
            f"one of entry {offset} of queue {queue_id} at place {place} of {size} "
            f"bytes, with magic {magic:#x}",
        )


def _are_followed(records: Records, ours: Bools, taken: Ints) -> Bools:
    """Tell which go before the record of the next offset, or before themselves."""
    first, behind = records.queue_offset, records.queue_offset + taken
    is_same = first[1:] == first[:-1]
    is_same &= taken[1:] == taken[:-1]
    for at in (0, 4, 8, 16, _FLAG_AT):
        value = records.int32(records.start + at)
        is_same &= value[1:] == value[:-1]
    return np.append(ours[1:] & (is_same | (first[1:] == behind[:-1])), False)


def _is_batch(data: bytearray, at: int) -> bool:
    """Tell whether a record is an inner batch, by its system flag."""
    flag = int.from_bytes(data[at + _FLAG_AT : at + HEADER_BYTES], "big")
    return flag & INNER_BATCH == INNER_BATCH


def _leading(flags: Bools) -> int:
    """Return how many are true before the first that is not."""
    return len(flags) if flags.all() else int(flags.argmin())
