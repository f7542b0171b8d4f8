"""A column of decoded values, and the faults of the values that did not decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache_pulsar.schemas.shapes import Shape

CONVERSION_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError)
"""Errors that Arrow raises for values that do not fit a type, Arrow's own included."""


@dataclass(slots=True)
class Decoded:
    """A column of values.

    Attributes:
        array: The values; null for null payloads and for values that did not decode.
        faults: What was found instead of a value, by row.

    """

    array: pa.Array
    faults: dict[int, str]


class Decoder(Protocol):
    """Decoder of the payloads of one schema."""

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""

    @property
    def expected(self) -> str:
        """Description of a correct payload, for error messages."""

    def decode(self, payloads: pa.Array) -> Decoded:
        """Decode a binary array without an offset."""


def decode_each(
    payloads: pa.Array,
    shape: Shape,
    value: Callable[[bytes], object],
    malformed: tuple[type[Exception], ...],
) -> Decoded:
    """Decode payloads one by one; `value` raises the `malformed` errors."""
    faults: dict[int, str] = {}
    values: list[object] = []
    for row, payload in enumerate(payloads.to_pylist()):
        try:
            values.append(None if payload is None else value(payload))
        except malformed as error:
            faults[row] = brief(error)
            values.append(None)
    return Decoded(column(values, shape, faults), faults)


def column(values: list[object], shape: Shape, faults: dict[int, str]) -> pa.Array:
    """Return a column; add to `faults` the values that do not fit its type."""
    return _part(values, shape, faults, 0)


def _part(
    values: list[object], shape: Shape, faults: dict[int, str], first_row: int
) -> pa.Array:
    """Return a part of a column; if that fails, cut it in two, down to single values.

    Failures are rare, so values are not checked before.
    """
    try:
        return shape.finished(pa.array(values, shape.stored))
    except CONVERSION_ERRORS as error:
        if len(values) == 1:
            faults[first_row] = brief(error)
            return pa.nulls(1, shape.shown)
    middle = len(values) // 2
    return pa.concat_arrays(
        [
            _part(values[:middle], shape, faults, first_row),
            _part(values[middle:], shape, faults, first_row + middle),
        ]
    )


def brief(error: Exception) -> str:
    """Return the message of an error, shortened to one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."
