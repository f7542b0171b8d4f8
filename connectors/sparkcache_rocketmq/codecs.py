"""Decompresses bodies, up to a limit.

How long a body was before is not stored, so there has to be a guess.

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
"""What a body may become.

A broker takes 4 MiB as it is sent (`maxMessageSize`) and has no limit for what it
unfolds to. 32 times that is small enough for the memory of one loader.
"""

MAX_RUN_BYTES = 1 << 30
"""What all bodies of a run may become: they are in memory together."""

_FIRST_GUESS = 64 << 10
_GROWTH = 8


class BodyError(Exception):
    """A body that cannot be had: what was expected, and what was found."""

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
    return _guessed("LZ4", cramjam.lz4.decompress_into, source)


def _zstd(source: memoryview) -> bytes:
    return _guessed("ZSTD", cramjam.zstd.decompress_into, source)


_CODECS: Mapping[int, Callable[[memoryview], bytes]] = {
    0x000: _zlib,  # what old clients write
    0x100: _lz4,
    0x200: _zstd,
    0x300: _zlib,
}


def decompress(codec: int, source: memoryview) -> bytes:
    """Return a body as it was sent; raises BodyError."""
    if codec not in _CODECS:
        raise BodyError("a compression type of 0 to 3", f"{codec >> 8}")
    data = _CODECS[codec](source)
    if len(data) > MAX_BODY_BYTES:
        raise BodyError(f"a body of up to {MAX_BODY_BYTES} bytes", "a longer one")
    return data


def _guessed(
    name: str, into: Callable[[memoryview, memoryview], int], source: memoryview
) -> bytes:
    """Decompress to more and more room. One byte more than the limit tells of more."""
    room = min(_FIRST_GUESS + _GROWTH * len(source), MAX_BODY_BYTES + 1)
    while True:
        target: Bytes = np.empty(room, np.uint8)
        try:
            return target[: into(source, target.data)].tobytes()
        except cramjam.DecompressionError as error:
            if room > MAX_BODY_BYTES:
                raise BodyError(_expected(name, source), str(error)) from error
        room = min(_GROWTH * room, MAX_BODY_BYTES + 1)


def _expected(name: str, source: memoryview) -> str:
    return f"{len(source)} bytes of {name} that become up to {MAX_BODY_BYTES}"
