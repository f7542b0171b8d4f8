"""Which extents may have messages of a time: by the first record of some of them.

The time is that of the broker which stored the message, so it grows along a queue, but
for what its clock does.

Source: RocketMQ looks a time up by halves too, and returns one offset of it. Different
here: extents are chosen, which is no loss where times are equal or fall back, since
rows are compared with the time in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache import time_order
from sparkcache_rocketmq.headers import Header, coda_bytes, read_beginning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkcache.connector import Storage
    from sparkcache.model import Extent, Ledger


def prune(
    storage: Storage,
    extents: Sequence[tuple[Ledger, Extent]],
    times_us: tuple[int | None, int | None],
    options: Mapping[str, str],
) -> range:
    """Return which extents may have messages of these times; see `Connector.prune`."""

    def first_us(index: int) -> int | None:
        return _first_us(storage, *extents[index])

    return time_order.prune(len(extents), first_us, times_us, options)


def _first_us(storage: Storage, ledger: Ledger, extent: Extent) -> int | None:
    """Return the time of an extent's first record; None if it cannot be told."""
    beginning = read_beginning(storage, ledger.object, extent.offset, extent.size_bytes)
    header = Header.parse(beginning, coda_bytes(beginning))
    if header is None or header.queue != ledger.id:
        return None
    return header.store_time_ms * 1000
