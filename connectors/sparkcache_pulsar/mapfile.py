"""Read a ledger of the file system offloader: Hadoop's MapFile.

It is a folder with two SequenceFiles. `data` has a record for each entry: its id and
its bytes, in order. The first record has id -1: the ledger's metadata. `index` has an
offset in `data` for each 128th record or so: an id, and the offset of its record. In
a file of compressed blocks this is the offset of the block, which may have records
before the indexed one.

Both files exist from the start; the contents of the index are written last.

Source: FileSystemManagedLedgerOffloader of Apache Pulsar; MapFile in
org.apache.hadoop.io. By default it compresses each value by itself, with zlib.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sparkcache.errors import SourceError
from sparkcache.model import Extent
from sparkcache_pulsar import hadoop_codecs
from sparkcache_pulsar.index import ledger_metadata
from sparkcache_pulsar.records import METADATA_KEY, RECORD_HEADER_BYTES, OneRun
from sparkcache_pulsar.sequencefile import (
    BLOCK_COMPRESSED,
    BYTES,
    LONG,
    DataInput,
    EndOfData,
    Layout,
    block_values,
    plain_header_bytes,
    read_block,
    read_header,
    read_keys,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId

EXTENT_BYTES = 16 << 20
"""Target size of an extent that can be cut into runs; one request reads it."""
RUN_BYTES = 2 << 20
"""Target size of an extent that cannot be cut; decoded as a whole, it grows."""

_HEAD_BYTES = 1 << 14
_HEAD_GROWTH = 16
_MAX_HEAD_BYTES = 16 << 20
_MAX_ENTRIES_PER_BYTE = 1 << 10  # in a block: equal entries compress to almost nothing
_OFFSET = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MapFile:
    """The contents of an index and of the start of its data.

    Attributes:
        managed_ledger: Name of the topic's managed ledger; None if absent.
        layout: How records are stored.
        extents: Where the entries are stored.

    """

    managed_ledger: str | None
    layout: Layout
    extents: tuple[Extent, ...]


def read_map_file(
    storage: Storage, index_id: ObjectId, data_id: ObjectId
) -> MapFile | None:
    """Read an index and the start of its data; None if the upload is not finished.

    Raises SourceError if they are not consistent.
    """
    index = _read_index(index_id.uri, storage.get(index_id.uri).data)
    if not index:
        return None
    end = data_id.size_bytes
    layout, name, last, start = _read_growing(storage, data_id, 0, end, _read_head)
    _check_index(index_id.uri, index, last, end)
    kind, step_bytes = Extent, EXTENT_BYTES
    if layout.kind == BLOCK_COMPRESSED:
        kind, step_bytes = OneRun, RUN_BYTES
    starts = _in_steps(index, start, step_bytes)
    if layout.kind == BLOCK_COMPRESSED:
        starts = [_first_entry(storage, data_id, layout, *record) for record in starts]
    if not starts or starts[0][0] != 0:  # else a block has only the metadata
        starts.insert(0, (0, start))
    extents = tuple(
        kind(first, next_first - 1, offset, next_offset - offset)
        for (first, offset), (next_first, next_offset) in zip(
            starts, [*starts[1:], (last + 1, end)], strict=True
        )
    )
    _check_extents(index_id.uri, layout, extents)
    return MapFile(name, layout, extents)


def _check_index(uri: str, index: list[tuple[int, int]], last: int, end: int) -> None:
    previous = METADATA_KEY - 1, 0
    for key, offset in index:
        if not (previous[0] < key <= last and previous[1] < offset < end):
            raise SourceError(
                uri,
                offset=0,
                expected=f"ascending offsets of records up to {last} in {end} bytes",
                found=f"record {key} at byte {offset}",
            )
        previous = key, offset
    if index[0][0] != METADATA_KEY:
        raise SourceError(
            uri,
            offset=0,
            expected=f"record {METADATA_KEY} as the first indexed record",
            found=f"record {index[0][0]}",
        )


def _check_extents(uri: str, layout: Layout, extents: Iterable[Extent]) -> None:
    for extent in extents:
        entries = extent.last - extent.first + 1
        room = extent.size_bytes // RECORD_HEADER_BYTES
        if layout.kind == BLOCK_COMPRESSED:
            room = extent.size_bytes * _MAX_ENTRIES_PER_BYTE
        if not 0 < entries <= room:
            raise SourceError(
                uri,
                offset=0,
                expected="offsets with room for the entries between them",
                found=f"entries {extent.first} to {extent.last} in {extent.size_bytes} "
                f"bytes from {extent.offset}",
            )


def _first_entry(
    storage: Storage, data_id: ObjectId, layout: Layout, key: int, offset: int
) -> tuple[int, int]:
    """Return first entry and offset of the block at `offset`, which has `key`."""

    def read(source: DataInput) -> int:
        keys = read_keys(source, layout)
        if not keys[0] <= key <= keys[-1]:
            found = f"a block of records {keys[0]} to {keys[-1]}"
            raise source.fault(f"a block with record {key}", found)
        return int(keys[0])

    return _read_growing(storage, data_id, offset, data_id.size_bytes, read), offset


def _read_index(uri: str, data: bytes) -> list[tuple[int, int]]:
    """Return record ids and offsets; an empty list if there is at most a header."""
    source = DataInput(uri, data)
    if not data:
        return []
    layout = read_header(source, LONG)
    if not source.remaining and len(data) != plain_header_bytes(layout, LONG):
        # MapFile writes no metadata. So this header has consumed records after it.
        raise source.fault("offsets after a header", "the end of the data")
    return list(_offsets(source, layout))


def _offsets(source: DataInput, layout: Layout) -> Iterator[tuple[int, int]]:
    while source.remaining:
        try:
            for key, value in _next_records(source, layout):
                if len(value) != _OFFSET.size:
                    raise source.fault("an offset", f"{len(value)} bytes")
                yield key, _OFFSET.unpack(value)[0]
        except hadoop_codecs.CodecError as error:
            raise source.fault(f"offsets in {layout.codec}", f"{error}") from error


def _next_records(source: DataInput, layout: Layout) -> list[tuple[int, bytes]]:
    """Read a block of records, or one record; raises CodecError."""
    if layout.kind == BLOCK_COMPRESSED:
        block = read_block(source, layout)
        values = map(bytes, block_values(block, layout))
        return list(zip(block.keys.tolist(), values, strict=True))
    length = source.int32("a record")
    if length == -1:
        marker = source.take(len(layout.sync), "a sync marker")
        if marker != layout.sync:
            raise source.fault("a sync marker", marker.hex())
        length = source.int32("a record")
    size = source.int32("the length of a key")
    if size != _OFFSET.size:
        raise source.fault(f"a key of {_OFFSET.size} bytes", f"a key of {size} bytes")
    (key,) = _OFFSET.unpack(source.take(size, "a key"))
    value = source.take(length - size, "a value")
    return [(key, layout.decompress(value, hadoop_codecs.MAX_BYTES))]


def _read_head(source: DataInput) -> tuple[Layout, str | None, int, int]:
    """Return layout, topic, last entry, and the offset of the first entry."""
    layout = read_header(source, BYTES)
    start = source.offset
    try:
        records = _next_records(source, layout)
    except hadoop_codecs.CodecError as error:
        raise source.fault(f"ledger metadata in {layout.codec}", f"{error}") from error
    key, value = records[0]
    size = _SIZE.unpack_from(value)[0] if len(value) >= _SIZE.size else -1
    if key != METADATA_KEY or size != len(value) - _SIZE.size:
        raise source.fault(
            f"ledger metadata in record {METADATA_KEY}",
            f"record {key} of {len(value)} bytes",
        )
    name, last_entry = ledger_metadata(source.uri, value, _SIZE.size, size)
    has_entries = layout.kind == BLOCK_COMPRESSED  # in the block of the metadata
    return layout, name, last_entry, start if has_entries else source.offset


def _in_steps(
    index: Iterable[tuple[int, int]], start: int, step_bytes: int
) -> list[tuple[int, int]]:
    """Choose records at least `step_bytes` apart, and that far from `start`."""
    chosen = []
    for key, offset in index:
        if offset - start >= step_bytes:
            chosen.append((key, offset))
            start = offset
    return chosen


def _read_growing(
    storage: Storage,
    data_id: ObjectId,
    offset: int,
    end: int,
    read: Callable[[DataInput], _T],
) -> _T:
    """Read data of unknown length: fetch more and more bytes until `read` succeeds."""
    size = _HEAD_BYTES
    while True:
        size = min(size, end - offset, _MAX_HEAD_BYTES)
        stream = storage.open(data_id, offset, size)
        data = bytearray()
        try:
            while chunk := stream.read(size - len(data)):
                data += chunk
        finally:
            stream.close()
        try:
            return read(DataInput(data_id.uri, bytes(data), offset))
        except EndOfData:
            if size in (end - offset, _MAX_HEAD_BYTES):
                raise
        size *= _HEAD_GROWTH
