"""Arrow types of values while payloads are decoded, and of the final columns.

Decoders fill plain integers, bytes and text. These are converted to dates, times,
decimals and names of symbols a column at a time, which is much cheaper than value by
value. The columns have the types of Spark's own schemas, so all are nullable, and the
items of lists are named `element`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.arrays import TIMESTAMP, bitmap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOCAL_TIMESTAMP = pa.timestamp("us")
SINCE_MIDNIGHT = pa.duration("us")
"""A time of day. Spark has a type for it, but does not yet support it in most queries.
"""

_MICROS_OF_DAY = 86_400_000_000
_DECIMAL_BYTES = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """The type in which values are stored first, and the type of the final column.

    `finish` converts stored values to the shown type; None if the types are the same.
    It raises an ArrowException for values that do not fit the shown type.
    """

    shown: pa.DataType
    stored: pa.DataType
    finish: Callable[[pa.Array], pa.Array] | None = None

    def finished(self, stored: pa.Array) -> pa.Array:
        """Return the column in its shown type."""
        return stored if self.finish is None else self.finish(stored)


def plain(type_: pa.DataType) -> Shape:
    """Return a shape whose shown type is its stored type."""
    return Shape(type_, type_)


def record(fields: Sequence[tuple[str, Shape]]) -> Shape:
    """Return the shape of a struct."""
    shown = pa.struct([(name, shape.shown) for name, shape in fields])
    stored = pa.struct([(name, shape.stored) for name, shape in fields])
    if all(shape.finish is None for _, shape in fields):
        return Shape(shown, stored)
    shapes = [shape for _, shape in fields]

    def finish(array: pa.Array) -> pa.Array:
        children = [
            shape.finished(array.field(index)) for index, shape in enumerate(shapes)
        ]
        return _rebuilt(shown, array, 1, children)

    return Shape(shown, stored, finish)


def listed(items: Shape) -> Shape:
    """Return the shape of a list."""
    shown = pa.list_(pa.field("element", items.shown))
    stored = pa.list_(pa.field("element", items.stored))
    if items.finish is None:
        return Shape(shown, stored)

    def finish(array: pa.Array) -> pa.Array:
        return _rebuilt(shown, array, 2, [items.finished(array.values)])

    return Shape(shown, stored, finish)


def mapped(values: Shape, keys: pa.DataType | None = None) -> Shape:
    """Return the shape of a map; its keys are strings by default."""
    keys = keys or pa.string()
    shown, stored = pa.map_(keys, values.shown), pa.map_(keys, values.stored)
    if values.finish is None:
        return Shape(shown, stored)

    def finish(array: pa.Array) -> pa.Array:
        entries = pa.StructArray.from_arrays(
            [array.keys, values.finished(array.items)],
            fields=[shown.key_field, shown.item_field],
        )
        return _rebuilt(shown, array, 2, [entries])

    return Shape(shown, stored, finish)


def _rebuilt(
    type_: pa.DataType, array: pa.Array, buffers: int, children: list[pa.Array]
) -> pa.Array:
    """Return the array with other children and the type that they require."""
    return pa.Array.from_buffers(
        type_, len(array), array.buffers()[:buffers], children=children
    )


DATE = Shape(pa.date32(), pa.int32(), lambda days: days.view(pa.date32()))


def times(stored: pa.DataType, micros: int) -> Shape:
    """Return the shape of times of day, in units of so many microseconds."""

    def finish(array: pa.Array) -> pa.Array:
        scaled = pc.multiply_checked(array.cast(pa.int64()), micros)
        bounds = pc.min_max(scaled).as_py()
        if (bounds["min"] or 0) < 0 or (bounds["max"] or 0) >= _MICROS_OF_DAY:
            raise pa.ArrowInvalid("a time outside the 24 hours of a day")
        return scaled.view(SINCE_MIDNIGHT)

    return Shape(SINCE_MIDNIGHT, stored, finish)


def instants(shown: pa.DataType, micros: int) -> Shape:
    """Return the shape of timestamps, in units of so many microseconds."""
    return Shape(
        shown,
        pa.int64(),
        lambda array: pc.multiply_checked(array, micros).view(shown),
    )


def symbols(names: tuple[str, ...]) -> Shape:
    """Return the shape of names that are stored as their indexes."""
    texts = pa.array(names, pa.string())
    return Shape(pa.string(), pa.int32(), texts.take)


def decimals(precision: int, scale: int) -> Shape:
    """Return the shape of decimals whose unscaled numbers are stored as bytes."""
    shown, limit = pa.decimal128(precision, scale), 10**precision

    def finish(array: pa.Array) -> pa.Array:
        words = []
        for value in array.to_pylist():
            number = int.from_bytes(value or b"", "big", signed=True)
            if not -limit < number < limit:
                raise pa.ArrowInvalid(f"a number of more than {precision} digits")
            words.append(number.to_bytes(_DECIMAL_BYTES, "little", signed=True))
        valid = None
        if array.null_count:
            valid = bitmap(array.is_valid().to_numpy(zero_copy_only=False))
        data = pa.py_buffer(b"".join(words))
        return pa.Array.from_buffers(shown, len(array), [valid, data])

    return Shape(shown, pa.binary(), finish)


def _uuid_texts(array: pa.Array) -> pa.Array:
    texts = [
        None if value is None else str(UUID(bytes=value)) for value in array.to_pylist()
    ]
    return pa.array(texts, pa.string())


UUIDS = Shape(pa.string(), pa.binary(), _uuid_texts)
INSTANT_MILLIS = instants(TIMESTAMP, 1_000)
INSTANT_MICROS = instants(TIMESTAMP, 1)
LOCAL_MILLIS = instants(LOCAL_TIMESTAMP, 1_000)
LOCAL_MICROS = instants(LOCAL_TIMESTAMP, 1)
