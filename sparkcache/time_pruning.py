"""Which of a topic's extents may have rows of a time, found by looking at a few.

Times do not always grow from one row to the next: clocks differ, and some rows come
late. How much a time may fall back is declared. Then what the first row of an extent
says holds, within that, for all extents before it and behind it.
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
    """Return how far behind an earlier one's a row's time may be declared to be.

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
    """Return which of a topic's extents may have rows of these times.

    `first_us` returns the time of an extent's first row, None if it cannot be told. See
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

    def is_behind(index: int) -> bool:
        us = time_of(index)
        return us is not None and end_us is not None and us - skew >= end_us

    if start_us is not None:
        begin = _least(1, stop, may_follow) - 1  # the one before it may have some
    if end_us is not None:
        stop = _least(begin, stop, is_behind)
    seen = [us for _, us in sorted(known.items()) if us is not None]
    if any(later < earlier - skew for earlier, later in pairwise(seen)):
        _log.warning(
            "times of messages fall back by more than %s=%s: all blocks are read",
            OPTION,
            options.get(OPTION, _DEFAULT),
        )
        return range(len(extents))
    return range(begin, stop)


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the least place where something holds that then holds on; `high` if none.

    It was seen not to hold right before, if the place is not `low`.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
