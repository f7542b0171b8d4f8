"""Read Hadoop's SequenceFile: keys and values, one by one or in compressed blocks.

    header   "SEQ", version 6, class of keys, class of values: text; whether values are
             compressed, whether in blocks: a byte each; if compressed, class of the
             codec: text; n int32 and n pairs of text; sync marker: 16 bytes
    text     length vint, that many bytes of UTF-8
    sync     -1 int32, the 16 bytes of the header again
    record   length of key and value int32, length of key int32, key, value
    block    sync; n vint; lengths of keys, keys, lengths of values, values: each of
             these a vint and that many bytes, which hold n vints, or n keys or values

A sync marker may precede any record, and precedes each block. A vint is Hadoop's: a
byte of -112 to 127 is the number itself, a lesser byte encodes sign and length. Other
numbers are big-endian and signed.

Source: SequenceFile and WritableUtils in org.apache.hadoop.io.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from sparkcache.errors import SourceError
from sparkcache_pulsar import hadoop_codecs

if TYPE_CHECKING:
    from sparkcache.arrays import Ints

LONG = "org.apache.hadoop.io.LongWritable"
BYTES = "org.apache.hadoop.io.BytesWritable"
SYNC_BYTES = 16
KEY_BYTES = 8

RECORDS, RECORD_COMPRESSED, BLOCK_COMPRESSED = "records", "record", "block"

_MAGIC = b"SEQ\6"
_ESCAPE = b"\xff\xff\xff\xff"
_INT = struct.Struct(">i")
_MAX_METADATA = 1 << 12  # Pulsar writes none
_MAX_RECORDS = 1 << 22  # a block is closed once it has 1 MB


class Layout(msgspec.Struct, frozen=True, tag="sequencefile"):
    """How the records of a file are stored.

    Attributes:
        kind: Plain records, records with compressed values, or compressed blocks.
        codec: Class of the codec; empty for plain records.
        sync: The sync marker.

    """

    kind: str
    codec: str
    sync: bytes

    def decompress(self, data: memoryview, limit: int) -> bytes:
        """Return `data` decompressed; raises CodecError."""
        if not self.codec:
            return bytes(data)
        return hadoop_codecs.decompress(self.codec, data, limit)


class EndOfData(SourceError):  # noqa: N818 - more may follow
    """The data end before the value that is read."""


class DataInput:
    """Reads the data of an object, one value after another; named as Hadoop's own.

    Missing or unexpected data raise a SourceError that names the offset.
    """

    def __init__(self, uri: str, data: bytes | memoryview, offset: int = 0) -> None:
        self.uri = uri
        self._data = memoryview(data)
        self._offset = offset
        self.index = 0

    def __repr__(self) -> str:
        return f"DataInput({self.uri} at byte {self.offset})"

    @property
    def offset(self) -> int:
        """Offset in the object."""
        return self._offset + self.index

    @property
    def remaining(self) -> int:
        """Number of bytes that follow."""
        return len(self._data) - self.index

    def take(self, size: int, name: str) -> memoryview:
        """Return the next `size` bytes; errors call them `name`."""
        if not 0 <= size <= self.remaining:
            kind = SourceError if size < 0 else EndOfData
            raise self.fault(
                f"{name} of up to {self.remaining} bytes", f"{size} bytes", kind
            )
        self.index += size
        return self._data[self.index - size : self.index]

    def int32(self, name: str) -> int:
        """Read an int32."""
        (value,) = _INT.unpack(self.take(_INT.size, name))
        return int(value)

    def vint(self, name: str) -> int:
        """Read a vint."""
        value, size = read_vint(self._data, self.index)
        if size > self.remaining:
            raise self.fault(name, "the end of the data", EndOfData)
        self.index += size
        return value

    def text(self, name: str) -> str:
        """Read a text."""
        return str(self.take(self.vint(name), name), "utf-8", "replace")

    def fault(
        self, expected: str, found: str, kind: type[SourceError] = SourceError
    ) -> SourceError:
        """Return an error for unexpected data at this offset."""
        return kind(self.uri, offset=self.offset, expected=expected, found=found)


def read_vint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return a number and its length, which may exceed the available data."""
    if offset >= len(data):
        return 0, 1
    first = data[offset] - 256 if data[offset] > 127 else data[offset]
    if first >= -112:
        return first, 1
    size = -(first + 112) if first >= -120 else -(first + 120)
    value = int.from_bytes(data[offset + 1 : offset + 1 + size], "big")
    return (value if first >= -120 else ~value), 1 + size


