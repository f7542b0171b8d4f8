"""Runs in shared memory: sealed, mapped by many, gone with the last of them."""

from __future__ import annotations

import fcntl
import gc
import io
import mmap
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sparkcache.connector import DecodedRun
from sparkcache.errors import CacheUnavailable
from sparkcache.memory.encoded import EncodedRun
from sparkcache.memory.pipe import read_run, write_run
from sparkcache.memory.sealed import map_run, seal
from sparkcache.model import Loss
from sparkcache.node.loader import _stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.node.messages import Streamed

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.binary())])
LOSS = Loss("s3://bucket/key", 4096, 7, 3, 5, "a frame", "zeros")


def batch(rows: int) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(range(rows)), pa.array([b"x" * 100] * rows)], schema=SCHEMA
    )


RUN = DecodedRun([batch(500), batch(3)], (LOSS,))


def nothing() -> None:
    """Nobody waits for the end."""


@pytest.fixture
def sealed() -> Iterator[tuple[int, int]]:
    """A descriptor of the run, and its size."""
    encoded = EncodedRun(RUN, SCHEMA)
    fd = seal(encoded, encoded.size_bytes)
    yield fd, encoded.size_bytes
    os.close(fd)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(RUN, id="batches and a loss"),
        pytest.param(DecodedRun([], (LOSS, LOSS)), id="losses alone"),
        pytest.param(DecodedRun([]), id="nothing"),
        pytest.param(DecodedRun([batch(0)]), id="an empty batch"),
    ],
)
def test_a_run_comes_back_as_it_was(run: DecodedRun) -> None:
    encoded = EncodedRun(run, SCHEMA)
    fd = seal(encoded, encoded.size_bytes)
    assert os.fstat(fd).st_size == encoded.size_bytes
    found = map_run(fd, encoded.size_bytes, nothing)
    os.close(fd)
    assert found.losses == run.losses
    assert found.batches == run.batches


def test_a_sealed_run_cannot_be_changed(sealed: tuple[int, int]) -> None:
    fd, size_bytes = sealed
    for change in (
        lambda: os.write(fd, b"x"),
        lambda: os.ftruncate(fd, 0),
        lambda: os.ftruncate(fd, size_bytes * 2),
        lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
        lambda: mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_WRITE),
    ):
        with pytest.raises(PermissionError):
            change()


def test_batches_stay_valid_without_the_descriptor(sealed: tuple[int, int]) -> None:
    fd = os.dup(sealed[0])
    found = map_run(fd, sealed[1], nothing)
    os.close(fd)
    gc.collect()
    assert found.batches == RUN.batches


def test_nothing_is_copied(sealed: tuple[int, int]) -> None:
    before = pa.total_allocated_bytes()
    found = map_run(*sealed, nothing)
    assert pa.total_allocated_bytes() - before < 1000
    assert found.batches[0].num_rows == 500


def test_the_end_of_a_mapping_is_reported(sealed: tuple[int, int]) -> None:
    released: list[str] = []
    found = map_run(*sealed, lambda: released.append("gone"))
    column = found.batches[0].column(1).slice(10, 1)
    del found
    assert released == []
    assert is_mapped()
    del column
    assert released == ["gone"]
    assert not is_mapped()


def is_mapped() -> bool:
    with Path("/proc/self/maps").open() as maps:
        return "/memfd:sparkcache" in maps.read()


def memfd(content: bytes) -> int:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK
    seals |= fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def unsealed() -> int:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    return fd


@pytest.mark.parametrize(
    ("make", "size_bytes"),
    [
        pytest.param(unsealed, 4096, id="not sealed"),
        pytest.param(lambda: os.open("/dev/zero", os.O_RDONLY), 4096, id="no memfd"),
        pytest.param(lambda: memfd(b"nonsense" * 512), 4096, id="not Arrow"),
        pytest.param(lambda: memfd(b"\0" * 4096), 4096, id="zeros"),
        pytest.param(lambda: memfd(b"\xff" * 4096), 4096, id="lengths below zero"),
        pytest.param(lambda: memfd(b""), 4096, id="shorter than it is said to be"),
        pytest.param(lambda: memfd(b"x"), -1, id="a size below zero"),
        pytest.param(lambda: memfd(b"x"), 1 << 62, id="a size beyond all bounds"),
        pytest.param(lambda: memfd(b"x"), 1 << 70, id="a size that is no size"),
    ],
)
def test_invalid_runs_are_refused(make: object, size_bytes: int) -> None:
    assert callable(make)
    released: list[str] = []
    fd = make()
    with pytest.raises(CacheUnavailable):
        map_run(fd, size_bytes, lambda: released.append("gone"))
    os.close(fd)
    gc.collect()
    assert released == ["gone"]


