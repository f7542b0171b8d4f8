"""Parse and format sizes and durations in Spark's notation."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_KIB = 1024
_BYTE_UNITS = {"": 1, "b": 1} | {
    unit + suffix: _KIB**power
    for power, unit in enumerate("kmgt", start=1)
    for suffix in ("", "b", "ib")
}
_SECOND_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_bytes(text: str) -> int:
    """Parse a size in Spark's notation: `512m`, `1g`, `2MiB`, `4096`."""
    number, unit = _number_and_unit(text, _BYTE_UNITS, "a size such as 512m or 1g")
    return int(number * _BYTE_UNITS[unit])


def parse_seconds(text: str) -> float:
    """Parse a duration in Spark's notation: `500ms`, `10s`, `3min`, `1h`."""
    number, unit = _number_and_unit(text, _SECOND_UNITS, "a duration such as 10s")
    return number * _SECOND_UNITS[unit]


def parse_bool(text: str) -> bool:
    """Parse `true` or `false`, in any case."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("true or false")


def format_bytes(size_bytes: int) -> str:
    """Format a size so that `parse_bytes` returns it unchanged."""
    for unit, factor in (("g", _KIB**3), ("m", _KIB**2), ("k", _KIB)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


def format_seconds(time_s: float) -> str:
    """Format a duration so that `parse_seconds` returns it unchanged."""
    return f"{Decimal(repr(float(time_s))).normalize():f}s"


def _number_and_unit(
    text: str, units: Mapping[str, float], wanted: str
) -> tuple[float, str]:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in units:
        raise ValueError(wanted)
    return float(match[1]), match[2]