def read_header(source: DataInput, value_class: str) -> Layout:
    """Read a header; raises SourceError unless values are of `value_class`."""
    if (magic := bytes(source.take(4, "a header"))) != _MAGIC:
        source.index -= 4
        raise source.fault(f"a SequenceFile {_MAGIC!r}", f"{magic!r}")
    for part, expected in (("keys", LONG), ("values", value_class)):
        if (found := source.text(f"the class of {part}")) != expected:
            raise source.fault(f"{part} of {expected}", f"{found[:200]!r}")
    is_compressed, in_blocks = source.take(2, "two flags")
    codec = source.text("the class of a codec") if is_compressed else ""
    if is_compressed and not hadoop_codecs.is_known(codec):
        raise source.fault("a known codec", f"{codec[:200]!r}")
    if in_blocks and not is_compressed:
        raise source.fault("uncompressed records, as the header says", "blocks")
    pairs = source.int32("metadata")
    if pairs > _MAX_METADATA:
        raise source.fault(f"up to {_MAX_METADATA} pairs of metadata", f"{pairs}")
    for _ in range(2 * pairs):
        source.text("metadata")
    kind = RECORD_COMPRESSED if is_compressed else RECORDS
    sync = bytes(source.take(SYNC_BYTES, "a sync marker"))
    return Layout(BLOCK_COMPRESSED if in_blocks else kind, codec, sync)


def plain_header_bytes(layout: Layout, value_class: str) -> int:
    """Return the length of a header without metadata."""
    texts = [LONG, value_class, *([layout.codec] if layout.codec else [])]
    flags = 2
    return len(_MAGIC) + sum(1 + len(text) for text in texts) + flags + 4 + SYNC_BYTES


@dataclass(frozen=True, slots=True)
class Block:
    """A block: its keys, and its values as stored."""

    offset: int
    keys: Ints
    lengths: memoryview
    values: memoryview


def read_keys(source: DataInput, layout: Layout) -> Ints:
    """Read a block from its sync marker up to its keys."""
    marker = source.take(_INT.size + SYNC_BYTES, "a sync marker")
    if marker != _ESCAPE + layout.sync:
        source.index -= len(marker)
        raise source.fault("a sync marker", f"{marker.hex()}")
    records = source.vint("a number of records")
    if not 0 < records <= _MAX_RECORDS:
        raise source.fault(f"1 to {_MAX_RECORDS} records", f"{records}")
    lengths = source.take(source.vint("a length"), "lengths of keys")
    if _decompress(source, layout, lengths, records) != bytes([KEY_BYTES]) * records:
        raise source.fault(f"{records} keys of {KEY_BYTES} bytes each", "other lengths")
    keys = source.take(source.vint("a length"), "keys")
    data = _decompress(source, layout, keys, KEY_BYTES * records)
    if len(data) != KEY_BYTES * records:
        raise source.fault(f"{records} keys", f"{len(data)} bytes")
    return np.frombuffer(data, ">i8").astype(np.int64)


def read_block(source: DataInput, layout: Layout) -> Block:
    """Read a block from its sync marker up to its end."""
    offset, keys = source.offset, read_keys(source, layout)
    lengths = source.take(source.vint("a length"), "lengths of values")
    values = source.take(source.vint("a length"), "values")
    return Block(offset, keys, lengths, values)


def _decompress(
    source: DataInput, layout: Layout, data: memoryview, limit: int
) -> bytes:
    try:
        return layout.decompress(data, limit)
    except hadoop_codecs.CodecError as error:
        raise source.fault(f"up to {limit} bytes of {layout.codec}", str(error)) from (
            error
        )


def block_values(block: Block, layout: Layout) -> list[memoryview]:
    """Return the values of a block, one per key; raises CodecError."""
    records = len(block.keys)
    lengths = layout.decompress(block.lengths, 9 * records)
    sizes, offset = [], 0
    for _ in range(records):
        size, size_bytes = read_vint(lengths, offset)
        sizes.append(size)
        offset += size_bytes
    total = sum(sizes)
    if offset != len(lengths) or min(sizes) < 0 or total > hadoop_codecs.MAX_BYTES:
        raise hadoop_codecs.CodecError(f"{records} values of {total} bytes")
    data = memoryview(layout.decompress(block.values, total))
    if len(data) != total:
        raise hadoop_codecs.CodecError(f"{len(data)} bytes, not {total}")
    ends = np.cumsum(sizes).tolist()
    return [data[end - size : end] for size, end in zip(sizes, ends, strict=True)]