def test_a_run_comes_through_a_pipe() -> None:
    read_end, write_end = os.pipe()

    def write() -> None:
        with os.fdopen(write_end, "wb", buffering=0) as sink:
            EncodedRun(RUN, SCHEMA).write(sink)

    writer = threading.Thread(target=write)
    writer.start()
    found = read_run(read_end, timeout_s=10)
    writer.join()
    assert (found.batches, found.losses) == (RUN.batches, RUN.losses)


@pytest.mark.parametrize(
    ("content", "is_closed"),
    [
        pytest.param(b"", True, id="nothing"),
        pytest.param(b"\xff\xff\xff\xff\x00\x01", True, id="it breaks off"),
        pytest.param(b"nonsense" * 99, True, id="nonsense"),
        pytest.param(b"\xff\xff\xff\xff", False, id="silence"),
    ],
)
def test_a_pipe_that_fails_is_refused(content: bytes, is_closed: bool) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, content)
    if is_closed:
        os.close(write_end)
    with pytest.raises(CacheUnavailable, match="a run through a pipe"):
        read_run(read_end, timeout_s=0.01)
    if not is_closed:
        os.close(write_end)


def test_a_process_without_room_for_a_mapping_gets_an_error() -> None:
    code = """
import os, resource
import pyarrow as pa
from sparkcache.connector import DecodedRun
from sparkcache.errors import CacheUnavailable
from sparkcache.memory.encoded import EncodedRun
from sparkcache.memory.sealed import map_run, seal

schema = pa.schema([("value", pa.binary())])
batch = pa.record_batch([pa.array([b"x" * (64 << 20)])], schema=schema)
encoded = EncodedRun(DecodedRun([batch]), schema)
fd = seal(encoded, encoded.size_bytes)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (8 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    map_run(fd, encoded.size_bytes, lambda: print("released"))
except CacheUnavailable as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    released, said = done.stdout.splitlines()
    assert released == "released"
    assert "Cannot allocate memory" in said


def test_a_pipe_that_breaks_anywhere_is_refused() -> None:
    """Between two messages too: Arrow would take what came before for all there is."""
    sink = io.BytesIO()
    EncodedRun(DecodedRun([batch(2)] * 3), SCHEMA).write(sink)
    whole = sink.getvalue()
    for size_bytes in range(len(whole)):
        read_end, write_end = os.pipe()
        os.write(write_end, whole[:size_bytes])
        os.close(write_end)
        with pytest.raises(CacheUnavailable, match="a run through a pipe"):
            read_run(read_end, timeout_s=10)


class FakeChannel:
    """Keeps the end of the pipe that it is to send."""

    def __init__(self) -> None:
        self.sent: Queue[int] = Queue()

    def send(self, _: Streamed, fd: int) -> None:
        self.sent.put(os.dup(fd))


def test_a_loader_that_is_interrupted_streams_all_of_a_run() -> None:
    """As by SIGCONT: what is being written is cut short then."""
    run = DecodedRun([batch(5_000)] * 3)
    channel = FakeChannel()
    found: list[DecodedRun] = []
    interrupted = threading.Event()

    def read_late() -> None:
        fd = channel.sent.get()
        interrupted.wait(10)
        found.append(read_run(fd, timeout_s=10))

    reader = threading.Thread(target=read_late)
    reader.start()
    before = signal.signal(signal.SIGALRM, lambda *_: interrupted.set())
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        _stream(channel, EncodedRun(run, SCHEMA))  # type: ignore[arg-type]
    finally:
        signal.signal(signal.SIGALRM, before)
    reader.join()
    assert [one.batches for one in found] == [run.batches]


def test_a_loader_does_not_wait_long_for_a_reader_that_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    channel = FakeChannel()
    encoded = EncodedRun(DecodedRun([batch(5_000)]), SCHEMA)
    _stream(channel, encoded, timeout_s=0.05)  # type: ignore[arg-type]
    assert "took no bytes for 0.05 s" in caplog.text
    with pytest.raises(CacheUnavailable, match="ended before the end of the run"):
        read_run(channel.sent.get(), timeout_s=10)


def test_a_loader_does_not_wait_for_a_reader_that_left() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    run = EncodedRun(DecodedRun([batch(5_000)]), SCHEMA)
    with pytest.raises(BrokenPipeError):
        write_run(run, write_end, timeout_s=10)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(write_end)
