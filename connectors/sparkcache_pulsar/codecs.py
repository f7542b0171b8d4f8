"""The five codecs with which Pulsar compresses the payload of an entry."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import cramjam

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkcache.arrays import Bytes

NONE = 0

MAX_PAYLOAD_BYTES = 128 << 20
"""The limit for the decompressed payload of an entry.

A broker accepts 5 MiB as sent (`maxMessageSize`), and does not limit the decompressed
size. 25 times that is more than producers put into one message or batch, and small
enough for the memory of one loader.
"""

MAX_RUN_BYTES = 1 << 30
MAX_RUN_RATIO = 512
RUN_TOO_LARGE = "a run that fits into memory", "too many bytes in earlier entries"


def run_limit_bytes(stored_bytes: int) -> int:
    """Return the limit for a decoded run, whose entries are in memory together.

    That is 1 GiB or 512 times the stored size, whichever is more. Only data made for
    the purpose expands further, and a run may have any number of such entries.
    """
    return max(MAX_RUN_BYTES, MAX_RUN_RATIO * stored_bytes)


def _lz4_block(source: memoryview, target: memoryview) -> int:
    """Decompress a raw block, which has neither a frame nor a length prefix."""
    written: int = cramjam.lz4.decompress_block_into(
        source, target, output_len=len(target)
    )
    return written


def _zlib_stream(source: memoryview, target: memoryview) -> int:
    """Decompress a stream that Java does not finish: no last block, no checksum.

    Asks for one byte more than fits, to detect a longer payload.
    """
    data = zlib.decompressobj().decompress(source, len(target) + 1)
    if len(data) == len(target):
        target[:] = data
    return len(data)


_CODECS: Mapping[int, tuple[str, Callable[..., int]]] = {
    1: ("LZ4", _lz4_block),
    2: ("ZLIB", _zlib_stream),
    3: ("ZSTD", cramjam.zstd.decompress_into),
    4: ("SNAPPY", cramjam.snappy.decompress_raw_into),
}


def name(codec: int) -> str:
    """Return Pulsar's name for a codec; the number if the codec is unknown."""
    if codec == NONE:
        return "NONE"
    return _CODECS[codec][0] if codec in _CODECS else str(codec)


def decompress(codec: int, source: Bytes, target: Bytes) -> tuple[str, str] | None:
    """Fill `target` exactly, or return what was expected and what was found."""
    if codec not in _CODECS:
        return f"a codec of {NONE} to {max(_CODECS)}", f"{codec}"
    codec_name, decompress_into = _CODECS[codec]
    expected = (
        f"{len(source)} bytes of {codec_name} that decompress to {len(target)} bytes"
    )
    try:
        written = decompress_into(source.data, target.data)
    except (cramjam.DecompressionError, zlib.error) as error:
        return expected, str(error)
    return None if written == len(target) else (expected, f"{written} bytes")
