"""The least progress of a response's body: 64 KiB in each `requestTimeout`.

A socket's timeout begins again with every byte, so by itself it bounds no body that
drips. A limit for the whole body would refuse large objects over a slow network.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from urllib3.response import HTTPResponse

PROGRESS_BYTES = 64 << 10
_PIECE_BYTES = 256 << 10


class TooSlowError(TimeoutError):
    """Too few bytes of a body have arrived."""


def require_progress(body: StreamingBody, limit_s: float) -> None:
    """Let reads of a body raise TooSlowError if less arrives in that time."""
    # It has no public name, but is what botocore's own classes of bodies read from.
    stream = ProgressingStream(body._raw_stream, limit_s)  # type: ignore[attr-defined]
    body._raw_stream = stream  # type: ignore[attr-defined]


class ProgressingStream:
    """The stream from which a body reads, as its bytes arrive.

    What is read as a whole by urllib3 is read here piece by piece, each of them what
    one call of the socket returns. Only the time that these calls take is counted: the
    reader may pause. Bytes that precede a failure are returned before it is raised.
    """

    def __init__(self, stream: HTTPResponse, limit_s: float) -> None:
        self._stream = stream
        self._limit_s = limit_s
        self._waited_s = 0.0  # since PROGRESS_BYTES have arrived
        self._arrived_bytes = 0
        self._problem: Exception | None = None

    def read(self, size_bytes: int | None = None) -> bytes:
        """Return that many bytes, or all; fewer at the end or before a failure."""
        left = size_bytes
        pieces: list[bytes] = []
        while left is None or left > 0:
            wanted = _PIECE_BYTES if left is None else min(left, _PIECE_BYTES)
            try:
                piece = self._next(wanted)
            except (HTTPError, OSError) as error:
                if left is None or not pieces:
                    raise
                self._problem = error
                break
            if not piece:
                break
            pieces.append(piece)
            if left is not None:
                left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close the connection, unless all has been read."""
        self._stream.close()

    def _next(self, size_bytes: int) -> bytes:
        """Return what has arrived, or arrives next; nothing at the end."""
        if self._problem is not None:
            raise self._problem
        begun_s = time.monotonic()
        piece = self._stream.read1(size_bytes)
        self._waited_s += time.monotonic() - begun_s
        self._arrived_bytes += len(piece)
        if self._arrived_bytes >= PROGRESS_BYTES:
            self._waited_s, self._arrived_bytes = 0.0, 0
        elif piece and self._waited_s > self._limit_s:
            self._problem = TooSlowError(
                f"{self._arrived_bytes} bytes within requestTimeout={self._limit_s:g} "
                f"s, fewer than {PROGRESS_BYTES}: a longer requestTimeout allows a "
                "slower network"
            )
        return piece
