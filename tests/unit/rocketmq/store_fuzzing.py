"""Damages whole queues at random, and says which offsets may be missing.

`check` removes, cuts and overwrites objects of a queue, reads what is left, and raises
AssertionError unless each offset that was written is exactly one of

    read        with the row that was written
    lost        as a loss says, at most once, and only where something was done
    expired     at the beginning of what is left of commit log and consume queue
    not there   at the end, because no item and, without any item, no record is left

So the rows and the entries of the losses are as many as the rows that were written.
"""

from __future__ import annotations

import random

from sparkcache.model import UNKNOWN_END, Loss
from sparkcache_rocketmq.testing import ITEM_BYTES, Layout, Message, Row

from .stores import TOPIC, Store


class Queue:
    """A queue that was written, and what became of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        choose = self.random.choice
        self.first = choose([0, 7, 1000])
        self.store = Store()
        writer = self.store.writer(
            layout=choose(list(Layout)),
            first_offset=self.first,
            max_segment_bytes=choose([600, 2000, 1 << 20]),
            max_consume_queue_bytes=choose([100, 400, 1 << 20]),
            has_coda=choose([False, True]),
        )
        self.rows: list[Row] = []
        for _ in range(choose([1, 4, 8])):
            sizes = (choose([0, 20, 200]) for _ in range(self.random.randrange(1, 13)))
            self.rows += writer.append(
                [Message(self.random.randbytes(size), tags="T") for size in sizes]
            )
        self.places = writer.record_ranges
        self.written = dict(self.store.objects)

    def damage(self) -> None:
        """Do something to some of the objects."""
        for _ in range(self.random.choice([1, 1, 2, 3])):
            kind = self.random.choice(["COMMIT_LOG"] * 2 + ["CONSUME_QUEUE"])
            names = self.store.named(kind)
            if not names:
                continue
            name = self.random.choice([names[0], names[-1], self.random.choice(names)])
            data = self.store.objects[name]
            match self.random.randrange(6):
                case 0:
                    self.store.remove(kind)
                case 1 | 2 if len(self.store.objects) > 1:
                    del self.store.objects[name]
                case 3 | 4:
                    self.store.objects[name] = data[: self.random.randrange(len(data))]
                case _ if kind == "COMMIT_LOG":
                    self._overwrite(
                        name, self.random.choice(list(self.places.values()))
                    )
            self._drop_empty()

    def _overwrite(self, name: str, record: tuple[int, int]) -> None:
        """Change a byte of a record, if it is in the object, that is checked."""
        data, at = self.store.objects[name], record[0] - _start(name)
        at += self.random.choice([0, 3, 4, 8, 11, 12, 15, 20, 27, 28, 35])
        if 0 <= at < len(data):
            changed = bytes([data[at] ^ 0x55])
            self.store.objects[name] = data[:at] + changed + data[at + 1 :]

    def _drop_empty(self) -> None:
        for name in [name for name, data in self.store.objects.items() if not data]:
            del self.store.objects[name]

    def left(self, kind: str) -> dict[int, bytes]:
        """Return the objects of a flat file that are left, by their starts in it."""
        return {
            _start(name): self.store.objects[name] for name in self.store.named(kind)
        }

    def has_record(self, offset: int) -> bool:
        """Return whether the record of an offset is as it was written."""
        place, size = self.places[offset]
        return _range(self.left("COMMIT_LOG"), place, size) == self._written(
            "COMMIT_LOG", place, size
        )

    def has_item(self, offset: int) -> bool:
        """Return whether the item of an offset is there."""
        items = self.left("CONSUME_QUEUE")
        return _range(items, offset * ITEM_BYTES, ITEM_BYTES) is not None

    def _written(self, kind: str, place: int, size: int) -> bytes | None:
        pieces = {
            _start(name): data for name, data in self.written.items() if kind in name
        }
        return _range(pieces, place, size)


def _start(name: str) -> int:
    if "/seg-" in name:
        base, _, start = name.partition("/seg-")[2].partition("/chunk/chunk-")
        return int(base) + int(start)
    return int(name[-20:])


def _range(pieces: dict[int, bytes], start: int, size: int) -> bytes | None:
    """Return a range of a flat file; None if part of it is missing."""
    found = b""
    while len(found) < size:
        at = start + len(found)
        piece = max((begin for begin in pieces if begin <= at), default=None)
        if piece is None or at >= piece + len(pieces[piece]):
            return None
        found += pieces[piece][at - piece :][: size - len(found)]
    return found


def check(seed: int) -> tuple[int, int]:
    """Read a damaged queue; return how many rows there are, and how many are lost."""
    queue = Queue(seed)
    queue.damage()
    if not queue.store.objects:
        return 0, 0
    assert queue.store.select(TOPIC) == [TOPIC]
    extent_bytes = queue.random.choice([300, 2000, 1 << 20])
    rows, losses = queue.store.read_each(extent_bytes, queue.random.choice([1, 500]))
    lost = [n for loss in losses for n in _entries(queue, loss)]
    assert len(lost) == len(set(lost)), "an offset is lost twice"
    assert all(row in queue.rows for row in rows), "a row was not written"
    read = [int(str(row["__queueOffset"])) for row in rows]
    expired = _expired(queue)
    absent = set(_absent(queue)).difference(lost, expired)
    assert sorted([*read, *lost, *expired, *absent]) == sorted(queue.places)
    for offset in lost:
        assert not queue.has_record(offset), f"{offset} is lost without need"
    return len(rows), len(lost)


def _entries(queue: Queue, loss: Loss) -> range:
    """Return the entries of a loss; of those up to an unknown end, the written ones."""
    if loss.last < UNKNOWN_END:
        return range(loss.first, loss.last + 1)
    return range(max(loss.first, queue.first), max(queue.places) + 1)


def _expired(queue: Queue) -> range:
    """Return the offsets before the first that commit log and consume queue have."""
    log, items = queue.left("COMMIT_LOG"), queue.left("CONSUME_QUEUE")
    first = queue.first
    if items:
        first = max(first, -(-min(items) // ITEM_BYTES))
    if log:
        begin = min(log)
        ends = [n for n, (place, _) in queue.places.items() if place < begin]
        first = max(first, *(n + 1 for n in ends), queue.first)
    return range(queue.first, first)


def _absent(queue: Queue) -> range:
    """Return the offsets after the last item or, without items, the last record."""
    log, items = queue.left("COMMIT_LOG"), queue.left("CONSUME_QUEUE")
    last = max(queue.places)
    end = max((start + len(data) for start, data in items.items()), default=0)
    if end - min(items, default=0) >= ITEM_BYTES:
        return range(end // ITEM_BYTES, last + 1)
    end = max((start + len(data) for start, data in log.items()), default=0)
    there = [n for n, (place, size) in queue.places.items() if place + size <= end]
    return range(max(there, default=queue.first - 1) + 1, last + 1)
