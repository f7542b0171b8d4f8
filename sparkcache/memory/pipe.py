"""A run that comes through a pipe, because it is not kept."""

from __future__ import annotations

import io
import select
from typing import TYPE_CHECKING

from sparkcache.memory.encoded import read, translated

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from sparkcache.connector import DecodedRun


def read_run(fd: int, timeout_s: float) -> DecodedRun:
    """Read a run from a pipe into memory of this process, and close the pipe.

    Raises CacheUnavailable if it does not come whole, or nothing for so long.
    """
    with (
        translated("a run through a pipe"),
        io.BufferedReader(_Pipe(fd, timeout_s)) as pipe,
    ):
        return read(pipe)


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
        size_bytes = super().readinto(buffer)
        if not size_bytes:  # nobody asks for more than there is; Arrow would not mind
            raise EOFError("it ends before its end was written")
        return size_bytes
