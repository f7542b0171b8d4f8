"""One decoded run in sealed shared memory: written once, mapped by many."""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import select
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import pyarrow as pa

from sparkcache.connector import DecodedRun
from sparkcache.errors import CacheUnavailable
from sparkcache.model import Loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import WriteableBuffer

_LOSSES = b"sparkcache.losses"
_GATHER_BYTES = 64 << 10  # a batch has dozens of buffers, most of them smaller
_SEALS = (
    fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
)


class EncodedRun:
    """A decoded run whose exact size in shared memory is known before it is there.

    Attributes:
        size_bytes: What it takes, in whole pages.

    """

    def __init__(self, decoded: DecodedRun, schema: pa.Schema) -> None:
        self._batches = decoded.batches
        self._schema = schema
        if decoded.losses:
            losses = msgspec.json.encode(decoded.losses)
            self._schema = schema.with_metadata({_LOSSES: losses})
        counter = pa.MockOutputStream()
        self.write(counter)
        pages = -(-counter.size() // mmap.PAGESIZE)
        self.size_bytes: int = pages * mmap.PAGESIZE

    def seal(self) -> int:
        """Write it; return a descriptor that the caller owns."""
        fd = os.memfd_create("sparkcache", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            file = pa.OSFile(f"/proc/self/fd/{fd}", "wb")
            with pa.BufferedOutputStream(file, _GATHER_BYTES) as sink:
                self.write(sink)
            os.ftruncate(fd, self.size_bytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def write(self, sink: pa.NativeFile | BinaryIO) -> None:
        """Write it as an Arrow IPC stream."""
        with pa.ipc.new_stream(sink, self._schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)


def map_run(fd: int, size_bytes: int, on_unmap: Callable[[], None]) -> DecodedRun:
    """Map a sealed run; its batches point into the mapping, nothing is copied.

    The descriptor stays the caller's. The mapping lives as long as any batch, or slice
    of one; then `on_unmap` is called, also if nothing comes of it. Raises
    CacheUnavailable where the process has no room left to map it, or if what is there
    is not a sealed run.
    """
    with _translated(f"a run of {size_bytes} bytes"):
        try:
            _require_sealed(fd)
            mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        except BaseException:
            on_unmap()
            raise
        weakref.finalize(mapping, on_unmap).atexit = False
        return _read(pa.py_buffer(mapping))


def _require_sealed(fd: int) -> None:
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) != _SEALS:
        raise CacheUnavailable("what the node sent is not sealed")


def read_run(fd: int, timeout_s: float) -> DecodedRun:
    """Read a run from a pipe into memory of this process, and close the pipe.

    Raises CacheUnavailable if it does not come whole, or nothing for so long.
    """
    with (
        _translated("a run through a pipe"),
        io.BufferedReader(_Pipe(fd, timeout_s)) as pipe,
    ):
        return _read(pipe)


class _Pipe(io.FileIO):
    """The end of a pipe whose other end may fall silent."""

    def __init__(self, fd: int, timeout_s: float) -> None:
        super().__init__(fd, "rb")
        self._timeout_s = timeout_s
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def readinto(self, buffer: WriteableBuffer) -> int:
        if not self._poll.poll(self._timeout_s * 1000):
            raise TimeoutError(f"silent for {self._timeout_s:g} s")
        return super().readinto(buffer) or 0


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn whatever is wrong with a run into CacheUnavailable."""
    try:
        yield
    except (
        OSError,
        ValueError,
        OverflowError,
        MemoryError,
        pa.ArrowException,
        msgspec.MsgspecError,
    ) as error:
        raise CacheUnavailable(f"{what}: {error}") from error


def _read(source: pa.Buffer | BinaryIO) -> DecodedRun:
    reader = pa.ipc.open_stream(source)
    batches = list(reader)
    losses = (reader.schema.metadata or {}).get(_LOSSES, b"[]")
    return DecodedRun(batches, msgspec.json.decode(losses, type=tuple[Loss, ...]))
