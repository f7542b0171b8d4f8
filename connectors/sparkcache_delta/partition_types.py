"""Types of partition columns in folder names, such as `day=2026-01-31`, as in Spark.

Source: Spark's PartitioningUtils, and what Spark 4.2 found for the values in the tests.
"""

from __future__ import annotations

import re
from datetime import time
from decimal import Decimal, DecimalException
from enum import Enum, auto
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_NUMBER = re.compile(_DECIMAL)
_HEX = r"[+-]?0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
_DOUBLE = re.compile(
    rf"(?P<name>[+-]?(NaN|Infinity))|(?P<decimal>{_DECIMAL})[fFdD]?"
    rf"|(?P<hex>{_HEX})[fFdD]?"
)
_SPACES = "".join(map(chr, range(ord(" ") + 1)))  # those that Java trims
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
_SECONDS = len("12:30:00")
_MOST_DIGITS = 38


class _Kind(Enum):
    INT = auto()
    LONG = auto()
    DECIMAL = auto()
    DOUBLE = auto()
    TIME_OF_DAY = auto()
    DAY = auto()
    TIME = auto()
    TEXT = auto()


_TYPES = {
    _Kind.INT: pa.int32(),
    _Kind.LONG: pa.int64(),
    _Kind.DOUBLE: pa.float64(),
    _Kind.TIME_OF_DAY: pa.time64("ns"),
    _Kind.DAY: pa.date32(),
    _Kind.TEXT: pa.string(),
}


def type_of(name: str, texts: Iterable[str]) -> pa.DataType:
    """Return the type that Spark infers for values of a partition; raises ConfigError.

    Times and decimals are not supported: Spark reads times in the zone of the session,
    and gives integers beyond the range of a long as many digits as they have.
    """
    values = list(texts)
    kinds = set(map(_kind, values))
    if _Kind.TIME in kinds and kinds <= {_Kind.DAY, _Kind.TIME}:
        raise _unsupported(name, values, "times")
    if _Kind.DECIMAL in kinds and kinds <= {_Kind.INT, _Kind.LONG, _Kind.DECIMAL}:
        raise _unsupported(name, values, "decimals")
    for wider in (_Kind.LONG, _Kind.DOUBLE):
        if kinds == {_Kind.INT, wider}:
            return _TYPES[wider]
    return _TYPES[kinds.pop()] if len(kinds) == 1 else pa.string()


def canonical(text: str, kind: pa.DataType) -> str:
    """Return a value in a form that `constant` parses."""
    if pa.types.is_time(kind):
        clock, _, fraction = text.partition(".")
        hour, minute, second = map(int, clock.split(":"))
        seconds = (60 * hour + minute) * 60 + second
        return f"{seconds}{fraction:0<9}"
    if pa.types.is_integer(kind):
        return str(int(text))
    return repr(_double(text)) if pa.types.is_floating(kind) else text


def _kind(text: str) -> _Kind:
    """Return the first kind whose form a text has."""
    if _WHOLE.fullmatch(text) and _fits(text, 64):
        return _Kind.INT if _fits(text, 32) else _Kind.LONG
    if _is_decimal(text):
        return _Kind.DECIMAL
    if _DOUBLE.fullmatch(text.strip(_SPACES)):
        return _Kind.DOUBLE
    if _is_time_of_day(text):
        return _Kind.TIME_OF_DAY
    day, space, time_of_day = text.partition(" ")
    if not _is_day(day):
        return _Kind.TEXT
    if space:
        return _Kind.TIME if _is_time_of_day(time_of_day) else _Kind.TEXT
    return _Kind.DAY


def _double(text: str) -> float:
    found = _DOUBLE.fullmatch(text.strip(_SPACES))
    assert found is not None, "only texts of this form have the type"
    if found["hex"] is not None:
        return float.fromhex(found["hex"])
    return float(found["name"] or found["decimal"])


def _is_time_of_day(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        time.fromisoformat(text[:_SECONDS])
    except ValueError:
        return False
    return True


def _is_day(text: str) -> bool:
    """Return whether a text is a day of the calendar; 2024-02-30 is not."""
    if not _DAY.fullmatch(text):
        return False
    try:
        return bool(pa.scalar(text).cast(pa.date32()).is_valid)
    except pa.ArrowInvalid:
        return False


def _is_decimal(text: str) -> bool:
    """Return whether Spark reads a number as a decimal: few digits and no fraction."""
    if not _NUMBER.fullmatch(text):
        return False
    try:
        _, digits, exponent = Decimal(text).as_tuple()
    except DecimalException:
        return False
    whole = isinstance(exponent, int) and exponent >= 0
    return whole and len(digits) + int(exponent) <= _MOST_DIGITS


def _fits(text: str, bits: int) -> bool:
    return -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1)


def _unsupported(name: str, texts: list[str], kind: str) -> ConfigError:
    return ConfigError(
        f"partition {name}={texts[0]}: Spark reads such values as {kind}, which is not "
        "supported for a folder; use a Delta table, whose columns have declared types"
    )
