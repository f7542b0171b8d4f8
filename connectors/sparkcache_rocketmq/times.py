"""The time of an extent's first record, used to select the extents of a time range.

It is the store time, set by the broker. It grows along a queue unless the broker's
clock is set back.

Source: RocketMQ also looks up a time by binary search, and returns one offset.
Different here: whole extents are selected. Equal or decreasing times lose no rows,
because each row is compared with the time range in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache_rocketmq.headers import Header, coda_bytes, read_beginning

if TYPE_CHECKING:
    from sparkcache.connector import Storage
    from sparkcache.model import Extent, Ledger


def first_us(storage: Storage, ledger: Ledger, extent: Extent) -> int | None:
    """Return the time of an extent's first record; None if it cannot be read."""
    beginning = read_beginning(storage, ledger.object, extent.offset, extent.size_bytes)
    header = Header.parse(beginning, coda_bytes(beginning))
    if header is None or header.queue != ledger.id:
        return None
    return header.store_time_ms * 1000
