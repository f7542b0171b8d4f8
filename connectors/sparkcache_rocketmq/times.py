"""The time of an extent's first record, by which extents of a time are found.

The time is that of the broker which stored the message, so it grows along a queue, but
for what its clock does.

Source: RocketMQ looks a time up by halves too, and returns one offset of it. Different
here: extents are chosen, which is no loss where times are equal or fall back, since
rows are compared with the time in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache_rocketmq.headers import Header, coda_bytes, read_beginning

if TYPE_CHECKING:
    from sparkcache.connector import Storage
    from sparkcache.model import Extent, Ledger


def first_us(storage: Storage, ledger: Ledger, extent: Extent) -> int | None:
    """Return the time of an extent's first record; None if it cannot be told."""
    beginning = read_beginning(storage, ledger.object, extent.offset, extent.size_bytes)
    header = Header.parse(beginning, coda_bytes(beginning))
    if header is None or header.queue != ledger.id:
        return None
    return header.store_time_ms * 1000
