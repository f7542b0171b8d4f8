"""Index from queue offset to record: the consume queue, read item by item as needed.

    item    offset in the commit log int64, size of the record int32, hash of its tags
            int64; the item of queue offset q starts at byte 20 q of the flat file

Source: FlatConsumeQueueFile and MessageFormatUtil of Apache RocketMQ.
"""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkcache.connector import Storage
    from sparkcache_rocketmq.flat_files import FlatFile

ITEM_BYTES = 20

_ITEM = struct.Struct(">qiq")
_MAX_REQUESTS = 8


@dataclass(frozen=True, slots=True)
class Item:
    """Start of a record in the commit log, in bytes, and its size."""

    start: int
    size_bytes: int

    @property
    def end(self) -> int:
        """End of the record."""
        return self.start + self.size_bytes


class QueueIndex:
    """Items of a queue, read on request.

    Attributes:
        first: Queue offset of the first item.
        stop: Queue offset after the last complete item.

    """

    def __init__(self, storage: Storage, consume_queue: FlatFile) -> None:
        self._storage = storage
        self._file = consume_queue
        self._known: dict[int, Item | None] = {}
        self.first = -(-consume_queue.begin // ITEM_BYTES)
        self.stop = max(consume_queue.end // ITEM_BYTES, self.first)

    def __repr__(self) -> str:
        return f"QueueIndex({self.first}-{self.stop})"

    def item(self, offset: int) -> Item | None:
        """Return the item of an offset; None if it is missing or invalid.

        Raises SourceError.
        """
        if offset not in self._known:
            self.look_ahead([offset])
        return self._known[offset]

    def look_ahead(self, offsets: Iterable[int], count: int = 1) -> None:
        """Read items that will be needed. Raises SourceError.

        Args:
            offsets: First queue offsets; the items of each are read in one request.
            count: Number of items from each of these offsets.

        """
        known = self._known
        wanted = [
            first
            for first in offsets
            if not all(offset in known for offset in range(first, first + count))
        ]
        if len(wanted) < 2:
            batches = [self._read(first, count) for first in wanted]
        else:
            with ThreadPoolExecutor(_MAX_REQUESTS) as pool:
                batches = list(pool.map(lambda first: self._read(first, count), wanted))
        for first, items in zip(wanted, batches, strict=True):
            known |= zip(range(first, first + count), items, strict=True)

    def _read(self, offset: int, count: int) -> list[Item | None]:
        start, size_bytes = offset * ITEM_BYTES, count * ITEM_BYTES
        data = self._file.read(self._storage, start, size_bytes)
        if data is None:
            return [None] * count
        items = [Item(start, size) for start, size, _ in _ITEM.iter_unpack(data)]
        return [item if item.start >= 0 < item.size_bytes else None for item in items]

    def least(
        self, first: int, stop: int, predicate: Callable[[Item], bool]
    ) -> int | None:
        """Return the lowest offset of a range whose item satisfies a predicate.

        Binary search: all later items must satisfy it too. Returns `stop` if no item
        does, and None if an item is missing.
        """
        while first < stop:
            middle = (first + stop) // 2
            item = self.item(middle)
            if item is None:
                return None
            if predicate(item):
                stop = middle
            else:
                first = middle + 1
        return first
