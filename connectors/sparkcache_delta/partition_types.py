"""Types of columns that folders such as `day=2026-01-31` name, as Spark finds them."""

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
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_LIKE_TIME = re.compile(r"\d{4}-\d{1,2}-\d{1,2}[ T]\d.*")


def type_of(name: str, texts: Iterable[str]) -> pa.DataType:
    """Return the type that Spark finds for values of a partition; raises ConfigError.

    For times it goes by the session's zone, and for what is more than a long's it has
    decimals of as many digits.
    """
    found = list(texts)
    if not found:
        return pa.string()
    if any(map(_LIKE_TIME.fullmatch, found)):
        raise _unclear(name, found, "times")
    if all(map(_NUMBER.fullmatch, found)):
        if any(map(_is_decimal, found)):
            raise _unclear(name, found, "decimals")
        if not all(map(_WHOLE.fullmatch, found)):
            return pa.float64()
        return pa.int32() if all(_fits(text, 32) for text in found) else pa.int64()
    return pa.date32() if all(map(_DAY.fullmatch, found)) else pa.string()


def _is_decimal(text: str) -> bool:
    """Tell whether a number is a decimal to Java: no long, and without a fraction."""
    if _WHOLE.fullmatch(text):
        return not _fits(text, 64)
    exponent = Decimal(text).as_tuple().exponent
    return isinstance(exponent, int) and exponent >= 0


def _fits(text: str, bits: int) -> bool:
    return -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1)


def _unclear(name: str, texts: list[str], kind: str) -> ConfigError:
    return ConfigError(
        f"partition {name}={texts[0]}: Spark would read such as {kind}, which is not "
        "supported of a folder; have Delta keep the table, where columns have types"
    )
