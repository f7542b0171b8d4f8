"""Values of JSON schemas: JSON as Jackson writes it, described in Avro's notation.

Other than Avro's own JSON encoding it names no branches of unions. Bytes are base64,
decimals are numbers, dates and times are the numbers that Avro has for them; a double
that is no number is text. Fields that are not there are null, as are those that are
null; fields that the schema does not know are passed over.

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
    """Decodes JSON of one type.

    Doubles that are no numbers are rare, and a second try: a type that allows for them
    has to be gone through once more, to make numbers of their names.
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
    """Return what msgspec is to decode; anything may be null."""
    match definition:
        case Leaf(primitive=primitive):
            of = leaves[primitive]
        case Enum(symbols=symbols):
            of = Literal[symbols]
        case Decimal():
            of = decimal.Decimal
        case Fixed(is_uuid=is_uuid):
            of = str if is_uuid else bytes
        case Nullable(of=inner):
            return _type(inner, leaves)
        case Array(items=items):
            of = list[_type(items, leaves)]  # type: ignore[misc]
        case Map(values=values):
            of = dict[str, _type(values, leaves)]  # type: ignore[misc]
        case Record(fields=fields):
            types = {name: _type(one, leaves) for name, one in fields}
            of = cast("Any", TypedDict)("Record", types, total=False)
    return of | None


def _shape(definition: Definition) -> Shape:
    """Return how values of a type lie in Arrow."""
    match definition:
        case Decimal(precision=precision, scale=scale):
            return plain(pa.decimal128(precision, scale))
        case Enum() | Fixed(is_uuid=True):
            return plain(pa.string())
        case Nullable(of=of):
            return _shape(of)
        case Array(items=items):
            return shapes.listed(_shape(items))
        case Map(values=values):
            return shapes.mapped(_shape(values))
        case Record(fields=fields):
            return shapes.record([(name, _shape(of)) for name, of in fields])
        case _:
            return avro_shapes.shape(definition)


def _repair(definition: Definition, floats: frozenset[str]) -> _Repair | None:
    """Return what makes decoded values fit for Arrow; None if they are.

    `floats` are the primitives whose values may be names.
    """
    match definition:
        case Leaf(primitive=primitive) if primitive in floats:
            return _if_not_none(float)
        case Decimal(scale=scale):
            unit = decimal.Decimal((0, (1,), -scale))
            # Arrow must not see an exponent of millions: it computes that power of ten.
            return _if_not_none(lambda number: number.quantize(unit, context=_EXACT))
        case Nullable(of=of):
            return _repair(of, floats)
        case Array(items=items):
            of_item = _repair(items, floats)
            return of_item and _repair_list(of_item)
        case Map(values=values):
            of_value = _repair(values, floats)
            return of_value and _repair_map(of_value)
        case Record(fields=fields):
            found = [(name, _repair(of, floats)) for name, of in fields]
            return _repair_record([(name, one) for name, one in found if one])
        case _:
            return None


def _repair_list(repair: _Repair) -> _Repair:
    return _if_not_none(lambda values: [repair(value) for value in values])


def _repair_map(repair: _Repair) -> _Repair:
    return _if_not_none(lambda pairs: {key: repair(one) for key, one in pairs.items()})


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
