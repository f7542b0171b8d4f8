"""A task that reads four runs, and a node that does as a test says."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkcache.config import CacheConfig
from sparkcache.connector import DecodedRun, RawRun
from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.fetch import RunSlice, Scan
from sparkcache.memory.encoded import EncodedRun
from sparkcache.memory.sealed import seal
from sparkcache.memory.segment import WritableSegments
from sparkcache.model import Extent, Ledger, ObjectId, ReadToken, Run, Segment, Slot
from sparkcache.node.channel import BrokenChannelError, Channel
from sparkcache.node.client import read_scan
from sparkcache.node.messages import (
    FromTask,
    Served,
    ServedFromSegment,
    Streamed,
    Take,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sparkcache.node.address import Address

RUNS = 4
SCHEMA = pa.schema([("entry", pa.int64())])
CONFIG = CacheConfig(request_timeout_s=5)
SEGMENT = Segment(0, 1 << 16)


class NumbersConnector:
    """Its entries are bytes; each run is one."""

    name = "numbers"

    def split(
        self, ledger: Any, extent: Any, runs: Any, stream: Any
    ) -> Iterator[RawRun]:
        for run in runs:
            yield RawRun(run, stream.position, stream.read(1))

    def decode(self, ledger: Any, raw: RawRun, batch_bytes: int) -> DecodedRun:
        return run_of(raw.data[0])


def run_of(number: int) -> DecodedRun:
    return DecodedRun([pa.record_batch([pa.array([number])], schema=SCHEMA)])


def write_scan(directory: Path) -> Scan:
    """Four runs, with 0 to 3 in them, for NumbersConnector."""
    path = directory / "data"
    path.write_bytes(bytes(range(RUNS)))
    status = path.stat()
    version = f"{status.st_mtime_ns:x}-{status.st_ino:x}"
    ledger = Ledger("numbers", "t", 0, ObjectId(path.as_uri(), RUNS, version))
    runs = tuple(Run(entry, entry) for entry in range(RUNS))
    part = RunSlice(ledger, Extent(0, RUNS - 1, 0, RUNS), runs, 0, RUNS)
    return Scan(directory.as_uri(), CONFIG.storage, CONFIG.scan, (part,))


READER = ReaderIdentity(ReadToken(0, 0), "scan", Consumer("t"), RUNS)


def read(scan: Scan, **changes: Any) -> list[int]:
    config = replace(CONFIG, **changes)
    runs = read_scan(
        replace(scan, config=config.scan),
        reader=READER,
        epoch=0,
        settings=config.node,
        plans=(),
    )
    return [number for run in runs for b in run.batches for number in b[0].to_pylist()]


class Node:
    """A node that answers two Takes correctly, and the third as the test says."""

    def __init__(self, address: Address, third: Callable[[Channel[Any]], None]) -> None:
        self.heard: list[Any] = []
        self._third = third
        address.prepare()
        self._listener = address.listen()
        self._listener.settimeout(10)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError, BrokenChannelError):
            sock, _ = self._listener.accept()
            sock.settimeout(10)
            with closing(Channel[Any](sock, FromTask)) as channel:
                while True:
                    message, _ = channel.receive()
                    self.heard.append(message)
                    if isinstance(message, Take):
                        self._answer(channel, message.index)

    def _answer(self, channel: Channel[Any], index: int) -> None:
        if index == 2:
            self._third(channel)
        else:
            serve(channel, index)


def hand_over(
    channel: Channel[Any], message: Served | ServedFromSegment | Streamed, fd: int
) -> None:
    try:
        channel.send(message, fd)
    finally:
        os.close(fd)


def serve(channel: Channel[Any], number: int) -> None:
    encoded = EncodedRun(run_of(number), SCHEMA)
    hand_over(channel, Served(encoded.size_bytes), seal(encoded, encoded.size_bytes))


def new_segment(*numbers: int) -> tuple[int, tuple[Slot, ...]]:
    """A segment in which runs follow each other, as a reader gets it."""
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SEGMENT.size_bytes)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    writer = WritableSegments()
    writer.add(SEGMENT.number, fd)
    slots: list[Slot] = []
    for number in numbers:
        encoded = EncodedRun(run_of(number), SCHEMA)
        offset = sum(slot.size_bytes for slot in slots)
        writer.write(encoded, SEGMENT, offset)
        size_bytes = -(-encoded.size_bytes // 64) * 64
        slots.append(Slot(size_bytes, SEGMENT, offset))
    return fd, tuple(slots)
