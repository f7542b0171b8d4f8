"""Find the extents of a topic that may have rows of given times, reading only a few.

Times do not always grow from one row to the next: clocks differ, and some rows arrive
late. The option `maxTimeSkew` declares how far a time may fall back. Within that skew,
the time of an extent's first row bounds the times of all extents before and after it.
So a binary search finds the range.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from sparkcache.errors import ConfigError
from sparkcache.units import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

OPTION = "maxTimeSkew"

_DEFAULT = "1h"
_log = logging.getLogger(__name__)


def skew_us(options: Mapping[str, str]) -> int:
    """Return by how much a row's time may be less than that of an earlier row.

    Raises ConfigError.
    """
    text = options.get(OPTION, _DEFAULT)
    try:
        return round(parse_seconds(text) * 1e6)
    except ValueError as error:
        raise ConfigError(f"option {OPTION}={text!r}: must be {error}") from error


def prune(
    extents: Sequence[T],
    first_us: Callable[[T], int | None],
    times_us: tuple[int | None, int | None],
    options: Mapping[str, str],
) -> range:
    """Return the range of a topic's extents that may have rows of these times.

    `first_us` returns the time of an extent's first row, or None if it is unknown. See
    `Connector.prune`.
    """
    skew = skew_us(options)
    start_us, end_us = times_us
    begin, stop = 0, len(extents)
    known: dict[int, int | None] = {}

    def time_of(index: int) -> int | None:
        if index not in known:
            known[index] = first_us(extents[index])
        return known[index]

    def may_follow(index: int) -> bool:
        us = time_of(index)
        return us is None or start_us is None or us + skew >= start_us

    def is_too_late(index: int) -> bool:
        us = time_of(index)
        return us is not None and end_us is not None and us - skew >= end_us

    if start_us is not None:
        begin = _least(1, stop, may_follow) - 1  # the extent before may have some
    if end_us is not None:
        stop = _least(begin, stop, is_too_late)
    seen = [us for _, us in sorted(known.items()) if us is not None]
    if any(later < earlier - skew for earlier, later in pairwise(seen)):
        _log.warning(
            "times of rows fall back by more than %s=%s: all extents are read",
            OPTION,
            options.get(OPTION, _DEFAULT),
        )
        return range(len(extents))
    return range(begin, stop)


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the least index from which on a condition holds; `high` if there is none.

    The condition was checked to be false right before the index, unless it is `low`.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
