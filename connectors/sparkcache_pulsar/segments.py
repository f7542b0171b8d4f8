"""The index of a segment: an object of the streaming format, with entries of ledgers.

    magic            int32   0x3D1FB0BC
    own length       int32   ignored, as in Pulsar's own readers
    data length      int64   of the data object
    header length    int64   of each data block, 128

and for each ledger, in any order, up to the end:

    ledger id        int64
    n                int32   blocks
    m                int32   bytes of ledger info
    info             m       protobuf ManagedLedgerInfo.LedgerInfo of Pulsar
    n times          int64 first entry id, int32 part number, int64 offset

All numbers are big-endian and signed. A block has entries of one ledger. The first and
the last ledger may have more entries in the segments before and after this one. The
info of a ledger has its number of entries, but not how many are in this segment, so the
end of the last ledger must be found in the data.

The index does not name the topic of these ledgers.

Source: OffloadIndexBlockV2Impl of Apache Pulsar, PIP-76. Different here: all fields are
checked against each other, since an index determines the ranges to read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparkcache.errors import SourceError
from sparkcache.model import Extent
from sparkcache_pulsar.frames import FRAME_HEADER_BYTES, HEADER_BYTES
from sparkcache_pulsar.index import BLOCK, check_constants
from sparkcache_pulsar.protobuf import SLACK_BYTES, Kind, parse

if TYPE_CHECKING:
    from sparkcache.arrays import Bytes

MAGIC = 0x3D1FB0BC

_HEAD = struct.Struct(">Iiqq")
_LEDGER = struct.Struct(">qii")
_ENTRIES, _CLOSED_AT = 2, 4
_INFO_FIELDS = {_ENTRIES: Kind.NUMBER, _CLOSED_AT: Kind.NUMBER}


@dataclass(frozen=True, slots=True)
class Piece:
    """The piece of a ledger that is in a segment.

    Attributes:
        ledger: The ledger's id.
        extents: Its blocks.
        ends_here: Whether the last entry of the last block is known. Otherwise the
            extent ends with the last entry that the block may have.

    """

    ledger: int
    extents: tuple[Extent, ...]
    ends_here: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """The contents of a segment's index.

    Attributes:
        data_bytes: Length of the data object.
        pieces: A piece of each ledger, in the order of ledgers.

    """

    data_bytes: int
    pieces: tuple[Piece, ...]


class _Block(NamedTuple):
    """A block; sorts by offset."""

    offset: int
    ledger: int
    first: int


def parse_segment(uri: str, data: bytes) -> Segment:
    """Parse an index object; raises SourceError if it is not consistent."""
    if len(data) < _HEAD.size:
        raise SourceError(
            uri,
            offset=0,
            expected=f"an index of {_HEAD.size} bytes or more",
            found=f"{len(data)} bytes",
        )
    magic, _, data_bytes, header_bytes = _HEAD.unpack_from(data)
    check_constants(uri, magic, header_bytes, expected=MAGIC)
    blocks, infos = _read_ledgers(uri, data)
    return Segment(data_bytes, _pieces(uri, sorted(blocks), infos, data_bytes))


def _read_ledgers(
    uri: str, data: bytes
) -> tuple[list[_Block], dict[int, tuple[int, bool]]]:
    """Return all blocks; and each ledger's entry count and whether it is closed."""
    blocks: list[_Block] = []
    infos: dict[int, tuple[int, bool]] = {}
    buffer = np.frombuffer(data + bytes(SLACK_BYTES), np.uint8)
    index_offset = _HEAD.size
    while index_offset < len(data):
        remaining = len(data) - index_offset - _LEDGER.size
        ledger, count, info_bytes = (
            _LEDGER.unpack_from(data, index_offset) if remaining >= 0 else (-1, -1, -1)
        )
        size = info_bytes + BLOCK.itemsize * count
        if (
            min(ledger, info_bytes) < 0
            or count < 1
            or size > remaining
            or ledger in infos
        ):
            raise SourceError(
                uri,
                offset=index_offset,
                expected="a ledger not seen before, with its blocks and info",
                found=f"ledger {ledger} with {count} blocks and {info_bytes} bytes of "
                f"info, but only {max(remaining, 0)} bytes remain",
            )
        index_offset += _LEDGER.size
        infos[ledger] = _ledger_info(uri, buffer, index_offset, info_bytes)
        block_map = np.frombuffer(data, BLOCK, count, index_offset + info_bytes)
        for offset, first in zip(
            block_map["offset"].tolist(), block_map["first"].tolist(), strict=True
        ):
            blocks.append(_Block(offset, ledger, first))
        index_offset += size
    if not blocks:
        raise SourceError(
            uri,
            offset=index_offset,
            expected="one ledger or more",
            found="the end of the index",
        )
    return blocks, infos


def _ledger_info(uri: str, buffer: Bytes, offset: int, size: int) -> tuple[int, bool]:
    table = parse(buffer, np.array([offset]), np.array([offset + size]), _INFO_FIELDS)
    entries = int(table.numbers[_ENTRIES].signed[0])
    if table.bad[0] or entries < 1:
        raise SourceError(
            uri,
            offset=offset,
            expected="ledger info with a number of entries",
            found=f"{size} other bytes",
        )
    return entries, bool(table.numbers[_CLOSED_AT].is_true[0])


def _pieces(
    uri: str,
    blocks: list[_Block],
    infos: dict[int, tuple[int, bool]],
    data_bytes: int,
) -> tuple[Piece, ...]:
    if blocks[0].offset != 0:
        raise SourceError(
            uri,
            offset=_HEAD.size,
            expected="a first block at byte 0",
            found=f"a first block at byte {blocks[0].offset}",
        )
    end = data_bytes
    next_first: dict[int, int] = {}
    extents: dict[int, list[Extent]] = {ledger: [] for ledger in infos}
    for block in reversed(blocks):
        size = end - block.offset
        room = (size - HEADER_BYTES) // FRAME_HEADER_BYTES
        last = next_first.get(block.ledger, infos[block.ledger][0]) - 1
        if block is blocks[-1]:  # its ledger may go on in the next segment
            last = min(last, block.first + room - 1)
        if block.first < 0 or not 0 < last - block.first + 1 <= room:
            raise SourceError(
                uri,
                offset=_HEAD.size,
                expected="blocks in ascending order, with room for their entries",
                found=f"entries {block.first} to {last} of ledger {block.ledger} in "
                f"bytes {block.offset} to {end - 1}",
            )
        extents[block.ledger].append(Extent(block.first, last, block.offset, size))
        next_first[block.ledger] = block.first
        end = block.offset
    return tuple(
        Piece(
            ledger,
            tuple(reversed(extents[ledger])),
            ends_here=ledger != blocks[-1].ledger or not infos[ledger][1],
        )
        for ledger in sorted(infos)
    )
