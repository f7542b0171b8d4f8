"""Decode values of JSON schemas: JSON as Jackson writes it, typed in Avro's notation.

In contrast to Avro's own JSON encoding, branches of unions are not named. Bytes are
base64, decimals are numbers, dates and times are numbers as in Avro; NaN and infinite
doubles are text. Missing fields are null, like fields that are set to null; fields that
are not in the schema are ignored.

msgspec checks every value against the type while it parses.
"""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

import msgspec
import pyarrow as pa

from sparkcache_pulsar.schemas import avro_shapes, shapes
from sparkcache_pulsar.schemas.decoded import Decoded, decode_each
from sparkcache_pulsar.schemas.definitions import (
    MAX_DIGITS,
    Array,
    Decimal,
    Definition,
    Enum,
    Fixed,
    Leaf,
    Map,
    Nullable,
    Record,
)
from sparkcache_pulsar.schemas.shapes import Shape, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    _Repair = Callable[[Any], object]

_MALFORMED = (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError)
_LEAVES: dict[str, Any] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
}
_FLOATS = frozenset({"float", "double"})
_ANY_FLOAT: Any = float | Literal["NaN", "Infinity", "-Infinity"]
_EXACT = decimal.Context(
    prec=MAX_DIGITS, traps=[decimal.InvalidOperation, decimal.Inexact]
)


class JsonDecoder:
    """Decoder of JSON of one type.

    NaN and infinite doubles are rare, so they are only allowed in a second attempt:
    their names must then be converted to numbers in another pass over the value.
    """

    expected = "a value of the JSON schema"

    def __init__(self, definition: Definition) -> None:
        self._shape = _shape(definition)
        self._decode = msgspec.json.Decoder(_type(definition, _LEAVES)).decode
        self._repair = _repair(definition, frozenset())
        with_names = _LEAVES | dict.fromkeys(_FLOATS, _ANY_FLOAT)
        self._decode_names = msgspec.json.Decoder(_type(definition, with_names)).decode
        self._repair_names = _repair(definition, _FLOATS)

    def __repr__(self) -> str:
        return f"JsonDecoder({self.type})"

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        return self._shape.shown

    def decode(self, payloads: pa.Array) -> Decoded:
        """Decode payloads."""
        return decode_each(payloads, self._shape, self._value, _MALFORMED)

    def _value(self, payload: bytes) -> object:
        try:
            value, repair = self._decode(payload), self._repair
        except msgspec.ValidationError:
            if self._repair_names is None:
                raise
            value, repair = self._decode_names(payload), self._repair_names
        return value if repair is None else repair(value)


def _type(definition: Definition, leaves: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return the type that msgspec decodes to; anything may be null."""
    match definition:
        case Leaf(primitive=primitive):
            type_ = leaves[primitive]
        case Enum(symbols=symbols):
            type_ = Literal[symbols]
        case Decimal():
            type_ = decimal.Decimal
        case Fixed(is_uuid=is_uuid):
            type_ = str if is_uuid else bytes
        case Nullable(inner=inner):
            return _type(inner, leaves)
        case Array(items=items):
            type_ = list[_type(items, leaves)]  # type: ignore[misc]
        case Map(values=values):
            type_ = dict[str, _type(values, leaves)]  # type: ignore[misc]
        case Record(fields=fields):
            types = {name: _type(field, leaves) for name, field in fields}
            type_ = cast("Any", TypedDict)("Record", types, total=False)
    return type_ | None


def _shape(definition: Definition) -> Shape:
    """Return the Arrow types of values of a definition."""
    match definition:
        case Decimal(precision=precision, scale=scale):
            return plain(pa.decimal128(precision, scale))
        case Enum() | Fixed(is_uuid=True):
            return plain(pa.string())
        case Nullable(inner=inner):
            return _shape(inner)
        case Array(items=items):
            return shapes.listed(_shape(items))
        case Map(values=values):
            return shapes.mapped(_shape(values))
        case Record(fields=fields):
            return shapes.record([(name, _shape(field)) for name, field in fields])
        case _:
            return avro_shapes.shape(definition)


def _repair(definition: Definition, floats: frozenset[str]) -> _Repair | None:
    """Return a function that converts decoded values for Arrow; None if not needed.

    `floats` are the primitives whose values may be names such as "NaN".
    """
    match definition:
        case Leaf(primitive=primitive) if primitive in floats:
            return _if_not_none(float)
        case Decimal(scale=scale):
            unit = decimal.Decimal((0, (1,), -scale))
            # Arrow would compute the power of ten even for an exponent of millions.
            return _if_not_none(lambda number: number.quantize(unit, context=_EXACT))
        case Nullable(inner=inner):
            return _repair(inner, floats)
        case Array(items=items):
            item_repair = _repair(items, floats)
            return item_repair and _repair_list(item_repair)
        case Map(values=values):
            value_repair = _repair(values, floats)
            return value_repair and _repair_map(value_repair)
        case Record(fields=fields):
            repairs = [(name, _repair(field, floats)) for name, field in fields]
            return _repair_record(
                [(name, repair) for name, repair in repairs if repair]
            )
        case _:
            return None


def _repair_list(repair: _Repair) -> _Repair:
    return _if_not_none(lambda values: [repair(value) for value in values])


def _repair_map(repair: _Repair) -> _Repair:
    return _if_not_none(
        lambda pairs: {key: repair(value) for key, value in pairs.items()}
    )


def _repair_record(repairs: list[tuple[str, _Repair]]) -> _Repair | None:
    if not repairs:
        return None

    def repair_all(record: dict[str, object]) -> object:
        for name, repair in repairs:
            if name in record:
                record[name] = repair(record[name])
        return record

    return _if_not_none(repair_all)


def _if_not_none(repair: _Repair) -> _Repair:
    return lambda value: None if value is None else repair(value)
