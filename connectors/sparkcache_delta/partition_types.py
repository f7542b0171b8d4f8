"""Types of partition columns in folder names, such as `day=2026-01-31`, as in Spark."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LIKE_TIME = re.compile(r"\d{4}-\d{1,2}-\d{1,2}[ T]\d.*")


def type_of(name: str, texts: Iterable[str]) -> pa.DataType:
    """Return the type that Spark infers for values of a partition; raises ConfigError.

    Times and decimals are not supported: Spark reads times in the zone of the session,
    and reads integers beyond the range of a long as decimals with as many digits.
    """
    values = list(texts)
    if not values:
        return pa.string()
    if any(map(_LIKE_TIME.fullmatch, values)):
        raise _unsupported(name, values, "times")
    if all(map(_NUMBER.fullmatch, values)):
        if any(map(_is_decimal, values)):
            raise _unsupported(name, values, "decimals")
        if not all(map(_WHOLE.fullmatch, values)):
            return pa.float64()
        return pa.int32() if all(_fits(text, 32) for text in values) else pa.int64()
    return pa.date32() if all(map(_is_day, values)) else pa.string()


def _is_day(text: str) -> bool:
    """Return whether a text is a day of the calendar; 2024-02-30 is not."""
    if not _DAY.fullmatch(text):
        return False
    try:
        return bool(pa.scalar(text).cast(pa.date32()).is_valid)
    except pa.ArrowInvalid:
        return False


def _is_decimal(text: str) -> bool:
    """Return whether Java reads a number as a decimal: no long and no fraction."""
    if _WHOLE.fullmatch(text):
        return not _fits(text, 64)
    exponent = Decimal(text).as_tuple().exponent
    return isinstance(exponent, int) and exponent >= 0


def _fits(text: str, bits: int) -> bool:
    return -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1)


def _unsupported(name: str, texts: list[str], kind: str) -> ConfigError:
    return ConfigError(
        f"partition {name}={texts[0]}: Spark reads such values as {kind}, which is not "
        "supported for a folder; use a Delta table, whose columns have declared types"
    )
