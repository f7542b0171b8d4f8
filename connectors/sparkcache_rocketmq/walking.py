"""Walk over the records of a run, and skip damaged bytes.

A record is the next one of the run if it belongs to this queue, starts at the offset
that it states, its parts add up to its size, and it has the queue offset that is due.
Such records usually follow each other, and many are checked at once. Everything else is
handled one by one:

    a coda          is skipped
    a repeat        of offsets that were passed already is skipped. A broker that stops
                    before it has committed the consume queue writes the records again,
                    and every broker writes an inner batch once for each of its messages
    a jump          to a later offset loses the offsets between. Nothing else protects
                    a queue offset, so a jump is believed only if the next record
                    continues from there or, when the run ends with it, unless the next
                    record belongs to the run too. The number of messages of an inner
                    batch is checked in the same way
    anything else   is damage. The next record is searched for by its magic number. A
                    record states where it starts, so bytes inside a body are not taken
                    for one. Its offset shows how many offsets are lost

The end of a run depends only on the bytes from its beginning on. So its losses are the
same whether it is loaded alone or with others. An inner batch that spans two runs
belongs to both: each run takes the next copy of its record. If only one copy exists,
the second run loses its part of the batch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
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
_MAGIC_PREFIX = b"\xda\xa3\x20"
_MAGIC_START, _LOG_OFFSET_START, _FLAG_START = 4, 28, 36
_LEAST_STRIDE, _MOST_STRIDE = 16, 1 << 30


@dataclass(frozen=True, slots=True)
class Hole:
    """Missing entries: the position where the fault begins, and the fault."""

    position: int
    first: int
    last: int
    expected: str
    found: str


@dataclass(slots=True)
class Walk:
    """State of a walk over the records of one run.

    Attributes:
        queue: The queue that the records must belong to.
        base: Start of the data in the flat file.
        entry: The queue offset that is due.
        last: The last queue offset of the run.
        position: Start of the next record in the data.
        pieces: Start and end of the run's records; adjacent records are merged.
        holes: The lost entries of the run.

    """

    queue: Queue
    base: int
    entry: int
    last: int
    position: int
    pieces: list[tuple[int, int]] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    _fault: tuple[int, str, str] | None = None
    _stride: int = _MOST_STRIDE
    _starts: list[Ints] = field(default_factory=list)

    def advance(self, data: bytearray, limit: int, *, is_complete: bool) -> bool:
        """Continue towards the end of the run; return whether it was reached.

        If it was not reached, more data is needed.

        Args:
            data: The bytes from `base` on that have arrived so far.
            limit: Number of bytes from `base` to the end of the extent.
            is_complete: Whether no more data will arrive.

        """
        while self.entry <= self.last:
            if self._fault is None and self._pass_many(data):
                continue
            if self._pass_one(data, limit, is_complete=is_complete):
                continue
            if not is_complete:
                return False
            self.position = len(data)
            self._lose(self.last, f"entry {self.entry}", END)
        return True

    def move_back(self, dropped_bytes: int) -> None:
        """Go on in data without its first bytes, which precede those of the run."""
        self.base += dropped_bytes
        self.position -= dropped_bytes
        self.pieces = [
            (start - dropped_bytes, end - dropped_bytes) for start, end in self.pieces
        ]
        self.holes = [
            replace(hole, position=hole.position - dropped_bytes) for hole in self.holes
        ]
        self._starts = [starts - dropped_bytes for starts in self._starts]
        if self._fault is not None:
            position, expected, found = self._fault
            self._fault = position - dropped_bytes, expected, found

    def starts(self) -> Ints:
        """Return the starts of the run's records in its piece; none if it has more."""
        if len(self.pieces) != 1:
            return np.zeros(0, np.int64)
        return np.concatenate(self._starts) - self.pieces[0][0]

    def _pass_many(self, data: bytearray) -> bool:
        """Pass records that are due, and repeats; return whether any was passed.

        Checking many records to pass only a few is wasteful, so the next call then
        checks fewer.
        """
        most = min(self.last - self.entry + 1, self._stride)
        starts = chain(data, self.position, most)
        if not starts:
            return False
        records = read(np.frombuffer(data, np.uint8), np.array(starts, np.int64))
        taken = records.offsets_taken()
        ours = self._are_ours(records) & (taken > 0)
        first, after = records.queue_offset, records.queue_offset + taken
        reached = np.maximum.accumulate(np.append(self.entry, after))
        due = reached[:-1]
        is_due = (first == due) & (after - 1 <= self.last)
        is_batch = records.has(INNER_BATCH)
        if is_batch.any():
            is_due &= _are_followed(records, ours, taken) | ~is_batch
        is_repeat = (first < due) & (after <= due)
        count = _leading(ours & (due <= self.last) & (is_due | is_repeat))
        if count:
            self._keep_some(records, np.flatnonzero(is_due[:count]))
            self.position, self.entry = int(records.end[count - 1]), int(reached[count])
        wide = min(4 * self._stride, _MOST_STRIDE)
        self._stride = wide if count == len(starts) else _LEAST_STRIDE
        return count > 0

    def _pass_one(self, data: bytearray, limit: int, *, is_complete: bool) -> bool:
        """Pass a coda, a record or damage; return whether that needs no more data."""
        position = self.position
        if is_coda(data, position) and position + CODA_BYTES <= len(data):
            self.position += CODA_BYTES
            return True
        if position + HEADER_BYTES > len(data):
            return False
        header = _HEADER.unpack_from(data, position)
        size, offset = header[0], header[5]
        if not self._is_header(header, position) or size > limit - position:
            fault = self._header_fault(header, position, limit)
            return self._damage(data, limit, *fault)
        if position + size > len(data):
            fault = f"entry {offset} of {size} bytes", END
            return is_complete and self._damage(data, limit, *fault)
        records = read(np.frombuffer(data, np.uint8), np.array([position]))
        taken = int(records.offsets_taken()[0])
        if not taken or not self._are_ours(records)[0]:
            expected = f"a record of topic {self.queue.topic} of {size} bytes"
            found = "a record whose parts do not add up to that"
            return self._damage(data, limit, expected, found)
        return self._pass_record(
            data, limit, position + size, offset, taken, is_complete=is_complete
        )

    def _pass_record(
        self,
        data: bytearray,
        limit: int,
        end: int,
        first: int,
        taken: int,
        *,
        is_complete: bool,
    ) -> bool:
        """Pass a sound record, which may have any offsets."""
        after = first + taken
        if after <= self.entry:
            self.position = end
            return True
        is_batch = _is_batch(data, self.position)
        if first != self.entry or is_batch:
            following = end + CODA_BYTES if is_coda(data, end) else end
            needed = end - self.position if is_batch else HEADER_BYTES
            if not is_complete and len(data) < min(following + needed, limit):
                return False
            if not self._is_believed(data, following, first, after):
                expected, found = f"a record of entry {self.entry}", f"one of {first}"
                self._note(expected, found if taken == 1 else f"{found}-{after - 1}")
                self.position = end
                return True
            if first > self.entry:
                last = min(first - 1, self.last)
                self._lose(last, f"entry {self.entry}", f"entry {first}")
            if first > self.last:
                return True  # the record belongs to the next run
        self._fault = None
        self._starts.append(np.array([self.position]))
        self._keep(end)
        self.entry = after
        return True

    def _is_believed(
        self, data: bytearray, following: int, first: int, after: int
    ) -> bool:
        """Return whether to believe a record that skips offsets, or takes many.

        If the run is loaded alone, nothing is known of the records after it.

        Args:
            data: The bytes that have arrived so far.
            following: Start of the next record.
            first: First queue offset of the record.
            after: Queue offset after the record's last one.

        """
        if first < self.entry and (self.pieces or self.holes):
            return False  # the run already has some of these offsets
        if self._is_repeated(data, following, after - first):
            return True
        due = self._offset(data, following)
        if first <= self.last < after:
            return due is None or not self.entry <= due <= self.last
        if following + HEADER_BYTES > len(data):
            return first > self.last
        return due == after

    def _is_repeated(self, data: bytearray, following: int, taken: int) -> bool:
        """Return whether the next record repeats an inner batch; ignore the body."""
        if not _is_batch(data, self.position) or self._offset(data, following) is None:
            return False
        header, other = (
            data[start : start + HEADER_BYTES] for start in (self.position, following)
        )
        if (
            header[:_LOG_OFFSET_START] + header[_FLAG_START:]
            != other[:_LOG_OFFSET_START] + other[_FLAG_START:]
        ):
            return False
        if following + int.from_bytes(other[:4], "big") > len(data):
            return False
        records = read(np.frombuffer(data, np.uint8), np.array([following]))
        return int(records.offsets_taken()[0]) == taken

    def _offset(self, data: bytearray, position: int) -> int | None:
        """Return the queue offset of the header at a position; None if none."""
        if position + HEADER_BYTES > len(data):
            return None
        header = _HEADER.unpack_from(data, position)
        offset: int = header[5]
        return offset if self._is_header(header, position) else None

    def _damage(self, data: bytearray, limit: int, expected: str, found: str) -> bool:
        """Search for the next record; return whether a possible one was found."""
        self._note(expected, found)
        position = self.position + 1
        while (magic := data.find(_MAGIC_PREFIX, position + _MAGIC_START)) >= 0:
            position = magic - _MAGIC_START
            if position + HEADER_BYTES > len(data):
                break
            header = _HEADER.unpack_from(data, position)
            if self._is_header(header, position) and header[0] <= limit - position:
                self.position = position
                return True
            position += 1
        # The last bytes may be the beginning of a header: search them again later.
        self.position = max(self.position, len(data) - HEADER_BYTES)
        return False

    def _is_header(self, header: tuple[int, ...], position: int) -> bool:
        size, magic, _, queue_id, _, offset, log_offset, _ = header
        return (
            magic in (V1, V2)
            and log_offset == self.base + position
            and queue_id == self.queue.id
            and size >= LEAST_BYTES
            and offset >= 0
        )

    def _are_ours(self, records: Records) -> Bools:
        """Return which records are sound, of this queue, and at their stated offset."""
        start = records.start
        magic = records.int32(start + 4) & 0xFFFFFFFF
        ours: Bools = records.sound & ((magic == V1) | (magic == V2))
        ours &= records.int32(start + 12) == self.queue.id
        ours &= records.int64(start + 28) == start + self.base
        topic = np.frombuffer(self.queue.topic.encode(), np.uint8)
        ours &= records.topic_end - records.topic == len(topic)
        indexes: Ints = records.topic[ours][:, None] + np.arange(len(topic))
        ours[ours] = (records.buffer[indexes] == topic).all(axis=1)
        return ours

    def _keep_some(self, records: Records, lanes: Ints) -> None:
        """Keep these records, which belong to the run, and pass the last of them."""
        start, end = records.start[lanes], records.end[lanes]
        self._starts.append(start)
        apart = np.flatnonzero(start[1:] != end[:-1])
        begins = start[np.append(0, apart + 1)[: len(lanes)]]
        ends = end[np.append(apart, len(lanes) - 1)[: len(lanes)]]
        for self.position, stop in zip(begins.tolist(), ends.tolist(), strict=True):
            self._keep(stop)

    def _keep(self, end: int) -> None:
        """Keep the records up to `end`, which belong to the run, and pass them."""
        start, self.position = self.position, end
        if self.pieces and self.pieces[-1][1] == start:
            start, _ = self.pieces.pop()
        self.pieces.append((start, end))

    def _note(self, expected: str, found: str) -> None:
        """Remember a fault, if it is the first since the last record."""
        if self._fault is None:
            self._fault = self.position, expected, found

    def _lose(self, last: int, expected: str, found: str) -> None:
        """Report the entries up to `last` as lost, with the noted fault or this one."""
        position, expected, found = self._fault or (self.position, expected, found)
        self.holes.append(Hole(position, self.entry, last, expected, found))
        self.entry, self._fault = last + 1, None

    def _header_fault(
        self, header: tuple[int, ...], position: int, limit: int
    ) -> tuple[str, str]:
        size, magic, _, queue_id, _, offset, log_offset, _ = header
        return (
            f"a record of entry {self.entry} of queue {self.queue.id} at byte "
            f"{self.base + position} of at most {limit - position} bytes",
            f"one of entry {offset} of queue {queue_id} at byte {log_offset} of {size} "
            f"bytes, with magic {magic:#x}",
        )


def _are_followed(records: Records, ours: Bools, taken: Ints) -> Bools:
    """Return which records precede the next offset's record, or their own copy."""
    first, after = records.queue_offset, records.queue_offset + taken
    is_same = first[1:] == first[:-1]
    is_same &= taken[1:] == taken[:-1]
    for field_start in (0, 4, 8, 16, _FLAG_START):
        value = records.int32(records.start + field_start)
        is_same &= value[1:] == value[:-1]
    return np.append(ours[1:] & (is_same | (first[1:] == after[:-1])), False)


def _is_batch(data: bytearray, position: int) -> bool:
    """Return whether a record is an inner batch, by its system flag."""
    flag = int.from_bytes(data[position + _FLAG_START : position + HEADER_BYTES], "big")
    return flag & INNER_BATCH == INNER_BATCH


def _leading(flags: Bools) -> int:
    """Return how many are true before the first that is not."""
    return len(flags) if flags.all() else int(flags.argmin())
