"""A task whose node lies, dies, is silent or is not there: its result is the same."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from sparkcache import connector as connectors
from sparkcache.config import CacheConfig
from sparkcache.connector import DecodedRun, RawRun
from sparkcache.demand import Consumer, ReaderIdentity
from sparkcache.errors import CredentialsError, SourceError
from sparkcache.fetch import RunSlice, Scan
from sparkcache.memory.encoded import EncodedRun
from sparkcache.memory.sealed import seal
from sparkcache.memory.segment import WritableSegments
from sparkcache.metrics import Metrics
from sparkcache.model import Extent, Ledger, ObjectId, ReadToken, Run, Segment, Slot
from sparkcache.node.address import Address
from sparkcache.node.channel import BrokenChannelError, Channel
from sparkcache.node.client import read_scan
from sparkcache.node.launch import suspected
from sparkcache.node.messages import (
    Failed,
    Finish,
    FromTask,
    KeepAlive,
    MetricsReply,
    PackedOpen,
    Refused,
    Served,
    ServedFromSegment,
    Streamed,
    Take,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


@pytest.fixture
def scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scan:
    """Four runs, with 0 to 3 in them."""
    monkeypatch.setattr(connectors, "find", lambda _: NumbersConnector())
    path = tmp_path / "data"
    path.write_bytes(bytes(range(RUNS)))
    status = path.stat()
    version = f"{status.st_mtime_ns:x}-{status.st_ino:x}"
    ledger = Ledger("numbers", "t", 0, ObjectId(path.as_uri(), RUNS, version))
    runs = tuple(Run(entry, entry) for entry in range(RUNS))
    part = RunSlice(ledger, Extent(0, RUNS - 1, 0, RUNS), runs, 0, RUNS)
    return Scan(tmp_path.as_uri(), CONFIG.storage, CONFIG.scan, (part,))


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


def place(channel: Channel[Any]) -> None:
    fd, slots = new_segment(2)
    hand_over(channel, ServedFromSegment(slots, SEGMENT.number), fd)


def place_two(channel: Channel[Any]) -> None:
    fd, slots = new_segment(2, 3)
    hand_over(channel, ServedFromSegment(slots, SEGMENT.number), fd)


def place_without_segment(channel: Channel[Any]) -> None:
    fd, slots = new_segment(2)
    os.close(fd)
    channel.send(ServedFromSegment(slots))


def place_beyond_the_end(channel: Channel[Any]) -> None:
    fd, [slot] = new_segment(2)
    hand_over(
        channel,
        ServedFromSegment((slot._replace(offset=SEGMENT.size_bytes),), SEGMENT.number),
        fd,
    )


def place_in_what_may_shrink(channel: Channel[Any]) -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    hand_over(channel, ServedFromSegment((Slot(64, SEGMENT),), SEGMENT.number), fd)


def serve_patiently(channel: Channel[Any]) -> None:
    for _ in range(3):
        channel.send(KeepAlive())
    serve(channel, 2)


def stream(channel: Channel[Any]) -> None:
    read_end, write_end = os.pipe()
    hand_over(channel, Streamed(), read_end)
    with os.fdopen(write_end, "wb") as sink:
        EncodedRun(run_of(2), SCHEMA).write(sink)


def serve_unsealed(channel: Channel[Any]) -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    hand_over(channel, Served(4096), fd)


def serve_nonsense(channel: Channel[Any]) -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, b"nonsense" * 512)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 15)
    hand_over(channel, Served(4096), fd)


def break_a_pipe(channel: Channel[Any]) -> None:
    read_end, write_end = os.pipe()
    hand_over(channel, Streamed(), read_end)
    os.close(write_end)


def die(channel: Channel[Any]) -> None:
    channel.close()


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    yield Address(tmp_path)
    suspected.clear()  # the nodes of these tests are threads of this process


@pytest.mark.parametrize(
    "third",
    [
        pytest.param(serve_patiently, id="late, but it was patient"),
        pytest.param(stream, id="through a pipe"),
        pytest.param(place, id="in a segment"),
    ],
)
def test_a_task_reads_what_its_node_gives(
    scan: Scan,
    address: Address,
    caplog: pytest.LogCaptureFixture,
    third: Callable[[Channel[Any]], None],
) -> None:
    with closing(Node(address, third)) as node:
        assert read(scan) == [0, 1, 2, 3]
    assert caplog.records == []
    opening, *takes, finish = node.heard
    assert isinstance(opening, PackedOpen)
    assert [take.read for take in takes] == [(), ((0, 0),), ((0, 1),), ((0, 2),)]
    assert finish.read == ((0, 3),)
    released = [place for said in (*takes, finish) for place in said.released]
    assert sorted(released) == [
        (0, n) for n in range(RUNS - 1) if n != 2 or third != stream
    ]


def test_a_task_does_not_ask_for_what_it_was_given_already(
    scan: Scan, address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Node(address, place_two)) as node:
        assert read(scan) == [0, 1, 2, 3]
    assert caplog.records == []
    _, *takes, finish = node.heard
    assert [take.index for take in takes] == [0, 1, 2]
    assert finish.read == ((0, 2), (0, 3))


@pytest.mark.parametrize(
    ("third", "reason"),
    [
        pytest.param(die, "gone", id="it dies"),
        pytest.param(lambda _: None, "timed out", id="it is silent"),
        pytest.param(
            lambda channel: channel.send(Refused("so there")),
            "so there",
            id="it refuses",
        ),
        pytest.param(
            lambda channel: channel.send(MetricsReply(Metrics())),
            "unexpected reply",
            id="it babbles",
        ),
        pytest.param(
            lambda channel: channel.send(Served(4096)),
            "unexpected reply",
            id="no descriptor",
        ),
        pytest.param(
            lambda channel: channel._socket.sendall(b"\xff" * 99),
            "frame",
            id="nonsense",
        ),
        pytest.param(serve_unsealed, "not sealed", id="a run that is not sealed"),
        pytest.param(serve_nonsense, "4096 bytes", id="an invalid run"),
        pytest.param(place_without_segment, "Slot", id="a segment it has not sent"),
        pytest.param(place_beyond_the_end, "Slot", id="beyond a segment's end"),
        pytest.param(place_in_what_may_shrink, "shrink", id="what may shrink"),
        pytest.param(
            lambda channel: channel.send(ServedFromSegment(())),
            "unexpected reply",
            id="no slot",
        ),
        pytest.param(break_a_pipe, "pipe", id="a pipe that breaks"),
        pytest.param(
            lambda channel: channel.send(Finish()), "not decode", id="what tasks say"
        ),
    ],
)
def test_whatever_the_node_does_the_result_is_the_same(
    scan: Scan,
    address: Address,
    caplog: pytest.LogCaptureFixture,
    third: Callable[[Channel[Any]], None],
    reason: str,
) -> None:
    with closing(Node(address, third)):
        assert read(scan, request_timeout_s=0.2) == [0, 1, 2, 3]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("continuing without the cache")
    assert reason in record.getMessage()


def test_what_the_storage_refused_the_node_is_not_asked_for_again(
    scan: Scan, address: Address
) -> None:
    failure = Failed("file:///data", 2, "a byte", "none")
    node = Node(address, lambda channel: channel.send(failure))
    with closing(node), pytest.raises(SourceError, match="at byte 2: expected a byte"):
        read(scan)


def test_a_task_reads_with_its_own_credentials_if_those_of_the_node_are_refused(
    scan: Scan, address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    refused = CredentialsError("s3://bucket/1", expected="valid ones", found="expired")
    failure = Failed.from_error(refused)
    with closing(Node(address, lambda channel: channel.send(failure))):
        assert read(scan) == [0, 1, 2, 3]
    [record] = caplog.records
    assert "the node was refused: s3://bucket/1" in record.getMessage()


def test_a_node_that_ends_before_the_last_message_is_ignored(
    scan: Scan, address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    class Ending(Node):
        def _answer(self, channel: Channel[Any], index: int) -> None:
            serve(channel, index)
            if index == RUNS - 1:
                channel.close()

    with closing(Ending(address, die)):
        assert read(scan) == [0, 1, 2, 3]
    assert caplog.records == []


def test_a_task_that_is_given_up_hangs_up(scan: Scan, address: Address) -> None:
    with closing(Node(address, die)) as node:
        runs = read_scan(scan, reader=READER, epoch=0, settings=CONFIG.node, plans=())
        next(runs)
        runs.close()  # type: ignore[attr-defined]
    assert not any(isinstance(message, Finish) for message in node.heard)


@pytest.mark.parametrize(
    ("enabled", "warnings"),
    [
        pytest.param(False, 0, id="without a cache nobody is asked"),
        pytest.param(True, 1, id="outside of an executor"),
    ],
)
def test_reading_without_a_node(
    scan: Scan,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    enabled: bool,
    warnings: int,
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    assert read(scan, enabled=enabled) == [0, 1, 2, 3]
    assert len(caplog.records) == warnings
