"""Writes segments: objects in the streaming format, with entries of several ledgers."""

from __future__ import annotations

import json
import struct
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcache_pulsar.testing import Entry, Message, bytes_field, varint_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.testing import MemoryStorage

PADDING = b"\xfe\xdc\xde\xad"


@dataclass(frozen=True)
class Block:
    """Entries of one ledger; `padding` bytes follow them."""

    ledger: int
    first: int
    entries: tuple[bytes, ...]
    padding: int = 0

    def encode(self) -> bytes:
        frames = b"".join(
            struct.pack(">iq", len(entry), number) + entry
            for number, entry in enumerate(self.entries, self.first)
        )
        size = 128 + len(frames) + self.padding
        header = (0x26A66D32, 128, size, self.first, self.ledger)
        padding = (PADDING * (self.padding // 4 + 1))[: self.padding]
        return struct.pack(">Iqqqq92x", *header) + frames + padding


def ledger_info(ledger: int, entries: int, *, closed: bool = True) -> bytes:
    info = varint_field(1, ledger) + varint_field(2, entries) + varint_field(3, 999)
    if closed:
        info += varint_field(4, 1_700_000_000_000)
    return info + bytes_field(5, varint_field(3, 0))


def segment_index(
    data_bytes: int, ledgers: Sequence[tuple[int, bytes, Sequence[tuple[int, int]]]]
) -> bytes:
    """Encode an index of (ledger, info, (first entry, offset) of each block)."""
    body = b""
    for ledger, info, blocks in ledgers:
        body += struct.pack(">qii", ledger, len(blocks), len(info)) + info
        for part, (first, offset) in enumerate(blocks, 1):
            body += struct.pack(">qiq", first, part, offset)
    return struct.pack(">Iiqq", 0x3D1FB0BC, 24 + len(body), data_bytes, 128) + body


def segment_objects(
    blocks: Sequence[Block], entries: dict[int, int], *, closed: bool = True
) -> tuple[bytes, bytes]:
    """Return data and index; `entries` says how many each ledger has in all."""
    data = b""
    places: dict[int, list[tuple[int, int]]] = {}
    for block in blocks:
        places.setdefault(block.ledger, []).append((block.first, len(data)))
        data += block.encode()
    ledgers = [
        (ledger, ledger_info(ledger, entries[ledger], closed=closed), found)
        for ledger, found in reversed(places.items())
    ]
    return data, segment_index(len(data), ledgers)


def store_segment(
    storage: MemoryStorage,
    blocks: Sequence[Block],
    entries: dict[int, int],
    *,
    seed: int = 0,
    closed: bool = True,
) -> str:
    """Offload a segment; return the key of its data."""
    data, index = segment_objects(blocks, entries, closed=closed)
    key = str(uuid.UUID(int=seed))
    metadata = {"s3managedledgeroffloaderformatversion": "1"}
    storage.put(key, data, metadata)
    storage.put(f"{key}-index", index, metadata)
    return key


def numbered(ledger: int, first: int, stop: int, padding: int = 0) -> Block:
    """A block of entries that say which they are."""
    entries = tuple(
        Entry((Message(f"{ledger}:{number}".encode()),)).encode()
        for number in range(first, stop)
    )
    return Block(ledger, first, entries, padding)


def manifest(*ledgers: int, **more: object) -> dict[str, str]:
    """The option, as `info-internal` prints it."""
    listed = [{"ledgerId": ledger, "isOffloaded": False, **more} for ledger in ledgers]
    return {"manifest": json.dumps({"version": 1, "ledgers": listed})}
