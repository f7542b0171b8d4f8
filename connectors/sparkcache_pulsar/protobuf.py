"""Parse many protobuf messages of one type at once, into columns.

Every message is a lane: a start, an end, and the offset up to which it has been read. A
step takes the lanes whose next field has the least number, and moves all of them over
this field with a few numpy calls. Fields are written in ascending order, so lanes with
different optional fields meet again at the next field that they share. So the number
of steps is about the number of different fields, not of messages. Unknown fields are
skipped first, whatever their numbers.

The parser does not trust its input: a lane that does not parse is marked as bad and
stops, without any effect on the others.

Source: the protobuf encoding specification. Different here: a known field of another
wire type makes a lane bad instead of being skipped, and so does a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from sparkcache.arrays import Bools, Bytes, Ints, Ranges, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

T = TypeVar("T")
UInts = npt.NDArray[np.uint64]

SLACK_BYTES = 16
"""How many bytes a buffer must have after the end of its last message."""

MAX_FIELDS = 20_000
"""A message with more fields is bad, so that one step per field cannot take minutes."""

MAX_WORK = 1 << 33
"""How many lanes all steps together may visit: enough for a few thousand steps over the
largest batch. Lanes that are unfinished then are bad. Only contrived messages, no two
of which have their fields in the same order, reach this limit.
"""
_STEP_WORK = 1 << 16  # the fixed cost of a step, in lanes

_DONE = np.uint64(2**64 - 1)
_ALL = slice(None)
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


class Kind(Enum):
    """What a field holds, and whether it repeats."""

    NUMBER = auto()
    RANGE = auto()
    NUMBERS = auto()
    RANGES = auto()


_WIRE_TYPE = {
    Kind.NUMBER: _VARINT,
    Kind.NUMBERS: _VARINT,
    Kind.RANGE: _DELIMITED,
    Kind.RANGES: _DELIMITED,
}


@dataclass(slots=True)
class Numbers:
    """A number per lane; 0 if absent."""

    value: UInts
    present: Bools

    @property
    def signed(self) -> Ints:
        """The same bits as two's complement, which encodes int32 and int64."""
        return self.value.view(np.int64)

    @property
    def is_true(self) -> Bools:
        """The numbers as flags; absent means false."""
        flags: Bools = self.value != 0
        return flags


@dataclass(slots=True)
class Repeated:
    """Any number of values per lane: sorted by lane, then in wire order."""

    lane: Ints
    start: Ints
    length: Ints
    number: UInts


@dataclass(slots=True)
class Table:
    """The result of `parse`: the columns by field number, and which lanes are bad."""

    numbers: dict[int, Numbers]
    ranges: dict[int, Ranges]
    repeated: dict[int, Repeated]
    bad: Bools


def read_varints(buffer: Bytes, offsets: Ints) -> tuple[UInts, Ints]:
    """Read a varint at each offset: its value and its length, 0 if unterminated."""
    first = buffer[offsets]
    if first.max(initial=0) < 0x80:
        return first.astype(np.uint64), np.ones(len(offsets), np.int64)
    goes_on, second = first >= 0x80, buffer[offsets + 1]
    if not (goes_on & (second >= 0x80)).any():
        low = (first & np.uint8(0x7F)).astype(np.uint64)
        high = (second * goes_on).astype(np.uint64)
        return low | high << np.uint64(7), goes_on + np.int64(1)
    word = words(buffer, "<u8")[offsets]
    stops = ~word & np.uint64(0x8080808080808080)
    lowest = stops & (~stops + np.uint64(1))
    mask = lowest | (lowest - np.uint64(1))  # all ones if there is no stop bit
    ones = np.uint64(0x0101010101010101)
    length: Ints = ((mask & ones) * ones >> np.uint64(56)).astype(np.int64)
    value = _seven_bit_groups(word & mask)
    long = np.flatnonzero(stops == 0)
    if len(long):
        value[long], length[long] = _finish_long_varints(
            buffer, offsets[long], value[long]
        )
    return value, length


