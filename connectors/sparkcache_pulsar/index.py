"""The index object of an offloaded ledger: its topic and the offsets of its blocks.

    magic            int32   0xDE47DE47
    own length       int32   ignored, as in Pulsar's own readers
    data length      int64   of the data object
    header length    int64   of each data block, 128
    n                int32   blocks
    m                int32   bytes of ledger metadata
    metadata         m       protobuf LedgerMetadataFormat of BookKeeper
    n times          int64 first entry id, int32 part number, int64 offset

All numbers are big-endian and signed.

A broker that cannot fit an entry into a block writes an index whose last block is
empty. The blocks before an inconsistent one can be read.

Source: OffloadIndexBlockImpl of Apache Pulsar. Different here: all fields are checked
against each other, since an index determines the ranges to read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparkcache.errors import SourceError
from sparkcache.model import UNKNOWN_END, Extent
from sparkcache_pulsar.frames import FRAME_HEADER_BYTES, HEADER_BYTES
from sparkcache_pulsar.wire import fields, place, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = 0xDE47DE47

_HEAD = struct.Struct(">IIqqii")
METADATA_OFFSET = _HEAD.size
_BLOCK = struct.Struct(">qiq")
BLOCK = np.dtype([("first", ">i8"), ("part", ">i4"), ("offset", ">i8")])

_LAST_ENTRY, _CUSTOM = 4, 11
_CUSTOM_KEY, _CUSTOM_VALUE = 1, 2
_LEDGER_NAME_KEYS = (b"pulsar/managed-ledger", b"psr/managed-ledger")


@dataclass(frozen=True, slots=True)
class Index:
    """The contents of an index object.

    Attributes:
        managed_ledger: Name of the topic's managed ledger; None if absent.
        data_bytes: Length of the data object.
        last: Id of the ledger's last entry; UNKNOWN_END if the blocks contradict it.
        extents: The blocks, up to the first one that is not consistent.
        fault: Why that block cannot be read; None if all blocks are consistent.

    """

    managed_ledger: str | None
    data_bytes: int
    last: int
    extents: tuple[Extent, ...]
    fault: SourceError | None = None


def parse_index(uri: str, data: bytes) -> Index:
    """Parse an index object; raises SourceError if its blocks cannot be found."""
    if len(data) < _HEAD.size:
        raise SourceError(
            uri,
            offset=len(data),
            expected="an index of 32 bytes or more",
            found=f"{len(data)} bytes",
        )
    magic, _, data_bytes, header_bytes, blocks, metadata_bytes = _HEAD.unpack_from(data)
    check_constants(uri, magic, header_bytes, expected=MAGIC)
    size = _HEAD.size + metadata_bytes + BLOCK.itemsize * blocks
    if blocks < 1 or metadata_bytes < 0 or size != len(data):
        raise SourceError(
            uri,
            offset=24,
            expected=f"{len(data)} bytes of blocks and metadata",
            found=f"{blocks} blocks and {metadata_bytes} bytes of metadata",
        )
    managed_ledger, last_entry = ledger_metadata(uri, data, _HEAD.size, metadata_bytes)
    map_offset = len(data) - BLOCK.itemsize * blocks
    block_map = [
        (first, place) for first, _, place in _BLOCK.iter_unpack(data[map_offset:])
    ]
    extents, fault = _extents(uri, map_offset, block_map, last_entry, data_bytes)
    last = last_entry
    if fault is not None and last_entry <= max((e.last for e in extents), default=-1):
        last = UNKNOWN_END
    return Index(managed_ledger, data_bytes, last, extents, fault)


def check_constants(uri: str, magic: int, header_bytes: int, *, expected: int) -> None:
    """Raise SourceError unless an index has this magic and the usual header length."""
    if magic != expected:
        raise SourceError(
            uri, offset=0, expected=f"magic {expected:#x}", found=f"{magic:#x}"
        )
    if header_bytes != HEADER_BYTES:
        raise SourceError(
            uri,
            offset=16,
            expected=f"block headers of {HEADER_BYTES} bytes",
            found=f"{header_bytes} bytes",
        )


def ledger_metadata(
    uri: str, data: bytes, offset: int, size: int
) -> tuple[str | None, int]:
    """Return the managed ledger's name and the id of the last entry."""
    last_entry = None
    custom: dict[bytes, bytes] = {}
    try:
        for number, value in fields(data, offset, offset + size):
            if number == _LAST_ENTRY:
                last_entry = signed(value)
            elif number == _CUSTOM:
                pair = dict(fields(data, *place(value)))
                key, text = (
                    data[slice(*place(pair[part]))] if part in pair else b""
                    for part in (_CUSTOM_KEY, _CUSTOM_VALUE)
                )
                custom[key] = text
    except ValueError:
        last_entry = None
    if last_entry is None:
        raise SourceError(
            uri,
            offset=offset,
            expected="ledger metadata with a last entry id",
            found=f"{size} other bytes",
        )
    for key in _LEDGER_NAME_KEYS:
        if key in custom:
            try:
                return custom[key].decode(), last_entry
            except UnicodeDecodeError as error:
                raise SourceError(
                    uri,
                    offset=offset,
                    expected="ledger metadata with a name in UTF-8",
                    found=f"{custom[key]!r}",
                ) from error
    return None, last_entry


def _extents(
    uri: str,
    map_offset: int,
    blocks: Sequence[tuple[int, int]],
    last_entry: int,
    data_bytes: int,
) -> tuple[tuple[Extent, ...], SourceError | None]:
    """Return the blocks as extents, and the fault of the block that follows them.

    The map of the blocks, each with its first entry and its offset, starts at byte
    `map_offset`.
    """
    if blocks[0] != (0, 0):
        first, offset = blocks[0]
        fault = SourceError(
            uri,
            offset=map_offset,
            expected="a first block with entry 0 at byte 0",
            found=f"a first block with entry {first} at byte {offset}",
        )
        return (), fault
    extents: list[Extent] = []
    next_blocks = [*blocks[1:], (last_entry + 1, data_bytes)]
    for (first, offset), (next_first, next_offset) in zip(
        blocks, next_blocks, strict=True
    ):
        entries, size = next_first - first, next_offset - offset
        if entries < 1 or size < HEADER_BYTES + FRAME_HEADER_BYTES * entries:
            fault = SourceError(
                uri,
                offset=map_offset + BLOCK.itemsize * len(extents),
                expected="blocks in ascending order, with room for their entries",
                found=f"entries {first} to {next_first - 1} in bytes {offset} to "
                f"{next_offset - 1}",
            )
            return tuple(extents), fault
        extents.append(Extent(first, next_first - 1, offset, size))
    return tuple(extents), None
