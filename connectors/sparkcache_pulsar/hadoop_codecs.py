"""The codecs of Hadoop, by the class names that are stored in files.

    Default, Deflate   a zlib stream
    Gzip, BZip2        one or more consecutive streams
    ZStandard          frames
    Lz4, Snappy        pieces: decompressed length int32, then chunks of the piece:
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
"""The limit for any decompressed data: enough for an entry and for a block.

A broker accepts entries of 5 MiB, and a block is closed when it has 1 MB.
"""

_PREFIX = "org.apache.hadoop.io.compress."
_MAX_RATIO = 255  # LZ4's greatest expansion; Snappy's is less
_STEP_BYTES = 1 << 16
_MAX_STREAMS = 1 << 10  # each one copies the remaining data
_INT = struct.Struct(">i")


class _Stream(Protocol):
    """The interface that zlib's and bz2's decompressors share."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: Data, max_length: int, /) -> bytes: ...


class CodecError(ValueError):
    """Bytes are not valid for their codec, or decompress to more than the limit."""


def is_known(codec: str) -> bool:
    """Return whether a codec, named by its class, can be read."""
    return codec in _CODECS


def decompress(codec: str, data: Data, limit: int) -> bytes:
    """Return the decompressed data, up to `limit` bytes; raises CodecError."""
    limit = min(limit, MAX_BYTES)
    try:
        decompressed = _CODECS[codec](data, limit)
    except (OSError, ValueError, zlib.error, cramjam.DecompressionError) as error:
        raise CodecError(str(error)) from error
    if len(decompressed) > limit:
        raise CodecError(f"more than {limit} bytes")
    return decompressed


def _zlib(data: Data, limit: int) -> bytes:
    return _streams(data, limit, zlib.decompressobj)


def _gzip(data: Data, limit: int) -> bytes:
    return _streams(data, limit, lambda: zlib.decompressobj(16 + zlib.MAX_WBITS))


def _bzip2(data: Data, limit: int) -> bytes:
    return _streams(data, limit, bz2.BZ2Decompressor)


def _streams(data: Data, limit: int, begin: Callable[[], _Stream]) -> bytes:
    """Decompress all streams, up to one byte above the limit, which reveals excess."""
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
    """Decompress in steps, since a frame need not state its decompressed length."""
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
    pieces = bytearray()
    offset = 0
    while offset < len(data):
        size, offset = _int(data, offset)
        if not 0 <= size <= min(limit - len(pieces), _MAX_RATIO * (len(data) - offset)):
            raise CodecError(f"a piece that becomes {size} bytes")
        piece = bytearray(size)
        filled = 0
        while filled < size:
            length, offset = _int(data, offset)
            if not 0 < length <= len(data) - offset:
                raise CodecError(f"a chunk of {length} bytes")
            with memoryview(piece)[filled:] as room:
                # Not every codec accepts a view into a larger buffer, so copy it.
                filled += into(bytes(data[offset : offset + length]), room)
            offset += length
        pieces += piece
    return bytes(pieces)


def _int(data: Data, offset: int) -> tuple[int, int]:
    if offset + _INT.size > len(data):
        raise CodecError("the end of the data within a length")
    (value,) = _INT.unpack_from(data, offset)
    return value, offset + _INT.size


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
