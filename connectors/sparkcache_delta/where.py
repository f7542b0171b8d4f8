"""Predicates on columns: which rows are wanted, and which files may have such.

Comparisons as SQL has them, all of which must hold:

    day >= '2026-01-31' and shop in ('eu', 'us') and note is not null

They mean what they mean in Spark: nothing compares with null, NaN is greater than any
other number, and values of `float` compare as those of `double`. But times that say no
zone are in that of the option `timeZone`, or in UTC, not in the session's, and what
Spark would convert row by row, such as texts compared with numbers, is refused.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.errors import ConfigError
from sparkcache_delta.options import WHERE, zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import tzinfo

    from sparkcache_delta.table import Bounds

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,)
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>[^\W\d]\w*)
    )""",
    re.VERBOSE,
)
_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_NULL, _NOT_NULL, _IN = "is null", "is not null", "in"


@dataclass(frozen=True)
class Comparison:
    """One comparison of a column with values.

    Attributes:
        column: The column's name.
        sign: How they are compared.
        values: With what; Arrow's, of the column's type, or `double` for `float`.

    """

    column: str
    sign: str
    values: pa.Array

    def rows(self, column: pa.Array) -> pa.Array:
        """Tell for which rows it holds; null counts as no."""
        if pa.types.is_float32(column.type):
            column = column.cast(pa.float64())
        if self.sign == _NULL:
            return column.is_null()
        if self.sign == _NOT_NULL:
            return column.is_valid()
        if not pa.types.is_floating(column.type):
            return self._compared(column)
        return self._compared_floats(column)

    def may_hold(self, known: Bounds, rows: int | None) -> bool:
        """Tell whether it may hold for any row of which no more is known."""
        low, high, nulls = known
        if self.sign == _NULL:
            return nulls != 0
        if nulls is not None and nulls == rows:
            return False
        if self.sign in (_NOT_NULL, "!=") or low is None or high is None:
            return True
        if isinstance(low, float):  # what is NaN is within no bounds
            return True
        try:
            return any(self._may_be(low, high, value.as_py()) for value in self.values)
        except TypeError:  # an older file's column was of another type
            return True

    def _compared(self, column: pa.Array) -> pa.Array:
        if self.sign != _IN:
            return _COMPARE[self.sign](column, self.values[0])
        return pc.and_(column.is_valid(), pc.is_in(column, self.values))

    def _compared_floats(self, column: pa.Array) -> pa.Array:
        """Compare as if NaN were a number, the greatest."""
        if self.sign == _IN:
            found = [
                Comparison(self.column, "=", self.values.slice(at, 1)).rows(column)
                for at in range(len(self.values))
            ]
            mask = found[0]
            for other in found[1:]:
                mask = pc.or_(mask, other)
            return mask
        value, is_nan = self.values[0], pc.is_nan(column)
        if value.as_py() is not None and pc.is_nan(value).as_py():
            holds = {"=": is_nan, ">=": is_nan, "!=": pc.invert(is_nan)}
            holds["<"] = holds["!="]
            holds["<="] = column.is_valid()
            holds[">"] = pc.and_(is_nan, pc.invert(is_nan))
            return holds[self.sign]
        if self.sign in (">", ">=", "!="):
            return pc.or_(self._compared(column), is_nan)
        return self._compared(column)

    def _may_be(self, low: Any, high: Any, value: Any) -> bool:  # noqa: ANN401
        match self.sign:
            case "<" | "<=":
                compare = operator.lt if self.sign == "<" else operator.le
                return bool(compare(low, value))
            case ">" | ">=":
                compare = operator.gt if self.sign == ">" else operator.ge
                return bool(compare(high, value))
            case _:
                return bool(low <= value <= high)


