"""Build Arrow arrays from ranges of a buffer, without a Python object per value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TIMESTAMP = pa.timestamp("us", tz="UTC")

_MAX_MILLIS = (1 << 63) // 1000 - 1
_FEW = 16  # pairs of a row, each of which is compared with all others


@dataclass(slots=True)
class Ranges:
    """One range of the buffer per row; empty where the value is not present."""

    start: Ints
    length: Ints
    present: Bools


def words(buffer: Bytes, dtype: str) -> npt.NDArray[Any]:
    """View a buffer as integers that begin at each of its bytes.

    Index it with an array of offsets; `take` would copy all of it.
    """
    item = np.dtype(dtype)
    return np.ndarray((len(buffer) - item.itemsize + 1,), item, buffer, 0, (1,))


def binary(buffer: Bytes, ranges: Ranges) -> pa.Array:
    """Copy ranges of a buffer to a binary array; null where not present."""
    rows = len(ranges.present)
    if not ranges.present.any():
        return pa.nulls(rows, pa.binary())
    start, length, present = ranges.start, ranges.length, ranges.present
    validity = None
    if not present.all():
        validity = bitmap(present)
        start, length = start[present], length[present]
        offsets = np.zeros(rows + 1, np.int32)
        offsets[1:][present] = length
        np.cumsum(offsets, out=offsets)
    else:
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(length, out=offsets[1:])
    buffers = [validity, pa.py_buffer(offsets), compact(buffer, start, length)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def string(buffer: Bytes, ranges: Ranges) -> pa.Array:
    """Copy ranges of a buffer to a string array.

    Invalid UTF-8 is replaced by U+FFFD, as Java does: clients that are not written in
    Java may have stored any bytes.
    """
    array = binary(buffer, ranges)
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.string())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (
            None if b is None else b.decode(errors="replace") for b in array.to_pylist()
        )
        return pa.array(texts, pa.string())


def int64(values: Ints, present: Bools | None = None) -> pa.Array:
    """Return an int64 array; null where not present."""
    return fixed(pa.int64(), np.ascontiguousarray(values, np.int64), present)


def int32(values: Ints, present: Bools | None = None) -> pa.Array:
    """Return an int32 array; null where not present."""
    return fixed(pa.int32(), values.astype(np.int32), present)


def timestamp(millis: Ints, present: Bools | None = None) -> pa.Array:
    """Return a timestamp array; null where not present, or too large for microseconds.

    Such times occur: some producers write nanoseconds in place of milliseconds.
    """
    fits = (millis >= -_MAX_MILLIS) & (millis <= _MAX_MILLIS)
    present = fits if present is None else fits & present
    return fixed(TIMESTAMP, np.where(present, millis, 0) * 1000, present)


def constant(value: str | int | None, type_: pa.DataType, rows: int) -> pa.Array:
    """Return an array that repeats one value."""
    encoded = value.encode() if isinstance(value, str) else b""
    if not 0 < len(encoded) * rows < 1 << 31:
        return pa.repeat(pa.scalar(value, type_), rows)
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(encoded))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(encoded * rows)]
    return pa.Array.from_buffers(type_, rows, buffers)


def maps(row: Ints, keys: pa.Array, values: pa.Array, rows: int) -> pa.Array:
    """Return a map<string, string> array of the pairs of keys and values.

    `row` is the row of each pair, ascending. Of pairs with the same row and key the
    last one is kept, as clients read them.
    """
    last = last_of_each(row, keys)
    if len(last) < len(row):
        row, keys, values = row[last], keys.take(last), values.take(last)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=rows), out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values)


def last_of_each(row: Ints, keys: pa.Array) -> Ints:
    """Return the indexes of the last pair of each row and key, ascending."""
    if not (row[1:] == row[:-1]).any():
        return np.arange(len(row))
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    most = int(np.bincount(row).max())
    if most <= _FEW and not any(
        ((row[n:] == row[:-n]) & (codes[n:] == codes[:-n])).any()
        for n in range(1, most)
    ):
        return np.arange(len(row))
    backwards = (row * len(encoded.dictionary) + codes)[::-1]
    _, first = np.unique(backwards, return_index=True)
    return np.sort(len(row) - 1 - first)


def fixed(type_: pa.DataType, values: np.ndarray, present: Bools | None) -> pa.Array:
    """Return an array of a fixed-width type over `values`; null where not present."""
    if present is not None and not present.any():
        return pa.nulls(len(values), type_)
    validity = None if present is None or present.all() else bitmap(present)
    buffers = [validity, pa.py_buffer(values)]
    return pa.Array.from_buffers(type_, len(values), buffers)


def bitmap(present: Bools) -> pa.Buffer:
    """Return the validity bitmap of an Arrow array."""
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def compact(buffer: Bytes, start: Ints, length: Ints) -> pa.Buffer:
    """Copy ranges of a buffer to a contiguous buffer."""
    if not len(start):
        return pa.py_buffer(b"")
    end = start + length
    if (start[1:] < end[:-1]).any():
        return pa.py_buffer(_gather(buffer, start, length))
    # View the buffer as an array whose even elements are the ranges and whose odd
    # elements are the gaps. Arrow then takes the even ones by memcpy.
    offsets = np.empty(2 * len(start), np.int64)
    offsets[0::2], offsets[1::2] = start, end
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(buffer)]
    both = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return both.take(pa.array(np.arange(0, len(offsets), 2))).buffers()[2]


def _gather(buffer: Bytes, start: Ints, length: Ints) -> Bytes:
    """Copy ranges that overlap or are out of order, byte by byte."""
    total = int(length.sum())
    shift = np.repeat(start - (np.cumsum(length) - length), length)
    gathered: Bytes = buffer[np.arange(total) + shift]
    return gathered
