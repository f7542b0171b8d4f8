"""A streamed run: it goes through a pipe, because it is not kept."""

from __future__ import annotations

import io
import os
import select
from typing import TYPE_CHECKING

from sparkcache.memory.encoded import read, unavailable_on_error

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from sparkcache.connector import DecodedRun
    from sparkcache.memory.encoded import EncodedRun, EncodedSmallRun


def write_run(run: EncodedRun | EncodedSmallRun, fd: int, timeout_s: float) -> None:
    """Write a run into a pipe, and close the pipe.

    Raises BrokenPipeError if its reader has closed it, TimeoutError if the reader takes
    no bytes for `timeout_s`.
    """
    with io.BufferedWriter(_Sink(fd, timeout_s)) as sink:
        run.write(sink)


def read_run(fd: int, timeout_s: float) -> DecodedRun:
    """Read a run from a pipe into private memory of this process, and close the pipe.

    Raises CacheUnavailable if the run is incomplete or no bytes arrive for `timeout_s`.
    """
    try:
        with (
            unavailable_on_error("a run through a pipe"),
            io.BufferedReader(_Pipe(fd, timeout_s)) as pipe,
        ):
            return read(pipe)
    finally:
        os.close(fd)


class _Pipe(io.FileIO):
    """The reading end of a pipe, with a timeout; the caller keeps the descriptor."""

    def __init__(self, fd: int, timeout_s: float) -> None:
        super().__init__(fd, "rb", closefd=False)
        self._timeout_s = timeout_s
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def readinto(self, buffer: WriteableBuffer) -> int:
        if not self._poll.poll(self._timeout_s * 1000):
            raise TimeoutError(f"no bytes for {self._timeout_s:g} s")
        size_bytes = super().readinto(buffer)
        if not size_bytes:  # Arrow would take this for a shorter run
            raise EOFError("the pipe ended before the end of the run")
        return size_bytes


class _Sink(io.FileIO):
    """The writing end of a pipe, with a timeout."""

    def __init__(self, fd: int, timeout_s: float) -> None:
        super().__init__(fd, "wb")
        os.set_blocking(fd, False)
        self._timeout_s = timeout_s
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._error: TimeoutError | None = None

    def write(self, data: ReadableBuffer) -> int:
        """Write all of the data, however often that is interrupted."""
        if self._error is not None:  # this is the flush before the pipe is closed
            raise self._error
        rest = memoryview(data).cast("B")
        size_bytes = len(rest)
        while rest:
            written = super().write(rest)
            if written is not None:
                rest = rest[written:]
            elif not self._poll.poll(self._timeout_s * 1000):
                self._error = TimeoutError(
                    f"it took no bytes for {self._timeout_s:g} s"
                )
                raise self._error
        return size_bytes