@dataclass(frozen=True)
class Where:
    """All comparisons of a scan."""

    comparisons: tuple[Comparison, ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: pa.Schema) -> Where:
        """Read the option, given the columns there are; raises ConfigError."""
        text = options.get(WHERE, "").strip()
        if not text:
            return cls()
        try:
            parser = _Parser(text, schema, zone(options) or UTC)
            return cls(tuple(parser.comparisons()))
        except (ValueError, OverflowError) as error:
            raise ConfigError(
                f"option {WHERE}={text!r}: {error}; give comparisons with `and` "
                "between them, such as day >= '2026-01-31' and shop in ('eu', 'us')"
            ) from None

    @property
    def columns(self) -> frozenset[str]:
        """The columns that are compared."""
        return frozenset(comparison.column for comparison in self.comparisons)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which all hold."""
        for comparison in self.comparisons:
            batch = batch.filter(comparison.rows(batch.column(comparison.column)))
        return batch

    def may_have(self, known: Mapping[str, Bounds], rows: int | None) -> bool:
        """Tell whether there may be rows for which all hold, by what is known."""
        return all(
            comparison.column not in known
            or comparison.may_hold(known[comparison.column], rows)
            for comparison in self.comparisons
        )


class _Parser:
    """Reads comparisons. Raises ValueError."""

    def __init__(self, text: str, schema: pa.Schema, zone: tzinfo) -> None:
        self._zone = zone
        self._tokens = list(_tokens(text))
        self._schema = schema

    def comparisons(self) -> Iterator[Comparison]:
        yield self._comparison()
        while self._tokens:
            self._expect("and")
            yield self._comparison()

    def _comparison(self) -> Comparison:
        kind, name = self._next()
        if kind not in ("word", "quoted"):
            raise ValueError(f"{name!r} is not the name of a column")
        field = self._field(name)
        _, sign = self._next()
        sign = {"<>": "!="}.get(sign, sign.lower())
        if sign == "is":
            is_not = self._takes("not")
            self._expect("null")
            return Comparison(field.name, _NOT_NULL if is_not else _NULL, None)
        if sign == _IN:
            self._expect("(")
            texts = [self._literal(field)]
            while self._takes(","):
                texts.append(self._literal(field))
            self._expect(")")
        elif sign in _COMPARE:
            texts = [self._literal(field)]
        else:
            raise ValueError(f"{sign!r} is not a comparison")
        return Comparison(field.name, sign, _values(texts, field, self._zone))

    def _field(self, name: str) -> pa.Field:
        found = [field for field in self._schema if field.name == name]
        found = found or [
            field for field in self._schema if field.name.lower() == name.lower()
        ]
        if len(found) != 1:
            there_are = ", ".join(self._schema.names)
            raise ValueError(f"there is no column {name} among {there_are}")
        if pa.types.is_nested(found[0].type):
            raise ValueError(f"column {name} is of type {found[0].type}")
        return found[0]

    def _literal(self, field: pa.Field) -> str:
        kind, text = self._next()
        if kind == "text":
            return text
        is_word = kind == "word" and text.lower() in ("true", "false")
        if kind != "number" and not is_word:
            raise ValueError(f"{text!r} is not a value")
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            raise ValueError(
                f"column {field.name} is of type {field.type} and {text} is not, so "
                f"that Spark would convert each row; quote it: '{text}'"
            )
        return text

    def _expect(self, wanted: str) -> None:
        if not self._takes(wanted):
            found = repr(self._tokens[0][1]) if self._tokens else "the end"
            raise ValueError(f"{wanted!r} is missing before {found}")

    def _takes(self, wanted: str) -> bool:
        is_there = bool(self._tokens) and self._tokens[0][1].lower() == wanted
        if is_there and self._tokens[0][0] in ("word", "sign"):
            del self._tokens[0]
            return True
        return False

    def _next(self) -> tuple[str, str]:
        if not self._tokens:
            raise ValueError("it ends too early")
        return self._tokens.pop(0)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise ValueError(f"{text[at:]!r} cannot be read")
        kind, token = found.lastgroup, found[found.lastgroup]
        if kind in ("text", "quoted"):
            quote, token = token[0], token[1:-1]
            token = token.replace(2 * quote, quote)
        yield kind, token
        at = found.end()


def _values(texts: list[str], field: pa.Field, zone: tzinfo) -> pa.Array:
    """Return values to compare a column with; raises ValueError."""
    values = pa.array(texts, pa.string())
    try:
        if pa.types.is_float32(field.type):
            return values.cast(pa.float64())
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            return _instants(values, zone).cast(field.type)
        return values.cast(field.type)
    except pa.ArrowException as error:
        raise ValueError(
            f"column {field.name} is of type {field.type}: {error}"
        ) from None


def _instants(values: pa.Array, zone: tzinfo) -> pa.Array:
    """Read times, those that say no zone as in that one."""
    try:
        return values.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        local = values.cast(pa.timestamp("us")).to_pylist()
        times = [time.replace(tzinfo=zone).astimezone(UTC) for time in local]
        return pa.array(times, pa.timestamp("us", "UTC"))
