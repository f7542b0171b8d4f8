"""Filters of a query on columns, and whether any value within known bounds may match.

A filter leaves out only what has no matching row. Spark filters what is read again, so
a filter that is not understood, or a column without bounds, leaves out nothing.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NULL, NOT_NULL, IN = "is null", "is not null", "in"
SIGNS = frozenset({"=", "!=", "<", "<=", ">", ">="})


class Bounds(NamedTuple):
    """Bounds of the values of a column.

    Attributes:
        low: A lower bound of the values that are not null; None if unknown.
        high: An upper bound, likewise.
        nulls: How many values are null; None if unknown.

    """

    low: Any = None
    high: Any = None
    nulls: int | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """One comparison of a column.

    Attributes:
        column: The column's name.
        sign: One of SIGNS, or NULL, NOT_NULL or IN.
        values: What the column is compared with, at least one value except for NULL and
            NOT_NULL: texts, bools, and integers, which for dates are days since 1970
            and for times microseconds since 1970. Decimal numbers are texts, and bytes
            are texts with a character of that code for each.

    """

    column: str
    sign: str
    values: tuple[int | str | bool, ...] = ()

    def may_match(self, known: Bounds, rows: int | None = None) -> bool:
        """Return whether any of `rows` rows within known bounds may match."""
        return may_match(self.sign, self.values, known, rows)


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """What is known of the rows of a run.

    Attributes:
        rows: How many there are.
        bounds: Bounds of some columns, in the form of the values of filters.

    """

    rows: int
    bounds: dict[str, Bounds]

    def may_match(self, filters: Iterable[Filter]) -> bool:
        """Return whether any row may match all filters."""
        return may_match_all(filters, self.bounds, self.rows)


def may_match(
    sign: str, values: Iterable[Any], known: Bounds, rows: int | None
) -> bool:
    """Return whether a comparison may hold for any of `rows` rows within bounds."""
    low, high, nulls = known
    if sign == NULL:
        return nulls != 0
    if nulls is not None and nulls == rows:
        return False
    if sign in (NOT_NULL, "!="):
        return True
    if isinstance(low, float) or isinstance(high, float):
        return True  # NaN is outside any bounds
    try:
        return any(_may_match(sign, low, high, value) for value in values)
    except TypeError:  # the column had another type in an older file
        return True


def may_match_all(
    filters: Iterable[Filter], bounds: Mapping[str, Bounds], rows: int | None = None
) -> bool:
    """Return whether any row within the known bounds of columns may match all."""
    return all(
        each.column not in bounds or each.may_match(bounds[each.column], rows)
        for each in filters
    )


def _may_match(sign: str, low: Any, high: Any, value: Any) -> bool:  # noqa: ANN401
    """Return whether a value between two bounds, if they are known, may match."""
    match sign:
        case "<" | "<=":
            compare = operator.lt if sign == "<" else operator.le
            return low is None or bool(compare(low, value))
        case ">" | ">=":
            compare = operator.gt if sign == ">" else operator.ge
            return high is None or bool(compare(high, value))
        case _:
            return (low is None or bool(low <= value)) and (
                high is None or bool(value <= high)
            )
