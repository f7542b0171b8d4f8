"""The five ways in which Pulsar compresses the payload of an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cramjam

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkcache_pulsar.protobuf import Bytes

NONE = 0

MAX_PAYLOAD_BYTES = 128 << 20
"""What an entry may become when it is decompressed.

A broker takes 5 MiB as it is sent (`maxMessageSize`) and has no limit for what it
unfolds to. 25 times that is beyond what producers of one message or batch build, and
small enough for the memory of one loader.
"""


def _lz4_block(source: memoryview, target: memoryview) -> int:
    """Decompress a raw block: no frame, and no length in front of it."""
    written: int = cramjam.lz4.decompress_block_into(
        source, target, output_len=len(target)
    )
    return written


_CODECS: Mapping[int, tuple[str, Callable[..., int]]] = {
    1: ("LZ4", _lz4_block),
    2: ("ZLIB", cramjam.zlib.decompress_into),
    3: ("ZSTD", cramjam.zstd.decompress_into),
    4: ("SNAPPY", cramjam.snappy.decompress_raw_into),
}


def decompress(codec: int, source: Bytes, target: Bytes) -> tuple[str, str] | None:
    """Fill `target` exactly; otherwise return what was expected and found."""
    if codec not in _CODECS:
        return f"a codec of {NONE} to {max(_CODECS)}", f"{codec}"
    name, decompress_into = _CODECS[codec]
    expected = f"{len(source)} bytes of {name} that become {len(target)}"
    try:
        written = decompress_into(source.data, target.data)
    except cramjam.DecompressionError as error:
        return expected, str(error)
    return None if written == len(target) else (expected, f"{written} bytes")
