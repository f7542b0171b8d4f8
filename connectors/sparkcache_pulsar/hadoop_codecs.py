"""The codecs of Hadoop, by the names of the classes that files are stored with.

    Default, Deflate   a zlib stream
    Gzip, BZip2        one stream or several, one behind the other
    ZStandard          frames
    Lz4, Snappy        pieces: length int32 when decompressed, and then chunks of it:
                       length int32, that many bytes of a raw block

Source: the codecs in org.apache.hadoop.io.compress, and BlockCompressorStream.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from typing import TYPE_CHECKING, Protocol

import cramjam
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Data = bytes | memoryview

MAX_BYTES = 128 << 20
"""What anything may become when it is decompressed: enough for an entry, and a block.

A broker takes entries of 5 MiB, and a block is closed once it has 1 MB.
"""

_PREFIX = "org.apache.hadoop.io.compress."
_MOST_OF_A_BYTE = 255  # what LZ4 can make of one; Snappy makes less
_STEP_BYTES = 1 << 16
_MAX_STREAMS = 1 << 10  # each copies what follows it
_INT = struct.Struct(">i")


class _Stream(Protocol):
    """What zlib and bz2 have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: Data, max_length: int, /) -> bytes: ...


class CodecError(ValueError):
    """Bytes are not what their codec writes, or become more than they may."""


def is_known(codec: str) -> bool:
    """Tell whether a codec can be read, by the name of its class."""
    return codec in _CODECS


def decompress(codec: str, data: Data, limit: int) -> bytes:
    """Return what was compressed, of `limit` bytes at most; raises CodecError."""
    limit = min(limit, MAX_BYTES)
    try:
        found = _CODECS[codec](data, limit)
    except (OSError, ValueError, zlib.error, cramjam.DecompressionError) as error:
        raise CodecError(str(error)) from error
    if len(found) > limit:
        raise CodecError(f"more than {limit} bytes")
    return found


def _zlib(data: Data, limit: int) -> bytes:
    return _streams(data, limit, zlib.decompressobj)


def _gzip(data: Data, limit: int) -> bytes:
    return _streams(data, limit, lambda: zlib.decompressobj(16 + zlib.MAX_WBITS))


def _bzip2(data: Data, limit: int) -> bytes:
    return _streams(data, limit, bz2.BZ2Decompressor)


def _streams(data: Data, limit: int, begin: Callable[[], _Stream]) -> bytes:
    """Decompress streams up to the end; a byte more than the limit tells of more."""
    parts: list[bytes] = []
    room = limit + 1
    while data and room > 0:
        if len(parts) == _MAX_STREAMS:
            raise CodecError(f"more than {_MAX_STREAMS} streams")
        stream = begin()
        parts.append(stream.decompress(data, room))
        room -= len(parts[-1])
        if not stream.eof and room > 0:
            raise CodecError("the end of the data within a stream")
        data = stream.unused_data
    return b"".join(parts)


def _zstd(data: Data, limit: int) -> bytes:
    """Decompress by steps, since a frame need not say how long it becomes."""
    stream = pa.CompressedInputStream(pa.BufferReader(data), "zstd")
    parts, room = [], limit + 1
    while room > 0 and (part := stream.read(min(_STEP_BYTES, room))):
        parts.append(part)
        room -= len(part)
    return b"".join(parts)


def _lz4(data: Data, limit: int) -> bytes:
    return _pieces(data, limit, cramjam.lz4.decompress_block_into)


def _snappy(data: Data, limit: int) -> bytes:
    return _pieces(data, limit, cramjam.snappy.decompress_raw_into)


def _pieces(data: Data, limit: int, into: Callable[..., int]) -> bytes:
    found = bytearray()
    at = 0
    while at < len(data):
        size, at = _int(data, at)
        if not 0 <= size <= min(limit - len(found), _MOST_OF_A_BYTE * (len(data) - at)):
            raise CodecError(f"a piece that becomes {size} bytes")
        piece = bytearray(size)
        filled = 0
        while filled < size:
            length, at = _int(data, at)
            if not 0 < length <= len(data) - at:
                raise CodecError(f"a chunk of {length} bytes")
            with memoryview(piece)[filled:] as room:
                # A copy of the chunk: views into larger buffers are not all accepted.
                filled += into(bytes(data[at : at + length]), room)
            at += length
        found += piece
    return bytes(found)


def _int(data: Data, at: int) -> tuple[int, int]:
    if at + _INT.size > len(data):
        raise CodecError("the end of the data within a length")
    (value,) = _INT.unpack_from(data, at)
    return value, at + _INT.size


_CODECS: Mapping[str, Callable[[Data, int], bytes]] = {
    f"{_PREFIX}{name}Codec": codec
    for name, codec in {
        "Default": _zlib,
        "Deflate": _zlib,
        "Gzip": _gzip,
        "BZip2": _bzip2,
        "ZStandard": _zstd,
        "Lz4": _lz4,
        "Snappy": _snappy,
    }.items()
}
