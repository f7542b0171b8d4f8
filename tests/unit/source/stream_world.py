"""A bucket in which topics are offloaded and trimmed, and streams of them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparkcache import connector as connectors
from sparkcache.config import CacheConfig
from sparkcache.model import Position
from sparkcache.source.batch.partitions import run_slice
from sparkcache.source.batch.task_reader import TaskReader
from sparkcache.source.options import ScanOptions
from sparkcache.source.streaming.stream_reader import StreamReader
from sparkcache_pulsar.testing import Entry, Message, ledger_objects, write_directory

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "persistent://shop/eu/orders"
MESSAGES = 5
ALL = ReadAllAvailable()


class World:
    """A bucket, and a stream of its topics."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def offload(self, ledger: int, entries: int, topic: str = TOPIC) -> None:
        messages = (Message(b"x" * 100),) * MESSAGES
        stored = [Entry(messages).encode()] * entries
        objects = ledger_objects(topic, ledger, stored, max_block_bytes=4 << 10)
        write_directory(self.directory, objects)

    def trim(self, ledger: int) -> None:
        for path in self.directory.glob(f"*-ledger-{ledger}*"):
            path.unlink()

    def data_of(self, ledger: int) -> Path:
        (data,) = self.directory.glob(f"*-ledger-{ledger}")
        return data

    def index_of(self, ledger: int) -> Path:
        (index,) = self.directory.glob(f"*-ledger-{ledger}-index")
        return index

    def hide_index(self, ledger: int) -> Path:
        index = self.index_of(ledger)
        return index.rename(self.directory / f"hidden {index.name}")

    def show_index(self, hidden: Path) -> None:
        hidden.rename(self.directory / hidden.name.removeprefix("hidden "))

    def age(self, ledger: int, *, hours: int) -> None:
        path = self.data_of(ledger)
        written_s = path.stat().st_mtime - 3600 * hours
        os.utime(path, (written_s, written_s))

    def reader(self, **options: Any) -> StreamReader:
        base = {"path": str(self.directory), "topic": TOPIC, "pollInterval": "0s"}
        scan = ScanOptions.parse({**base, "runBytes": "1k", **options})
        config = CacheConfig.resolve(options=scan.raw)
        return StreamReader(scan, config, TaskReader(scan, [], None))


def entries(reader: StreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    """Return the entries that a batch reads, with its offsets taken through JSON."""
    start, end = json.loads(json.dumps([start, end]))
    connector = connectors.find("pulsar")
    found = []
    for stream_partition in reader.partitions(start, end):
        part = stream_partition.partition
        consumer = part.consumer
        assert consumer.start is not None
        assert consumer.end is not None
        for piece in part.pieces:
            runs = connector.runs(piece.extent, reader.config.run_bytes)
            read = run_slice(piece, runs, consumer)
            for run in read.runs[read.start : read.stop] if read else ():
                positions = (
                    Position(piece.ledger.id, entry)
                    for entry in range(run.first, run.last + 1)
                )
                found += [
                    (position.ledger, position.entry)
                    for position in positions
                    if consumer.start <= position < consumer.end
                ]
    return found


def batches(reader: StreamReader, start: Any, limit: Any = ALL) -> list[Any]:
    """Return the offsets of all batches, up to the last that reads anything."""
    offsets = [start]
    while (end := reader.latestOffset(offsets[-1], limit)) != offsets[-1]:
        offsets.append(end)
    return offsets


def all_of(*ledgers: tuple[int, int]) -> list[tuple[int, int]]:
    return [(ledger, entry) for ledger, count in ledgers for entry in range(count)]
