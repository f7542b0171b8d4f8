"""Decode values of Pulsar's primitive schemas, a whole column at once.

    INT8, INT16, INT32, INT64, FLOAT, DOUBLE   big-endian
    BOOLEAN                                    a byte, 0 for false
    STRING                                     UTF-8
    DATE, TIMESTAMP                            int64, ms since 1970
    TIME                                       int64, ms since 1970, on that day
    INSTANT                                    int64 seconds since 1970, int32 ns
    LOCAL_DATE                                 int64, days since 1970
    LOCAL_TIME                                 int64, ns since midnight
    LOCAL_DATE_TIME                            int64 days since 1970, int64 ns of day
    BYTES, NONE                                unchanged

Source: the classes of org.apache.pulsar.client.impl.schema. DATE is a java.util.Date
there, so it has a time of day; TIME is a java.sql.Time, whose day is that of UTC.
Different here: a value with extra bytes is a fault, and so is text that is not UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.arrays import TIMESTAMP, fixed
from sparkcache_pulsar.schemas.decoded import Decoded
from sparkcache_pulsar.schemas.shapes import LOCAL_TIMESTAMP, SINCE_MIDNIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache.arrays import Bools, Ints

_MICROS_OF_DAY = 86_400_000_000
_MAX_MICROS = (1 << 63) - 1
_MAX_DAYS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class _Layout:
    """The binary layout of values of fixed size.

    `convert` takes the fields of all values, and returns the column's words and which
    of them are valid.
    """

    type: pa.DataType
    fields: np.dtype[np.void]
    convert: Callable[[np.ndarray], tuple[np.ndarray, Bools]]


def _as_is(values: np.ndarray) -> tuple[np.ndarray, Bools]:
    words = values["f0"]
    return words.astype(words.dtype.newbyteorder("=")), np.ones(len(words), np.bool_)


def _scaled(values: Ints, factor: int) -> tuple[Ints, Bools]:
    """Return the products, and which of them fit."""
    fits: Bools = np.abs(values.clip(-_MAX_MICROS)) <= _MAX_MICROS // factor
    return np.where(fits, values, 0) * factor, fits


def _millis(values: np.ndarray) -> tuple[np.ndarray, Bools]:
    return _scaled(values["f0"].astype(np.int64), 1_000)


def _time(values: np.ndarray) -> tuple[np.ndarray, Bools]:
    millis = values["f0"].astype(np.int64) % (_MICROS_OF_DAY // 1_000)
    return _scaled(millis, 1_000)


def _instant(values: np.ndarray) -> tuple[np.ndarray, Bools]:
    micros, fits = _scaled(values["f0"].astype(np.int64), 1_000_000)
    nanos = values["f1"].astype(np.int64)
    fits &= (nanos >= 0) & (nanos < 1_000_000_000)
    fits &= micros <= _MAX_MICROS - 1_000_000
    return np.where(fits, micros, 0) + np.where(fits, nanos, 0) // 1_000, fits


def _local_date(values: np.ndarray) -> tuple[np.ndarray, Bools]:
    days = values["f0"].astype(np.int64)
    fits = (days >= -_MAX_DAYS) & (days <= _MAX_DAYS)
    return np.where(fits, days, 0).astype(np.int32), fits


def _local_time(values: np.ndarray) -> tuple[np.ndarray, Bools]:
    nanos = values["f0"].astype(np.int64)
    return nanos // 1_000, (nanos >= 0) & (nanos < _MICROS_OF_DAY * 1_000)


def _local_date_time(values: np.ndarray) -> tuple[np.ndarray, Bools]:
    micros, fits = _scaled(values["f0"].astype(np.int64), _MICROS_OF_DAY)
    nanos = values["f1"].astype(np.int64)
    fits &= (nanos >= 0) & (nanos < _MICROS_OF_DAY * 1_000)
    fits &= micros <= _MAX_MICROS - _MICROS_OF_DAY
    return np.where(fits, micros, 0) + np.where(fits, nanos, 0) // 1_000, fits


def _layout(
    type_: pa.DataType,
    fields: str,
    convert: Callable[[np.ndarray], tuple[np.ndarray, Bools]] = _as_is,
) -> _Layout:
    formats = enumerate(fields.split(","))
    dtype = np.dtype([(f"f{number}", text) for number, text in formats])
    return _Layout(type_, dtype, convert)


_LAYOUTS = {
    "INT8": _layout(pa.int8(), ">i1"),
    "INT16": _layout(pa.int16(), ">i2"),
    "INT32": _layout(pa.int32(), ">i4"),
    "INT64": _layout(pa.int64(), ">i8"),
    "FLOAT": _layout(pa.float32(), ">f4"),
    "DOUBLE": _layout(pa.float64(), ">f8"),
    "DATE": _layout(TIMESTAMP, ">i8", _millis),
    "TIMESTAMP": _layout(TIMESTAMP, ">i8", _millis),
    "TIME": _layout(SINCE_MIDNIGHT, ">i8", _time),
    "INSTANT": _layout(TIMESTAMP, ">i8,>i4", _instant),
    "LOCAL_DATE": _layout(pa.date32(), ">i8", _local_date),
    "LOCAL_TIME": _layout(SINCE_MIDNIGHT, ">i8", _local_time),
    "LOCAL_DATE_TIME": _layout(LOCAL_TIMESTAMP, ">i8,>i8", _local_date_time),
}
TYPES = frozenset({*_LAYOUTS, "BOOLEAN", "STRING", "BYTES", "NONE"})


def primitive(type_: str) -> FixedDecoder | BooleanDecoder | TextDecoder | BytesDecoder:
    """Return the decoder of one of TYPES."""
    match type_:
        case "BOOLEAN":
            return BooleanDecoder()
        case "STRING":
            return TextDecoder()
        case "BYTES" | "NONE":
            return BytesDecoder()
        case _:
            return FixedDecoder(type_)


class BytesDecoder:
    """Decoder that returns payloads unchanged."""

    type = pa.binary()
    expected = "bytes"

    def decode(self, payloads: pa.Array) -> Decoded:
        """Return the payloads."""
        return Decoded(payloads, {})


class TextDecoder:
    """Decoder of UTF-8."""

    type = pa.string()
    expected = "a STRING"

    def decode(self, payloads: pa.Array) -> Decoded:
        """Decode payloads."""
        try:
            return Decoded(payloads.cast(pa.string()), {})
        except pa.ArrowInvalid:
            pass
        faults: dict[int, str] = {}
        texts: list[str | None] = []
        for row, payload in enumerate(payloads.to_pylist()):
            text = None
            try:
                text = None if payload is None else payload.decode()
            except UnicodeDecodeError as error:
                faults[row] = str(error)
            texts.append(text)
        return Decoded(pa.array(texts, pa.string()), faults)


class BooleanDecoder:
    """Decoder of booleans, one byte each."""

    type = pa.bool_()
    expected = "a BOOLEAN, 1 byte"

    def decode(self, payloads: pa.Array) -> Decoded:
        """Decode payloads."""
        numbers = FixedDecoder("INT8").decode(payloads)
        return Decoded(pc.not_equal(numbers.array, 0), numbers.faults)


class FixedDecoder:
    """Decoder of values of a fixed size, with numpy."""

    def __init__(self, type_: str) -> None:
        self._layout = _LAYOUTS[type_]
        self.type = self._layout.type
        self.expected = f"{type_} of {self._layout.fields.itemsize} bytes"

    def __repr__(self) -> str:
        return f"FixedDecoder({self.expected})"

    def decode(self, payloads: pa.Array) -> Decoded:
        """Decode payloads."""
        fields = self._layout.fields
        lengths = pc.fill_null(pc.binary_length(payloads), -1).to_numpy()
        right = lengths == fields.itemsize
        wrong = np.flatnonzero(~right & (lengths >= 0)).tolist()
        faults = {row: f"{lengths[row]} bytes" for row in wrong}
        kept = payloads.filter(pa.array(right))
        values = np.frombuffer(bytearray().join(kept.to_pylist()), fields)
        words, fits = self._layout.convert(values)
        rows = np.flatnonzero(right)
        for index in np.flatnonzero(~fits).tolist():
            row = int(rows[index])
            faults[row] = f"a value out of range: {payloads[row].as_py().hex()}"
        right[rows] = fits
        all_words = np.zeros(len(payloads), words.dtype)
        all_words[rows] = words
        return Decoded(fixed(self.type, all_words, right), faults)
