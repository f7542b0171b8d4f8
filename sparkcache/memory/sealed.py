"""One decoded run in sealed shared memory: written once, mapped by many."""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import BinaryIO

import msgspec
import pyarrow as pa

from sparkcache.connector import DecodedRun
from sparkcache.errors import CacheUnavailable
from sparkcache.model import Loss

_LOSSES = b"sparkcache.losses"
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
            with pa.OSFile(f"/proc/self/fd/{fd}", "wb") as sink:
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


def map_run(fd: int, size_bytes: int) -> DecodedRun:
    """Map a sealed run; its batches point into the mapping, nothing is copied.

    The descriptor stays the caller's; the mapping lives as long as any batch. Raises
    CacheUnavailable where the process has no room left to map it, or if what is there
    is not a sealed run.
    """
    try:
        if fcntl.fcntl(fd, fcntl.F_GET_SEALS) != _SEALS:
            raise CacheUnavailable("what the node sent is not sealed")
        mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        return _read(pa.py_buffer(mapping))
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        raise CacheUnavailable(f"a run of {size_bytes} bytes: {error}") from error


def read_run(fd: int) -> DecodedRun:
    """Read a run from a pipe into memory of this process, and close the pipe.

    Raises CacheUnavailable if it does not come whole.
    """
    try:
        with os.fdopen(fd, "rb") as pipe:
            return _read(pipe)
    except (OSError, pa.ArrowInvalid) as error:
        raise CacheUnavailable(f"a run through a pipe: {error}") from error


def _read(source: pa.Buffer | BinaryIO) -> DecodedRun:
    reader = pa.ipc.open_stream(source)
    batches = list(reader)
    losses = (reader.schema.metadata or {}).get(_LOSSES, b"[]")
    return DecodedRun(batches, msgspec.json.decode(losses, type=tuple[Loss, ...]))