def _seven_bit_groups(word: UInts) -> UInts:
    """Close the gaps that the eight continuation bits leave, by halves."""
    u = np.uint64
    word = (word & u(0x007F007F007F007F)) | ((word & u(0x7F007F007F007F00)) >> u(1))
    word = (word & u(0x00003FFF00003FFF)) | ((word & u(0x3FFF00003FFF0000)) >> u(2))
    return (word & u(0x000000000FFFFFFF)) | ((word & u(0x0FFFFFFF00000000)) >> u(4))


def _finish_long_varints(
    buffer: Bytes, offsets: Ints, low: UInts
) -> tuple[UInts, Ints]:
    """Add bytes 9 and 10, which negative numbers have, to the low 56 bits."""
    ninth = buffer[offsets + 8].astype(np.uint64)
    tenth = buffer[offsets + 9].astype(np.uint64)
    value = low | (ninth & np.uint64(0x7F)) << np.uint64(56)
    has_tenth = ninth >= 0x80
    value = np.where(has_tenth, value | tenth << np.uint64(63), value)
    length = np.where(has_tenth, 10, 9)
    length[has_tenth & (tenth > 1)] = 0
    return value, length


def parse(buffer: Bytes, start: Ints, end: Ints, fields: Mapping[int, Kind]) -> Table:
    """Parse the messages from `start` to `end` of a buffer.

    The buffer must extend SLACK_BYTES beyond the greatest end.
    """
    return _Parser(buffer, start, end, fields).run()


class _Columns(dict[int, T]):
    """Columns by field number, each made when it is first asked for."""

    def __init__(self, numbers: Iterable[int], new: Callable[[], T]) -> None:
        super().__init__()
        self._numbers, self._new = frozenset(numbers), new

    def __missing__(self, number: int) -> T:
        if number not in self._numbers:
            raise KeyError(number)
        self[number] = column = self._new()
        return column


