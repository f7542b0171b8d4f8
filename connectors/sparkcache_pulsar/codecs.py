"""The five ways in which Pulsar compresses the payload of an entry."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import cramjam

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkcache.arrays import Bytes

NONE = 0

MAX_PAYLOAD_BYTES = 128 << 20
"""What an entry may become when it is decompressed.

A broker takes 5 MiB as it is sent (`maxMessageSize`) and has no limit for what it
unfolds to. 25 times that is beyond what producers of one message or batch build, and
small enough for the memory of one loader.
"""

MAX_RUN_BYTES = 1 << 30
MAX_RUN_RATIO = 512
TOO_MUCH = "a run that fits into memory", "more than that in the entries before"


def most_of_run(stored_bytes: int) -> int:
    """Return what a run may become: its entries are in memory together.

    That is 1 GiB, or 512 times as much as is stored if that is more: what becomes even
    more is made for that, as nothing limits how many bombs a run has.
    """
    return max(MAX_RUN_BYTES, MAX_RUN_RATIO * stored_bytes)


def _lz4_block(source: memoryview, target: memoryview) -> int:
    """Decompress a raw block: no frame, and no length in front of it."""
    written: int = cramjam.lz4.decompress_block_into(
        source, target, output_len=len(target)
    )
    return written


def _zlib_stream(source: memoryview, target: memoryview) -> int:
    """Decompress a stream that Java leaves without an end: no last block, no checksum.

    One byte more than fits is asked for, to notice that there is one.
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
    """Return what Pulsar calls a codec; of one that is unknown, the number."""
    if codec == NONE:
        return "NONE"
    return _CODECS[codec][0] if codec in _CODECS else str(codec)


def decompress(codec: int, source: Bytes, target: Bytes) -> tuple[str, str] | None:
    """Fill `target` exactly; otherwise return what was expected and found."""
    if codec not in _CODECS:
        return f"a codec of {NONE} to {max(_CODECS)}", f"{codec}"
    called, decompress_into = _CODECS[codec]
    expected = f"{len(source)} bytes of {called} that become {len(target)}"
    try:
        written = decompress_into(source.data, target.data)
    except (cramjam.DecompressionError, zlib.error) as error:
        return expected, str(error)
    return None if written == len(target) else (expected, f"{written} bytes")
