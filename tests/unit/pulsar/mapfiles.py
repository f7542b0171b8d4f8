"""Writes ledgers as the file system offloader would; shares no code with the reader."""

from __future__ import annotations

import bz2
import gzip
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cramjam

from sparkcache_pulsar.testing import ledger_metadata, managed_ledger

from .topics import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkcache.testing import MemoryStorage

SYNC = bytes(range(100, 116))
UUID = "0c4d9a1e-7a52-4e6c-9a1f-000000000001"
LONG = "org.apache.hadoop.io.LongWritable"
BYTES = "org.apache.hadoop.io.BytesWritable"


def in_pieces(
    data: bytes, compress: Callable[[bytes], bytes], most: int = 300
) -> bytes:
    """As BlockCompressorStream writes: two pieces, each of several chunks."""
    out = b""
    for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
        out += struct.pack(">i", len(piece))
        for at in range(0, len(piece), most):
            chunk = compress(piece[at : at + most])
            out += struct.pack(">i", len(chunk)) + chunk
    return out


COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "Default": zlib.compress,
    "Deflate": zlib.compress,
    "Gzip": gzip.compress,
    "BZip2": bz2.compress,
    "ZStandard": lambda data: bytes(cramjam.zstd.compress(data)),
    "Lz4": lambda data: in_pieces(
        data, lambda chunk: bytes(cramjam.lz4.compress_block(chunk, store_size=False))
    ),
    "Snappy": lambda data: in_pieces(
        data, lambda chunk: bytes(cramjam.snappy.compress_raw(chunk))
    ),
}


def vint(value: int) -> bytes:
    if -112 <= value <= 127:
        return struct.pack("b", value)
    size = max(1, ((value if value >= 0 else ~value).bit_length() + 7) // 8)
    first = -112 - size if value >= 0 else -120 - size
    return struct.pack("b", first) + (value if value >= 0 else ~value).to_bytes(
        size, "big"
    )


def text(value: str) -> bytes:
    return vint(len(value.encode())) + value.encode()


@dataclass(frozen=True)
class Format:
    """How a file is laid out: "records", "record" or "block", and its codec."""

    kind: str = "record"
    codec: str = "Default"
    sync_every: int = 0
    per_block: int = 4

    def header(self, values: str = BYTES) -> bytes:
        compressed = self.kind != "records"
        codec = f"org.apache.hadoop.io.compress.{self.codec}Codec"
        return b"".join(
            (
                b"SEQ\6",
                text(LONG),
                text(values),
                bytes([compressed, self.kind == "block"]),
                text(codec) if compressed else b"",
                struct.pack(">i", values == BYTES),
                text("who") + text("a test") if values == BYTES else b"",
                SYNC,
            )
        )

    def record(self, key: int, value: bytes) -> bytes:
        if self.kind != "records":
            value = COMPRESS[self.codec](value)
        return struct.pack(">iiq", 8 + len(value), 8, key) + value

    def block(self, records: Sequence[tuple[int, bytes]]) -> bytes:
        out = b"\xff\xff\xff\xff" + SYNC + vint(len(records))
        for part in (
            b"".join(vint(8) for _ in records),
            b"".join(struct.pack(">q", key) for key, _ in records),
            b"".join(vint(len(value)) for _, value in records),
            b"".join(value for _, value in records),
        ):
            packed = COMPRESS[self.codec](part)
            out += vint(len(packed)) + packed
        return out

    def file(
        self, records: Iterable[tuple[int, bytes]], values: str = BYTES
    ) -> tuple[bytes, list[tuple[int, int]]]:
        """Return the file, and for each record where an index may point to."""
        data = bytearray(self.header(values))
        places: list[tuple[int, int]] = []
        waiting: list[tuple[int, bytes]] = []
        for number, (key, value) in enumerate(records):
            places.append((key, len(data)))
            if self.kind == "block":
                waiting.append((key, value))
                if len(waiting) == self.per_block:
                    data += self.block(waiting)
                    waiting = []
                continue
            if self.sync_every and number % self.sync_every == 0:
                data += b"\xff\xff\xff\xff" + SYNC
            data += self.record(key, value)
        if waiting:
            data += self.block(waiting)
        return bytes(data), places


def indexed(places: Sequence[tuple[int, int]], interval: int) -> list[tuple[int, int]]:
    """Choose as MapFile does: every `interval` records, where the offset differs."""
    chosen: list[tuple[int, int]] = []
    since = interval
    for key, offset in places:
        if since >= interval and (not chosen or offset > chosen[-1][1]):
            chosen.append((key, offset))
            since = 0
        since += 1
    return chosen


def index_file(places: Sequence[tuple[int, int]]) -> bytes:
    records = ((key, struct.pack(">q", offset)) for key, offset in places)
    return Format("block", "Default", per_block=1000).file(records, LONG)[0]


def map_file(
    entries: Sequence[bytes],
    format_: Format,
    interval: int = 3,
    metadata: bytes | None = None,
) -> tuple[bytes, bytes]:
    """Return data and index."""
    first = ledger_metadata(TOPIC, entries) if metadata is None else metadata
    records = [
        (key, struct.pack(">i", len(value)) + value)
        for key, value in enumerate([first, *entries], -1)
    ]
    data, places = format_.file(records)
    return data, index_file(indexed(places, interval))


def folder(ledger: int = 7, topic: str = TOPIC, uuid: str = UUID) -> str:
    return f"{managed_ledger(topic)}/{ledger}-{uuid}"


def store_files(
    storage: MemoryStorage, files: tuple[bytes, bytes], where: str | None = None
) -> MemoryStorage:
    where = folder() if where is None else where
    data, index = files
    storage.put(f"{where}/data", data)
    storage.put(f"{where}/index", index)
    storage.put(f"{where}/.data.crc", b"crc\0")
    return storage