class _Parser:
    """A parse; `lanes` are indexes, or _ALL."""

    def __init__(
        self, buffer: Bytes, start: Ints, end: Ints, fields: Mapping[int, Kind]
    ) -> None:
        lanes = len(start)
        self._buffer = buffer
        self._fields = fields
        self._offsets = np.array(start, np.int64)
        self._end = end
        self._tag = np.full(lanes, _DONE, np.uint64)
        self._lanes = np.arange(lanes)
        self._field_counts = np.zeros(lanes, np.int32)
        self._parts: dict[int, list[tuple[Ints, Ints, Ints, UInts]]] = {
            number: []
            for number, kind in fields.items()
            if kind in (Kind.NUMBERS, Kind.RANGES)
        }
        self._table = Table(
            _Columns(_of_kind(fields, Kind.NUMBER), lambda: _no_numbers(lanes)),
            _Columns(_of_kind(fields, Kind.RANGE), lambda: _no_ranges(lanes)),
            {},
            np.zeros(lanes, np.bool_),
        )

    def run(self) -> Table:
        self._read_tags(_ALL)
        steps = MAX_WORK // (_STEP_WORK + len(self._lanes))
        while (least := self._tag.min(initial=_DONE)) != _DONE:
            if not steps:
                self._reject(np.flatnonzero(self._tag != _DONE))
                break
            steps -= 1
            chosen = self._tag == least
            if int(least) >> 3 not in self._fields:
                chosen = self._unknown(int(least) & 7)
            self._step(int(least), _ALL if chosen.all() else np.flatnonzero(chosen))
        for number, parts in self._parts.items():
            self._table.repeated[number] = _in_order_of_lanes(parts)
        return self._table

    def _unknown(self, wire_type: int) -> Bools:
        """Return which lanes have an unknown field of this wire type next."""
        known = np.array(list(self._fields), np.uint64)
        unknown = ~np.isin(self._tag >> np.uint64(3), known) & (self._tag != _DONE)
        chosen: Bools = unknown & (self._tag & np.uint64(7) == wire_type)
        return chosen

    def _read_tags(self, lanes: Ints | slice) -> None:
        """Read the next tag of lanes that are between two fields."""
        offsets, end = self._offsets[lanes], self._end[lanes]
        more = offsets < end
        if not more.all():
            self._tag[lanes] = _DONE
            lanes, offsets, end = self._lanes[lanes][more], offsets[more], end[more]
            if not len(lanes):
                return
        tag, length = read_varints(self._buffer, offsets)
        after = offsets + length
        self._offsets[lanes] = after
        self._tag[lanes] = tag
        bad = (length == 0) | (tag < 8) | (tag >= 2**32) | (after > end)
        bad |= self._field_counts[lanes] == MAX_FIELDS
        if bad.any():
            self._reject(self._lanes[lanes][bad])

    def _step(self, tag: int, lanes: Ints | slice) -> None:
        """Move lanes over the field that all of them have next."""
        number, wire_type = tag >> 3, tag & 7
        kind = self._fields.get(number)
        offsets, end = self._offsets[lanes], self._end[lanes]
        if kind is not None and _WIRE_TYPE[kind] != wire_type:
            self._reject(lanes)
            return
        start, length = offsets, np.zeros(len(offsets), np.int64)
        value = np.zeros(len(offsets), np.uint64)
        if wire_type in (_VARINT, _DELIMITED):
            value, size = read_varints(self._buffer, offsets)
            start = offsets + size
            ok = (size > 0) & (start <= end)
            if wire_type == _DELIMITED:
                ok &= value <= (end - start).clip(0).view(np.uint64)
                length = np.where(ok, value, 0).astype(np.int64)
        elif wire_type in (_FIXED64, _FIXED32):
            length += 8 if wire_type == _FIXED64 else 4
            ok = offsets + length <= end
        else:
            ok = np.zeros(len(offsets), np.bool_)
        if not ok.all():
            self._reject(self._lanes[lanes][~ok])
            lanes, start, length = self._lanes[lanes][ok], start[ok], length[ok]
            value = value[ok]
        if kind is not None:
            self._store(number, lanes, start, length, value)
        self._offsets[lanes] = start + length
        self._field_counts[lanes] += 1
        self._read_tags(lanes)

    def _store(
        self,
        number: int,
        lanes: Ints | slice,
        start: Ints,
        length: Ints,
        value: UInts,
    ) -> None:
        if number in self._parts:
            self._parts[number].append((self._lanes[lanes], start, length, value))
        elif self._fields[number] is Kind.NUMBER:
            numbers = self._table.numbers[number]
            numbers.value[lanes] = value
            numbers.present[lanes] = True
        else:
            ranges = self._table.ranges[number]
            ranges.start[lanes] = start
            ranges.length[lanes] = length
            ranges.present[lanes] = True

    def _reject(self, lanes: Ints | slice) -> None:
        self._table.bad[lanes] = True
        self._tag[lanes] = _DONE


def _of_kind(fields: Mapping[int, Kind], wanted: Kind) -> Iterator[int]:
    return (number for number, kind in fields.items() if kind is wanted)


def _no_numbers(lanes: int) -> Numbers:
    return Numbers(np.zeros(lanes, np.uint64), np.zeros(lanes, np.bool_))


def _no_ranges(lanes: int) -> Ranges:
    start, length = np.zeros((2, lanes), np.int64)
    return Ranges(start, length, np.zeros(lanes, np.bool_))


def _in_order_of_lanes(parts: list[tuple[Ints, Ints, Ints, UInts]]) -> Repeated:
    if not parts:
        none = np.zeros(0, np.int64)
        return Repeated(none, none, none, none.view(np.uint64))
    columns = zip(*parts, strict=True)
    lane, start, length, number = (np.concatenate(column) for column in columns)
    order = np.argsort(lane, kind="stable")
    return Repeated(lane[order], start[order], length[order], number[order])
