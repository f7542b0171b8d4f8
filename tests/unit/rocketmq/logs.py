"""Commit logs of one object, written and read without anything around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa

from sparkcache.connector import RawRun
from sparkcache.model import Extent, Ledger, Loss, ObjectId, Run
from sparkcache.testing import as_dicts
from sparkcache_rocketmq.decode import decode
from sparkcache_rocketmq.splitting import split
from sparkcache_rocketmq.testing import Layout, Message, QueueWriter, Row

ROOT = "memory://store"
BATCH_BYTES = 10_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Stream:
    """A range of bytes that arrive in pieces."""

    data: bytes
    position: int
    end: int
    most: int = 1 << 20

    def read(self, size_bytes: int) -> bytes:
        stop = min(self.position + min(size_bytes, self.most), self.end)
        found = self.data[self.position : stop]
        self.position += len(found)
        return found

    def close(self) -> None:
        self.end = self.position


@dataclass
class Found:
    """What was read."""

    rows: list[Row] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)

    @property
    def lost(self) -> list[int]:
        return [
            entry for loss in self.losses for entry in range(loss.first, loss.last + 1)
        ]


@dataclass
class Log:
    """The first object of a commit log, and where its records are."""

    data: bytes
    rows: list[Row]
    places: dict[int, tuple[int, int]]
    topic: str = "TopicA"
    queue_id: int = 0
    first: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self.size_bytes = self.size_bytes or len(self.data)

    @property
    def ledger(self) -> Ledger:
        uri = f"{ROOT}/c/broker-a/{self.topic}/0/COMMIT_LOG/"
        name = f"{ROOT}#c/broker-a/{self.topic}/{self.queue_id}"
        object_id = ObjectId(uri + Layout.POSIX.object_name(0, 0), self.size_bytes, "v")
        return Ledger("rocketmq", name, self.queue_id, object_id)

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1

    def runs(self, entries: int | None = None) -> list[Run]:
        step = entries or len(self.rows)
        firsts = range(self.first, self.last + 1, step)
        return [Run(first, min(first + step - 1, self.last)) for first in firsts]

    def split(
        self,
        runs: Sequence[Run],
        begin: int = 0,
        end: int | None = None,
        most: int = 1 << 20,
    ) -> list[RawRun]:
        extent = Extent(self.first, self.last, 0, self.size_bytes)
        stream = Stream(self.data, begin, self.size_bytes if end is None else end, most)
        return list(split(self.ledger, extent, runs, stream))

    def read(self, entries: int | None = None, most: int = 1 << 20) -> Found:
        return self.decoded(self.split(self.runs(entries), most=most))

    def read_each(self, entries: int) -> Found:
        """Read every run for itself, as one that was evicted is."""
        raws = self.split(self.runs(entries))
        ends = [*(next_raw.offset for _, next_raw in pairwise(raws)), self.size_bytes]
        alone: list[RawRun] = []
        for raw, end in zip(raws, ends, strict=True):
            alone += self.split([raw.run], raw.offset, end)
        return self.decoded(alone)

    def decoded(self, raws: Iterable[RawRun]) -> Found:
        found = Found()
        for raw in raws:
            run = decode(self.ledger, raw, BATCH_BYTES)
            found.losses += run.losses
            for batch in run.batches:
                batch.validate(full=True)
                found.rows += _rows(batch)
        return found


def _rows(batch: pa.RecordBatch) -> list[Row]:
    """Return rows, with times that Python cannot have as microseconds."""
    for name in ("__bornTimestamp", "__storeTimestamp"):
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, name, batch.column(at).cast(pa.int64()))
    rows: list[Row] = as_dicts(batch)
    for row in rows:
        for name in ("__bornTimestamp", "__storeTimestamp"):
            time_us = row[name]
            if isinstance(time_us, int):
                with suppress(OverflowError):
                    row[name] = _EPOCH + timedelta(microseconds=time_us)
    return rows


def write(
    messages: Iterable[Message],
    *,
    topic: str = "TopicA",
    queue_id: int = 0,
    first: int = 0,
    repeats_batches: bool = True,
) -> Log:
    objects: dict[str, bytes] = {}
    writer = QueueWriter(
        objects,
        topic=topic,
        queue_id=queue_id,
        first_offset=first,
        repeats_batches=repeats_batches,
    )
    rows = writer.append(messages)
    (data,) = (data for name, data in objects.items() if "COMMIT_LOG" in name)
    return Log(data, rows, writer.record_ranges, topic, queue_id, first)
