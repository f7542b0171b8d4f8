"""A data file of which some ranges were fetched, as a file that Arrow can read.

It takes the memory of these ranges, however long the file is.
"""

from __future__ import annotations

from bisect import bisect_right
from io import SEEK_CUR, SEEK_END
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from sparkcache.connector import ByteStream
    from sparkcache.model import Extent

_READ_BYTES = 1 << 20
_TAIL_BYTES = 8
_MAGIC = b"PAR1"
_PADDING_BYTES = 100  # Arrow reads these after a chunk of an early writer: PARQUET-816


class FetchedFile:
    """The fetched ranges of a file, by their offsets; see `io.RawIOBase`."""

    def __init__(self, size_bytes: int, ranges: dict[int, pa.Buffer]) -> None:
        self._size_bytes = size_bytes
        self._begins = sorted(ranges)
        self._ranges = ranges
        self._at = 0
        self.closed = False

    def __repr__(self) -> str:
        return f"FetchedFile({len(self._ranges)} ranges of {self._size_bytes} bytes)"

    @classmethod
    def fetch(cls, size_bytes: int, extent: Extent, stream: ByteStream) -> FetchedFile:
        """Read the ranges of an extent from a stream. Raises SourceError."""
        planned = extent.ranges or ((extent.offset, extent.size_bytes),)
        ranges = {offset: _range(stream, length) for offset, length in planned}
        return cls(size_bytes, ranges)

    def footer(self) -> bytes:
        """Return the footer, without its length. Raises pa.ArrowInvalid, OSError."""
        end = max(0, self._size_bytes - _TAIL_BYTES)
        tail = self._read_at(end, _TAIL_BYTES).to_pybytes()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length > end:
            raise pa.ArrowInvalid(
                "expected the end of a Parquet file that is not encrypted, found "
                f"{tail.hex(' ') or 'nothing'}"
            )
        return bytes(self._read_at(end - length, length).to_pybytes())

    def read_buffer(self, size_bytes: int) -> pa.Buffer:
        """Return the next bytes, without copying them. Raises OSError."""
        data = self._read_at(self._at, size_bytes)
        self._at += data.size
        return data

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes. Raises OSError."""
        return bytes(self.read_buffer(size_bytes).to_pybytes())

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to an offset."""
        before = {SEEK_CUR: self._at, SEEK_END: self._size_bytes}
        self._at = before.get(whence, 0) + offset
        return self._at

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._at

    def close(self) -> None:
        """Mark the file as closed."""
        self.closed = True

    def _read_at(self, offset: int, size_bytes: int) -> pa.Buffer:
        size_bytes = max(0, min(size_bytes, self._size_bytes - offset))
        number = bisect_right(self._begins, offset) - 1
        found = pa.py_buffer(b"")
        if number >= 0:
            begin = self._begins[number]
            data = self._ranges[begin]
            skipped = min(offset - begin, data.size)
            found = data.slice(skipped, min(size_bytes, data.size - skipped))
        missing = size_bytes - found.size
        if missing > _PADDING_BYTES or (missing and not found.size):
            raise OSError(
                f"bytes {offset} to {offset + size_bytes} are not all in the ranges "
                "that were planned"
            )
        if missing:
            return pa.py_buffer(found.to_pybytes() + bytes(missing))
        return found


def _range(stream: ByteStream, size_bytes: int) -> pa.Buffer:
    """Read a range into memory of its own."""
    data = bytearray(size_bytes)
    filled = 0
    while filled < size_bytes:
        part = stream.read(min(size_bytes - filled, _READ_BYTES))
        data[filled : filled + len(part)] = part
        filled += len(part)
    return pa.py_buffer(data)
