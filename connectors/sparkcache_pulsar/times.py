"""Read the time of a block's first message, to choose blocks by time.

This is the publish time of the producer, so it may decrease from one message to the
next: clocks differ, and a message that waits for its broker, or is replicated, arrives
late. An option declares how far the time may fall back.

Source: Pulsar's admin also finds a message by time with a binary search. Different
here: Pulsar assumes that times are ordered; this keeps all blocks that could match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache_pulsar.decoding import form_of
from sparkcache_pulsar.entries import publish_time
from sparkcache_pulsar.frames import HEADER_BYTES, Walk
from sparkcache_pulsar.sequencefile import Layout

if TYPE_CHECKING:
    from sparkcache.connector import Storage
    from sparkcache.model import Extent, Ledger

_PROBE_BYTES = 1 << 16, 1 << 20, 8 << 20  # an entry of 5 MiB is in the last


def first_us(storage: Storage, ledger: Ledger, extent: Extent) -> int | None:
    """Return the time of a block's first message; None if unknown."""
    if isinstance(form_of(ledger), Layout):
        return None
    for probe_bytes in _PROBE_BYTES:
        size_bytes = min(probe_bytes, extent.size_bytes)
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
