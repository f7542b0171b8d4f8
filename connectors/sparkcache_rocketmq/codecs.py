"""Decompress bodies, up to a limit.

The decompressed size of a body is not stored, so it has to be guessed.

Source: CompressionType, Compressor and MessageSysFlag of Apache RocketMQ.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import cramjam
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkcache.arrays import Bytes

MAX_BODY_BYTES = 128 << 20
"""Maximum size of a decompressed body.

A broker accepts bodies of 4 MiB as they are sent (`maxMessageSize`) and does not limit
their decompressed size. 32 times that still fits into the memory of one loader.
"""

MAX_RUN_BYTES = 1 << 30
"""Maximum size of all decompressed bodies of a run: they are in memory together."""

_FIRST_GUESS = 64 << 10
_GROWTH = 8


class BodyError(Exception):
    """Error for a body that cannot be decoded: what was expected, what was found."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.fault = expected, found


def _zlib(source: memoryview) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(source, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise BodyError(_expected("ZLIB", source), str(error)) from error
    if len(data) <= MAX_BODY_BYTES and not stream.eof:
        raise BodyError(_expected("ZLIB", source), "the end of the body")
    return data


def _lz4(source: memoryview) -> bytes:
    return _decompress_into_guess("LZ4", cramjam.lz4.decompress_into, source)


def _zstd(source: memoryview) -> bytes:
    return _decompress_into_guess("ZSTD", cramjam.zstd.decompress_into, source)


_CODECS: Mapping[int, Callable[[memoryview], bytes]] = {
    0x000: _zlib,  # written by old clients
    0x100: _lz4,
    0x200: _zstd,
    0x300: _zlib,
}


def decompress(codec: int, source: memoryview) -> bytes:
    """Return a decompressed body; raises BodyError."""
    if codec not in _CODECS:
        raise BodyError("a compression type of 0 to 3", f"{codec >> 8}")
    data = _CODECS[codec](source)
    if len(data) > MAX_BODY_BYTES:
        raise BodyError(f"a body of up to {MAX_BODY_BYTES} bytes", "a longer one")
    return data


def _decompress_into_guess(
    name: str,
    decompress_into: Callable[[memoryview, memoryview], int],
    source: memoryview,
) -> bytes:
    """Decompress, with growing buffers.

    The last one is a byte larger than the limit, so that longer bodies are noticed.
    """
    capacity = min(_FIRST_GUESS + _GROWTH * len(source), MAX_BODY_BYTES + 1)
    while True:
        target: Bytes = np.empty(capacity, np.uint8)
        try:
            return target[: decompress_into(source, target.data)].tobytes()
        except cramjam.DecompressionError as error:
            if capacity > MAX_BODY_BYTES:
                raise BodyError(_expected(name, source), str(error)) from error
        capacity = min(_GROWTH * capacity, MAX_BODY_BYTES + 1)


def _expected(name: str, source: memoryview) -> str:
    return f"{len(source)} bytes of {name} that decompress to at most {MAX_BODY_BYTES}"
