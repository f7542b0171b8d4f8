"""How the pieces of a partition travel: in columns, compressed with a dictionary.

The pieces of a partition differ in little but the names and sizes of their objects, and
follow each other in their object and in the topic. So each field is a column, and where
a piece begins is counted from the end of the one before. The partitions of a scan
differ in as little, so they are compressed with a dictionary that the scan has once.
"""

from __future__ import annotations

import zlib
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from sparkcache.model import Ledger, ObjectId
from sparkcache.source.batch.partitions import Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparkcache.model import Extent

_END_BYTES = 2 << 10  # of a dictionary, which every task of a scan reads
_LEVEL = 9
_Kinds: TypeAlias = "tuple[type[Extent], ...]"
_T = TypeVar("_T")


class _Pieces(msgspec.Struct, array_like=True):
    """Pieces as columns.

    Attributes:
        groups: Connector, topic and decoding of ledgers, each once.
        ledgers: The group, id, URI, size and version of each ledger.
        ledger: The ledger of each piece, by its index.
        first: First entry, from the one after the last entry of the piece before.
        entries: Number of entries.
        offset: Offset in the object, from the end of the piece before.
        size_bytes: Size in the object.
        kinds: The kind of each extent, by its index.
        others: The fields of an extent after the first four, unless all of them have
            their defaults.
        topic_offset: Offset in the topic, from the end of the piece before.
        parts: Part, number of parts and reads, of each piece that has not 0, 1 and 0.

    """

    groups: list[tuple[str, str, str]]
    ledgers: list[tuple[int, int, str, int, str]]
    ledger: list[int]
    first: list[int]
    entries: list[int]
    offset: list[int]
    size_bytes: list[int]
    kinds: list[int]
    others: dict[int, list[object]]
    topic_offset: list[int]
    parts: dict[int, tuple[int, int, int]]


def pack(pieces: Sequence[Piece]) -> tuple[_Kinds, bytes]:
    """Return the kinds of the extents, and the pieces as bytes."""
    ledgers = _numbers(piece.ledger for piece in pieces)
    groups = _numbers((each.connector, each.topic, each.decoding) for each in ledgers)
    kinds = _numbers(type(piece.extent) for piece in pieces)
    before = (0, 0, 0)
    columns = _Pieces(list(groups), [], [], [], [], [], [], [], {}, [], {})
    for each in ledgers:
        group = groups[each.connector, each.topic, each.decoding]
        stored = each.object
        columns.ledgers.append(
            (group, each.id, stored.uri, stored.size_bytes, stored.version)
        )
    for number, piece in enumerate(pieces):
        extent = piece.extent
        columns.ledger.append(ledgers[piece.ledger])
        columns.first.append(extent.first - before[0])
        columns.entries.append(extent.last - extent.first + 1)
        columns.offset.append(extent.offset - before[1])
        columns.size_bytes.append(extent.size_bytes)
        columns.kinds.append(kinds[type(extent)])
        columns.topic_offset.append(piece.topic_offset - before[2])
        if others := _others(extent):
            columns.others[number] = others
        if (part := (piece.part, piece.parts, piece.reads)) != (0, 1, 0):
            columns.parts[number] = part
        before = _end(extent, piece.topic_offset)
    return tuple(kinds), msgspec.msgpack.encode(columns)


def unpack(kinds: _Kinds, packed: bytes) -> list[Piece]:
    """Return the pieces of `pack`."""
    columns = msgspec.msgpack.decode(packed, type=_Pieces)
    ledgers = [
        Ledger(
            *columns.groups[group][:2],
            ledger_id,
            ObjectId(uri, size_bytes, version),
            columns.groups[group][2],
        )
        for group, ledger_id, uri, size_bytes, version in columns.ledgers
    ]
    pieces: list[Piece] = []
    before = (0, 0, 0)
    for number, ledger in enumerate(columns.ledger):
        first = before[0] + columns.first[number]
        make: Callable[..., Extent] = kinds[columns.kinds[number]]
        extent = make(
            first,
            first + columns.entries[number] - 1,
            before[1] + columns.offset[number],
            columns.size_bytes[number],
            *map(_as_tuple, columns.others.get(number, ())),
        )
        topic_offset = before[2] + columns.topic_offset[number]
        part = columns.parts.get(number, (0, 1, 0))
        pieces.append(Piece(ledgers[ledger], extent, topic_offset, *part))
        before = _end(extent, topic_offset)
    return pieces


def dictionary_of(sample: bytes) -> bytes:
    """Return a dictionary for what resembles a sample: its beginning and its end."""
    if len(sample) <= 2 * _END_BYTES:
        return sample
    return sample[:_END_BYTES] + sample[-_END_BYTES:]


def compressed(plain: bytes, dictionary: bytes = b"") -> bytes:
    """Return bytes compressed with a dictionary, which may be empty."""
    if dictionary:
        packer = zlib.compressobj(_LEVEL, zdict=dictionary)
    else:
        packer = zlib.compressobj(_LEVEL)
    return packer.compress(plain) + packer.flush()


def decompressed(packed: bytes, dictionary: bytes = b"") -> bytes:
    """Return the bytes that were compressed with a dictionary."""
    return zlib.decompressobj(zdict=dictionary).decompress(packed)


def _numbers(values: Iterable[_T]) -> dict[_T, int]:
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def _end(extent: Extent, topic_offset: int) -> tuple[int, int, int]:
    """Return what an extent that follows begins with: entry, offset, topic offset."""
    size_bytes = extent.size_bytes
    return extent.last + 1, extent.offset + size_bytes, topic_offset + size_bytes


def _others(extent: Extent) -> list[object]:
    """Return the fields after the first four; none if all have their defaults."""
    others = fields(extent)[4:]
    values = [getattr(extent, field.name) for field in others]
    return values if values != [field.default for field in others] else []


def _as_tuple(value: object) -> object:
    """Return what msgpack has as a list of lists as the tuple that it was."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
