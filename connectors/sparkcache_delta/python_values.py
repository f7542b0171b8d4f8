"""Values from files as Python values, or None where Python has none.

Dates and times before year 1 or after year 9999 have none, neither have texts that are
not UTF-8. Spark reads and writes all of these, so statistics may contain them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_VALUE = (pa.ArrowException, ArithmeticError, ValueError, TypeError)


def value_or_none(read: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Return what a function reads; None if Python has no value for it."""
    try:
        return read()
    except _NO_VALUE:
        return None


def values_or_none(array: pa.Array) -> list[Any]:
    """Return the values of an array; None also for those that Python has not."""
    values = value_or_none(array.to_pylist)
    if values is not None:
        return list(values)
    return [value_or_none(scalar.as_py) for scalar in array]
