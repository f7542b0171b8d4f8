"""Predicates on columns: which rows match, and which files may have matching rows.

SQL comparisons, all of which must hold:

    day >= '2026-01-31' and shop in ('eu', 'us') and note is not null

They mean the same as in Spark: nothing compares with null, NaN is greater than any
other number, and values of `float` compare as `double`. Two differences: times without
a zone are in the zone of the option `timeZone`, or in UTC, not in the session's zone;
and comparisons that make Spark convert each row, such as texts with numbers, are
refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkcache.connector import COLLATIONS
from sparkcache.errors import ConfigError
from sparkcache.filters import IN, NOT_NULL, NULL, may_match
from sparkcache_delta.options import WHERE, zone
from sparkcache_delta.where_syntax import Value, Written, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import tzinfo

    from sparkcache.filters import Bounds, Filter

_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True)
class Comparison:
    """One comparison of a column with values.

    Attributes:
        column: The column's name.
        sign: The operator.
        values: Arrow values of the column's type, or of `double` for `float`.

    """

    column: str
    sign: str
    values: pa.Array

    def rows(self, column: pa.Array) -> pa.Array:
        """Return a mask of the rows that match; a comparison with null is no match."""
        if pa.types.is_float32(column.type):
            column = column.cast(pa.float64())
        if self.sign == NULL:
            return column.is_null()
        if self.sign == NOT_NULL:
            return column.is_valid()
        if not pa.types.is_floating(column.type):
            return self._compared(column)
        return self._compared_floats(column)

    def may_hold(self, known: Bounds, rows: int | None) -> bool:
        """Return whether any row within known bounds may match."""
        values = (value.as_py() for value in self.values or ())
        try:
            return may_match(self.sign, values, known, rows)
        except OverflowError:  # Python has no such date or time
            return True

    def _compared(self, column: pa.Array) -> pa.Array:
        if self.sign != IN:
            return _COMPARE[self.sign](column, self.values[0])
        return pc.and_(column.is_valid(), pc.is_in(column, self.values))

    def _compared_floats(self, column: pa.Array) -> pa.Array:
        """Compare with NaN as the greatest number."""
        if self.sign == IN:
            masks = [
                Comparison(self.column, "=", self.values.slice(index, 1)).rows(column)
                for index in range(len(self.values))
            ]
            mask = masks[0]
            for other in masks[1:]:
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


@dataclass(frozen=True)
class Where:
    """All comparisons of a scan."""

    comparisons: tuple[Comparison, ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: pa.Schema) -> Where:
        """Parse the option for a schema; raises ConfigError."""
        text = options.get(WHERE, "").strip()
        if not text:
            return cls()
        try:
            local = zone(options) or UTC
            written = parse(text)
            return cls(tuple(_comparison(each, schema, local) for each in written))
        except (ValueError, OverflowError) as error:
            raise ConfigError(
                f"option {WHERE}={text!r}: {error}; write comparisons joined by "
                "`and`, such as day >= '2026-01-31' and shop in ('eu', 'us')"
            ) from None

    def narrowed(self, filters: Iterable[Filter], schema: pa.Schema) -> Where:
        """Return these comparisons and those of a query, to leave out files by.

        Filters on columns that cannot be compared are dropped.
        """
        comparisons = (_of_filter(each, schema) for each in filters)
        return Where(self.comparisons + tuple(filter(None, comparisons)))

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that are compared."""
        return frozenset(comparison.column for comparison in self.comparisons)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which all comparisons hold."""
        for comparison in self.comparisons:
            batch = batch.filter(comparison.rows(batch.column(comparison.column)))
        return batch

    def may_have(self, known: Mapping[str, Bounds], rows: int | None) -> bool:
        """Return whether any row within known bounds may match all comparisons."""
        return all(
            comparison.column not in known
            or comparison.may_hold(known[comparison.column], rows)
            for comparison in self.comparisons
        )


def is_comparable(field: pa.Field) -> bool:
    """Return whether a column can be compared with values."""
    return not pa.types.is_nested(field.type) and COLLATIONS not in (
        field.metadata or {}
    )


def _of_filter(wanted: Filter, schema: pa.Schema) -> Comparison | None:
    """Return the comparison of a filter; None if the column cannot be compared."""
    index = schema.get_field_index(wanted.column)
    if index < 0 or not is_comparable(schema.field(index)):
        return None
    kind = schema.field(index).type
    if wanted.sign in (NULL, NOT_NULL):
        return Comparison(wanted.column, wanted.sign, None)
    try:
        if pa.types.is_date32(kind):
            values = pa.array(wanted.values, pa.int32()).cast(kind)
        elif pa.types.is_timestamp(kind):
            micros = pa.array(wanted.values, pa.int64())
            values = micros.cast(pa.timestamp("us", kind.tz)).cast(kind)
        elif pa.types.is_binary(kind):
            texts = (str(value).encode("latin-1") for value in wanted.values)
            values = pa.array(texts, kind)
        elif pa.types.is_decimal(kind):
            values = pa.array(map(Decimal, wanted.values), kind)
        else:
            values = pa.array(wanted.values, kind)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        return None
    return Comparison(wanted.column, wanted.sign, values)


def _comparison(written: Written, schema: pa.Schema, zone: tzinfo) -> Comparison:
    """Return a comparison whose values have the column's type; raises ValueError."""
    field = _field(written.column, schema)
    texts = [_text(value, field) for value in written.values]
    values = _values(texts, field, zone) if texts else None
    return Comparison(field.name, written.sign, values)


def _field(name: str, schema: pa.Schema) -> pa.Field:
    fields = [field for field in schema if field.name == name]
    fields = fields or [field for field in schema if field.name.lower() == name.lower()]
    if len(fields) != 1:
        raise ValueError(f"column {name} is not one of {', '.join(schema.names)}")
    if pa.types.is_nested(fields[0].type):
        raise ValueError(
            f"column {name} is of type {fields[0].type}, which cannot be compared"
        )
    if COLLATIONS in (fields[0].metadata or {}):
        raise ValueError(
            f"column {name} has a collation, by which only Spark compares: leave it to "
            "the DataFrame's `where`"
        )
    return fields[0]


def _text(value: Value, field: pa.Field) -> str:
    is_text = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    if is_text and not value.is_quoted:
        raise ValueError(
            f"column {field.name} is of type {field.type} and {value.text} is not, so "
            f"Spark would convert each row; quote it: '{value.text}'"
        )
    return value.text


def _values(texts: list[str], field: pa.Field, zone: tzinfo) -> pa.Array:
    """Parse the values that a column is compared with; raises ValueError."""
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
    """Parse times; those without a zone are in `zone`."""
    try:
        return values.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        local = values.cast(pa.timestamp("us")).to_pylist()
        times = [time.replace(tzinfo=zone).astimezone(UTC) for time in local]
        return pa.array(times, pa.timestamp("us", "UTC"))
