"""One decoded run in sealed shared memory: written once, mapped by many."""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache.errors import CacheUnavailable
from sparkcache.memory.encoded import decode, unavailable_on_error
from sparkcache.memory.memfd import create_memfd, has_seals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkcache.connector import DecodedRun
    from sparkcache.memory.encoded import EncodedRun, EncodedSmallRun

_GATHER_BYTES = 64 << 10  # a batch has dozens of buffers, most of them smaller
_SEALS = (
    fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
)


def seal(run: EncodedRun | EncodedSmallRun, size_bytes: int) -> int:
    """Write a run into `size_bytes` of new memory; return a descriptor.

    The caller owns the descriptor.
    """
    fd = create_memfd()
    try:
        file = pa.OSFile(f"/proc/self/fd/{fd}", "wb")
        with pa.BufferedOutputStream(file, _GATHER_BYTES) as sink:
            run.write(sink)
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def seal_bundle(
    runs: Sequence[EncodedSmallRun], offsets: Sequence[int], size_bytes: int
) -> int:
    """Write runs into `size_bytes` of new memory; return a descriptor.

    The caller owns the descriptor.
    """
    fd = create_memfd()
    try:
        content = pa.BufferOutputStream()
        for run, offset in zip(runs, offsets, strict=True):
            content.write(bytes(offset - content.tell()))
            run.write(content)
        os.ftruncate(fd, size_bytes)
        os.pwrite(fd, content.getvalue(), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


class MappedBundle:
    """A bundle of runs, mapped as long as this object, or any batch of any run.

    The caller keeps the descriptor. Raises CacheUnavailable if it is not that of sealed
    memory, or cannot be mapped.
    """

    def __init__(self, fd: int) -> None:
        with unavailable_on_error("a bundle of runs"):
            _require_sealed(fd)
            size_bytes = os.fstat(fd).st_size
            mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
            self._view = memoryview(mapping)

    def __repr__(self) -> str:
        return f"MappedBundle({len(self._view)} bytes)"

    def read(
        self, offset: int, size_bytes: int, on_unmap: Callable[[], None]
    ) -> DecodedRun:
        """Return a run; its batches point into the mapping, nothing is copied.

        When none of its batches is referred to any longer, or if reading it fails,
        `on_unmap` is called. Raises CacheUnavailable if there is no such run.
        """
        with unavailable_on_error(f"a run of {size_bytes} bytes at byte {offset}"):
            end = offset + size_bytes
            if not 0 <= offset < end <= len(self._view):
                on_unmap()
                raise CacheUnavailable(f"no such run in {self!r}")
            view = self._view[offset:end]
            weakref.finalize(view, on_unmap).atexit = False
            return decode(pa.py_buffer(view))


def map_run(fd: int, size_bytes: int, on_unmap: Callable[[], None]) -> DecodedRun:
    """Map a sealed run; its batches point into the mapping, nothing is copied.

    The caller keeps the descriptor. The mapping lives as long as any batch, or slice of
    one; then `on_unmap` is called. If mapping fails, `on_unmap` is called as well.
    Raises CacheUnavailable if the process has no address space left to map the run, or
    if the descriptor is not that of a sealed run.
    """
    with unavailable_on_error(f"a run of {size_bytes} bytes"):
        try:
            _require_sealed(fd)
            mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        except BaseException:
            on_unmap()
            raise
        weakref.finalize(mapping, on_unmap).atexit = False
        return decode(pa.py_buffer(mapping))


def _require_sealed(fd: int) -> None:
    if not has_seals(fd, _SEALS):
        raise CacheUnavailable(
            "the node sent a descriptor of memory that is not sealed"
        )
