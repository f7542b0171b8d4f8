"""Find the properties of many messages at once, stored as `name 01 value 02` each.

The last 02 may be missing. A property without name, value or 01 is ignored; one without
name or 01 is malformed, too.

Source: MessageDecoder.string2messageProperties of Apache RocketMQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkcache import arrays
from sparkcache.arrays import Ranges, words

if TYPE_CHECKING:
    from sparkcache.arrays import Bools, Bytes, Ints

_NAME_END, _END = 1, 2
_SLACK_BYTES = 8


@dataclass
class Properties:
    """The properties of some messages.

    Attributes:
        rows: Number of messages.
        row: The message of each property; ascending.
        buffer: The bytes that hold them.
        name: Start of each name in the buffer.
        name_end: End of each name; the value starts one byte later.
        value_end: End of each value.
        malformed_row: The message of each malformed property.
        malformed: Start of each malformed property.
        malformed_end: End of each malformed property.

    """

    rows: int
    row: Ints
    buffer: Bytes
    name: Ints
    name_end: Ints
    value_end: Ints
    malformed_row: Ints
    malformed: Ints
    malformed_end: Ints

    def maps(self) -> pa.Array:
        """Return all properties, as one map per message."""
        everywhere = np.ones(len(self.row), np.bool_)
        length = self.name_end - self.name
        names = arrays.string(self.buffer, Ranges(self.name, length, everywhere))
        return arrays.maps(self.row, names, self._texts, self.rows)

    def values(self, name: str) -> pa.Array:
        """Return the values of one property, the last if a message has several."""
        matches = np.flatnonzero(self._have_name(name.encode()))
        if not len(matches):
            return pa.nulls(self.rows, pa.string())
        index = np.full(self.rows, -1)
        index[self.row[matches]] = matches
        absent = index < 0
        return self._texts.take(pa.array(index, mask=absent if absent.any() else None))

    @cached_property
    def _texts(self) -> pa.Array:
        """The value of each property."""
        start = self.name_end + 1
        everywhere = np.ones(len(start), np.bool_)
        length = self.value_end - start
        return arrays.string(self.buffer, Ranges(start, length, everywhere))

    def rows_with(self, name: str) -> Ints:
        """Return the messages that have a property of this name, of 8 bytes or more."""
        encoded = name.encode()
        begin = words(self.buffer, ">u8")[self.name]
        matches = self.name_end - self.name == len(encoded)
        matches &= begin == int.from_bytes(encoded[:8], "big")
        found = (
            index
            for index in np.flatnonzero(matches).tolist()
            if self.buffer[self.name[index] : self.name_end[index]].tobytes() == encoded
        )
        return self.row[np.fromiter(found, np.int64)]

    def _have_name(self, name: bytes) -> Bools:
        """Compare names of 4 or 8 bytes as numbers."""
        word = words(self.buffer, f">u{len(name)}")[self.name]
        matches: Bools = self.name_end - self.name == len(name)
        matches &= word == int.from_bytes(name, "big")
        return matches


def find(buffer: Bytes, start: Ints, end: Ints) -> Properties:
    """Find the properties of messages in these ranges of the buffer, ascending."""
    length = end - start
    stored = arrays.compact(buffer, start, length)
    text = np.zeros(stored.size + _SLACK_BYTES, np.uint8)
    text[: stored.size] = np.frombuffer(stored, np.uint8)
    row_end = np.cumsum(length)
    name, value_end = _pairs(text[: stored.size], row_end[length > 0])
    name_ends = np.append(np.flatnonzero(text == _NAME_END), len(text))
    name_end = name_ends[np.searchsorted(name_ends, name)]
    row = np.searchsorted(row_end, name, side="right")
    formed = (name_end > name) & (name_end < value_end)
    whole = formed & (name_end < value_end - 1)
    return Properties(
        len(start),
        row[whole],
        text,
        name[whole],
        name_end[whole],
        value_end[whole],
        malformed_row=row[~formed],
        malformed=name[~formed],
        malformed_end=value_end[~formed],
    )


def _pairs(text: Bytes, row_end: Ints) -> tuple[Ints, Ints]:
    """Return starts and ends of properties: each ends at 02, or with its message."""
    end = np.flatnonzero(text == _END)
    open_end = row_end[text[row_end - 1] != _END]
    if not len(open_end):
        return np.append(0, end + 1)[:-1], end
    # At the same position, the end of a message sorts before the 02, because that 02
    # belongs to the next message.
    both = np.sort(np.append(2 * end + 1, 2 * open_end))
    end, is_separator = both >> 1, both & 1
    return np.append(0, end + is_separator)[:-1], end
