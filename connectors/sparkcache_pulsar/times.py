"""Which blocks may have messages of a time, found by looking at a few of them.

The time that is meant is the producer's, so it does not always grow from one message to
the next: clocks differ, and what waited for its broker, or for another cluster's, comes
late. How much it may fall back is declared. Then what the first message of a block
says holds, within that, for all blocks before it and behind it.

Source: Pulsar's admin finds a message by time in the same way, by halves. Different
here: it takes times for ordered; we cut off nothing that could be of the time wanted.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache.units import parse_seconds
from sparkcache_pulsar.entries import publish_time
from sparkcache_pulsar.forms import form_of
from sparkcache_pulsar.frames import HEADER_BYTES, Walk
from sparkcache_pulsar.sequencefile import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkcache.connector import Storage
    from sparkcache.model import Extent, Ledger

OPTION = "maxTimeSkew"

_DEFAULT = "1h"
_PROBE_BYTES = 1 << 16, 1 << 20, 8 << 20  # an entry of 5 MiB is in the last
_log = logging.getLogger(__name__)


def skew_us(options: Mapping[str, str]) -> int:
    """Return how far behind an earlier one's a message's time may be declared to be.

    Raises ConfigError.
    """
    text = options.get(OPTION, _DEFAULT)
    try:
        return round(parse_seconds(text) * 1e6)
    except ValueError as error:
        raise ConfigError(f"option {OPTION}={text!r}: must be {error}") from error


def prune(
    storage: Storage,
    extents: Sequence[tuple[Ledger, Extent]],
    times_us: tuple[int | None, int | None],
    options: Mapping[str, str],
) -> range:
    """Return which extents may have messages of these times; see `Connector.prune`."""
    skew = skew_us(options)
    start_us, end_us = times_us
    begin, stop = 0, len(extents)
    known: dict[int, int | None] = {}

    def first_us(index: int) -> int | None:
        if index not in known:
            known[index] = _first_us(storage, *extents[index])
        return known[index]

    def may_follow(index: int) -> bool:
        us = first_us(index)
        return us is None or start_us is None or us + skew >= start_us

    def is_behind(index: int) -> bool:
        us = first_us(index)
        return us is not None and end_us is not None and us - skew >= end_us

    if start_us is not None:
        begin = _least(1, stop, may_follow) - 1  # the block before it may have some
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


def _first_us(storage: Storage, ledger: Ledger, extent: Extent) -> int | None:
    """Return the time of a block's first message; None if it cannot be told."""
    if Layout.parse(form_of(ledger)) is not None:
        return None
    for most_bytes in _PROBE_BYTES:
        size_bytes = min(most_bytes, extent.size_bytes)
        stream = storage.open(ledger.object, extent.offset, size_bytes)
        data = bytearray()
        try:
            while chunk := stream.read(size_bytes - len(data)):
                data += chunk
        finally:
            stream.close()
        walk = Walk(extent.first, HEADER_BYTES)
        walk.advance(data, extent.last, extent.size_bytes)
        millis = publish_time(bytes(data), walk.starts)
        if millis is not None:
            return millis * 1000
        if walk.fault is not None or size_bytes == extent.size_bytes:
            break
    return None
