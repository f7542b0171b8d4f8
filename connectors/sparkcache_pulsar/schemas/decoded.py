"""A column of decoded values, and those that did not decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache_pulsar.schemas.shapes import Shape

NOT_HELD = (ValueError, TypeError, LookupError, ArithmeticError)
"""What Arrow raises for values that a type does not hold; its own are among them."""


@dataclass(slots=True)
class Decoded:
    """A column.

    Attributes:
        array: Null where the payload was, and for what did not decode.
        faults: What was found instead of a value, by row.

    """

    array: pa.Array
    faults: dict[int, str]


class Decoder(Protocol):
    """Decodes the payloads of one schema."""

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""

    @property
    def expected(self) -> str:
        """What each payload should be, for messages."""

    def decode(self, payloads: pa.Array) -> Decoded:
        """Decode a binary array without an offset."""


def decode_each(
    payloads: pa.Array,
    shape: Shape,
    value: Callable[[bytes], object],
    malformed: tuple[type[Exception], ...],
) -> Decoded:
    """Decode payloads one by one; `value` raises what is `malformed`."""
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
    """Make a column; adds to `faults` the values that its type does not hold."""
    return _part(values, shape, faults, 0)


def _part(
    values: list[object], shape: Shape, faults: dict[int, str], first_row: int
) -> pa.Array:
    """Make a part of a column. One that fails is halved, down to the values at fault.

    There is hardly ever one, so nothing is checked before.
    """
    try:
        return shape.finished(pa.array(values, shape.stored))
    except NOT_HELD as error:
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
    """Return what an error says, in a line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."
