"""Where the record of a queue offset lies: the consume queue, looked at here and there.

    item    place in the commit log int64, size of the record int32, hash of its tags
            int64; that of offset q begins at byte 20 q of the flat file

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
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Item:
    """Where in the commit log a record begins, and how long it is."""

    place: int
    size_bytes: int

    @property
    def end(self) -> int:
        """Where the record ends."""
        return self.place + self.size_bytes


class QueueIndex:
    """The items of a queue, read when they are asked for.

    Attributes:
        first: Offset of the first item.
        stop: Offset behind the last whole item.

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
        """Return the item of an offset; None if it is missing or no item.

        Raises SourceError.
        """
        if offset not in self._known:
            self.look_ahead([offset])
        return self._known[offset]

    def look_ahead(self, offsets: Iterable[int], count: int = 1) -> None:
        """Read items that will be asked for: from each offset on, in one request.

        Raises SourceError.
        """
        known = self._known
        wanted = [
            first
            for first in offsets
            if not all(offset in known for offset in range(first, first + count))
        ]
        if len(wanted) < 2:
            found = [self._read(first, count) for first in wanted]
        else:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                found = list(pool.map(lambda first: self._read(first, count), wanted))
        for first, items in zip(wanted, found, strict=True):
            known |= zip(range(first, first + count), items, strict=True)

    def _read(self, offset: int, count: int) -> list[Item | None]:
        place, size_bytes = offset * ITEM_BYTES, count * ITEM_BYTES
        data = self._file.read(self._storage, place, size_bytes)
        if data is None:
            return [None] * count
        found = [Item(place, size) for place, size, _ in _ITEM.iter_unpack(data)]
        return [item if item.place >= 0 < item.size_bytes else None for item in found]

    def least(self, first: int, stop: int, holds: Callable[[Item], bool]) -> int | None:
        """Return the least offset of a range for whose item something holds.

        It then holds for all behind. `stop` if for none; None if an item is missing.
        """
        while first < stop:
            middle = (first + stop) // 2
            item = self.item(middle)
            if item is None:
                return None
            if holds(item):
                stop = middle
            else:
                first = middle + 1
        return first
