"""Topics to damage: what was written, and which bytes of which object are what."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypeVar

from sparkcache_pulsar import hadoop_codecs
from sparkcache_pulsar.testing import (
    Codec,
    Entry,
    Message,
    ledger_objects,
    managed_ledger,
    varint_field,
)

from .mapfiles import COMPRESS, Format, folder, map_file
from .reference import DELIMITED, BadEntryError, fields
from .streaming import Block, segment_objects
from .topics import TOPIC

T = TypeVar("T")

Written = Mapping[tuple[int, int], bytes]
"""Entries by ledger and id."""

HEADER_BYTES, FRAME_BYTES, RECORD_BYTES = 128, 12, 16


@dataclass(frozen=True)
class Region:
    """Bytes of an object that are read together.

    Attributes:
        kind: "header" of a block, "frame" header, "entry", or "other".
        harmed: Entries that may be lost if it is not what it was.
        entry: Whose bytes these are; None if it is nobody's or not stored as such.

    """

    kind: str
    start: int
    end: int
    harmed: tuple[tuple[int, int], ...]
    entry: tuple[int, int] | None = None


@dataclass(frozen=True)
class Stored:
    """An object, its user metadata, and its regions."""

    data: bytes
    metadata: Mapping[str, str]
    regions: tuple[Region, ...]


@dataclass(frozen=True)
class Layout:
    """How entries are laid out in objects.

    Attributes:
        options: To read it with.
        store: Returns objects by name.

    """

    options: Mapping[str, str]
    store: Callable[[Written], Mapping[str, Stored]]


def ids(ledger: int, first: int, stop: int) -> tuple[tuple[int, int], ...]:
    return tuple((ledger, entry) for entry in range(first, stop))


def _entries_of(written: Written, ledger: int) -> list[bytes]:
    return [data for (number, _), data in sorted(written.items()) if number == ledger]


def framed(
    blocks: Sequence[tuple[int, int, Sequence[bytes], int]], header_bytes: int
) -> tuple[Region, ...]:
    """Return the regions of blocks of (ledger, first entry, entries, padding)."""
    regions = []
    at = 0
    for ledger, first, entries, padding in blocks:
        stop = first + len(entries)
        whole = ids(ledger, first, stop)
        regions.append(Region("header", at, at + header_bytes, whole))
        regions.append(Region("other", at + header_bytes, at + HEADER_BYTES, ()))
        at += HEADER_BYTES
        for number, data in enumerate(entries, first):
            following = ids(ledger, number, stop)
            regions.append(Region("frame", at, at + FRAME_BYTES, following))
            at += FRAME_BYTES
            regions.append(Region("entry", at, at + len(data), (), (ledger, number)))
            at += len(data)
        regions.append(Region("other", at, at + padding, ()))
        at += padding
    return tuple(regions)


def _store_classic(with_metadata: bool, written: Written) -> Mapping[str, Stored]:
    stored: dict[str, Stored] = {}
    for ledger in sorted({ledger for ledger, _ in written}):
        entries = _entries_of(written, ledger)
        block_bytes = 140 + max(1000, *map(len, entries))
        data, index = ledger_objects(
            TOPIC, ledger, entries, max_block_bytes=block_bytes
        )
        blocks = []
        at = first = 0
        while at < len(data.data):
            size = struct.unpack_from(">q", data.data, at + 12)[0]
            room, stop = size - HEADER_BYTES, first
            while stop < len(entries) and room >= FRAME_BYTES + len(entries[stop]):
                room -= FRAME_BYTES + len(entries[stop])
                stop += 1
            blocks.append((ledger, first, entries[first:stop], room))
            at, first = at + size, stop
        for one, regions in ((data, framed(blocks, 28)), (index, ())):
            metadata = one.metadata if with_metadata else {}
            stored[one.key] = Stored(one.data, metadata, regions)
    return stored


def _store_streaming(
    metadata: Mapping[str, str], written: Written
) -> dict[str, Stored]:
    """Two segments: the first ends, and the second begins, within a ledger."""
    counts: dict[int, int] = {}
    for ledger, _ in written:
        counts[ledger] = counts.get(ledger, 0) + 1
    segments: list[list[Block]] = [[], []]
    for ledger, count in sorted(counts.items()):
        entries = _entries_of(written, ledger)
        cut = {7: count, 8: count // 2, 9: 0}[ledger]
        for first, stop in ((0, count // 3), (count // 3, count)):
            for number, (low, high) in enumerate(((0, cut), (cut, count))):
                low, high = max(low, first), min(high, stop)
                if low < high:
                    block = Block(ledger, low, tuple(entries[low:high]), low % 4)
                    segments[number].append(block)
    stored = {}
    for number, blocks in enumerate(segments):
        key = f"00000000-0000-0000-0000-00000000000{number}"
        data, index = segment_objects(blocks, counts)
        described = [(b.ledger, b.first, b.entries, b.padding) for b in blocks]
        stored[key] = Stored(data, metadata, framed(described, 36))
        stored[f"{key}-index"] = Stored(index, metadata, ())
    return stored


def _store_files(formats: Sequence[Format], written: Written) -> Mapping[str, Stored]:
    stored = {}
    for format_, ledger in zip(formats, (7, 8, 9), strict=True):
        entries = _entries_of(written, ledger)
        data, index = map_file(entries, format_)
        regions = _file_regions(format_, ledger, data, len(entries))
        stored[f"{folder(ledger)}/data"] = Stored(data, {}, regions)
        stored[f"{folder(ledger)}/index"] = Stored(index, {}, ())
    return stored


def _file_regions(
    format_: Format, ledger: int, data: bytes, entries: int
) -> tuple[Region, ...]:
    """Return the records; nothing but whole blocks where they are in blocks."""
    whole = ids(ledger, 0, entries)
    at = len(format_.header())
    regions = [Region("header", 0, at, whole)]
    if format_.kind == "block":
        return (*regions, Region("header", at, len(data), whole))
    for number in range(-1, entries):
        start = at
        if data[at : at + 4] == b"\xff\xff\xff\xff":
            at += 20
        end = at + 8 + struct.unpack_from(">i", data, at)[0]
        if number < 0:
            regions.append(Region("header", start, end, whole))
        else:
            following = ids(ledger, number, entries)
            regions.append(Region("frame", start, at + RECORD_BYTES, following))
            owner = (ledger, number)
            regions.append(Region("entry", at + RECORD_BYTES, end, (), owner))
        at = end
    return tuple(regions)


def unfolded(stored: bytes, layout: str, ledger: int) -> bytes | None:
    """Return the entry that lies in the value of a record; None if it cannot be."""
    if layout not in FILES:
        return stored
    format_ = FILES[layout][ledger - 7]
    if format_.kind == "record":
        codec = f"org.apache.hadoop.io.compress.{format_.codec}Codec"
        try:
            stored = hadoop_codecs.decompress(codec, stored, hadoop_codecs.MAX_BYTES)
        except hadoop_codecs.CodecError:
            return None
    is_whole = int.from_bytes(stored[:4], "big") == len(stored) - 4
    return stored[4:] if is_whole and len(stored) >= 4 else None


def _listed(counts: Mapping[int, int]) -> Mapping[str, str]:
    listed = [
        {"ledgerId": ledger, "entries": count, "isOffloaded": True}
        for ledger, count in counts.items()
    ]
    return {"manifest": json.dumps({"ledgers": listed})}


_NAMED = {
    "s3managedledgeroffloaderformatversion": "1",
    "managedledgername": managed_ledger(TOPIC),
}
COUNTS = {7: 14, 8: 9, 9: 7}
FILES = {
    "files": (Format("records", sync_every=3), Format("record"), Format("block")),
    "files-2": tuple(Format("record", codec) for codec in ("Gzip", "BZip2", "Lz4")),
    "files-3": (
        Format("record", "ZStandard"),
        Format("record", "Snappy", sync_every=1),
        Format("block", "Snappy"),
    ),
}
LAYOUTS: Mapping[str, Layout] = {
    "classic": Layout({}, partial(_store_classic, True)),
    "classic-listed": Layout(_listed(COUNTS), partial(_store_classic, False)),
    "streaming": Layout({}, partial(_store_streaming, _NAMED)),
    "streaming-listed": Layout(_listed(COUNTS), partial(_store_streaming, {})),
    **{
        name: Layout({}, partial(_store_files, formats))
        for name, formats in FILES.items()
    },
}
assert all(format_.codec in COMPRESS for some in FILES.values() for format_ in some)


@dataclass(frozen=True)
class Parts:
    """An entry taken apart, so that a part can be changed and the rest still fits."""

    broker: bytes | None
    is_checked: bool
    metadata: bytes
    codec: Codec
    content: bytes

    @classmethod
    def of(cls, entry: Entry) -> Parts:
        plain = replace(entry, codec=Codec.NONE, broker=None, checksum=False).encode()
        stop = 4 + int.from_bytes(plain[:4], "big")
        broker = None
        if entry.broker is not None:
            broker = varint_field(1, entry.broker[0]) + varint_field(2, entry.broker[1])
        metadata = plain[4:stop]
        if entry.codec is not Codec.NONE:
            metadata += varint_field(8, entry.codec)
        return cls(broker, entry.checksum, metadata, entry.codec, plain[stop:])


def _message(random_: random.Random) -> Message:
    def maybe(value: T) -> T | None:
        return random_.choice([None, value])

    return Message(
        value=random_.choice([None, b"", b"v" * random_.randrange(100)]),
        key=random_.choice([None, "key", b"\xff\0bytes", ""]),
        null_key=random_.random() < 0.1,
        ordering_key=maybe(b"order"),
        properties=tuple(
            (f"p{number % 2}", "x" * number) for number in range(random_.randrange(4))
        ),
        event_time_ms=maybe(1_700_000_000_123),
        sequence_id=maybe(77),
    )


def _entry(random_: random.Random) -> Entry:
    batched = random_.random() < 0.6
    count = random_.randrange(1, 6) if batched else 1
    messages = [_message(random_) for _ in range(count)]
    extra = b""
    if batched and random_.random() < 0.3:
        messages[random_.randrange(count)] = Message(compacted_out=True)
    elif batched and random_.random() < 0.3:
        size = count + random_.randrange(4)
        indexes = sorted(random_.sample(range(size), count))
        extra = varint_field(11, size)
        extra += b"".join(varint_field(31, index) for index in indexes)
    return Entry(
        tuple(messages),
        batched,
        codec=random_.choice(list(Codec)),
        broker=random_.choice([None, (1_700_000_000_456, 1000)]),
        checksum=random_.random() < 0.7,
        schema_version=random_.choice([None, b"", b"\0\0\0\0\0\0\0\1"]),
        txn=random_.choice([None, None, (3, 4)]),
        marker=21 if random_.random() < 0.05 else None,
        extra_metadata=extra,
    )


@cache
def sources() -> Mapping[tuple[int, int], Entry]:
    """Return what all topics here are written from: the same entries."""
    random_ = random.Random(5)
    return {
        (ledger, number): _entry(random_)
        for ledger, count in COUNTS.items()
        for number in range(count)
    }


@cache
def written() -> Written:
    return {place: entry.encode() for place, entry in sources().items()}


def places(data: bytes) -> list[tuple[int, int]]:
    """Return where tags, lengths and values of a message lie, and of those in it."""
    found = []
    for field in fields(data):
        found += [(field.start, field.value_start)]
        found += [(field.value_start, field.content_start)]
        if field.wire_type == DELIMITED and field.value:
            found.append((field.content_start, field.end))
            try:
                inner = places(field.content(data))
            except BadEntryError:
                continue
            shift = field.content_start
            found += [(start + shift, end + shift) for start, end in inner]
    return [(start, end) for start, end in found if start < end]


def batch_places(content: bytes) -> list[tuple[int, int]]:
    """Return where lengths and fields of the messages of a sound batch lie."""
    found, at = [], 0
    while at < len(content):
        start = at + 4
        stop = start + int.from_bytes(content[at:start], "big")
        inside = content[start:stop]
        found += [(at, start), (start, stop)]
        found += [(low + start, high + start) for low, high in places(inside)]
        size = next(field.value for field in fields(inside) if field.number == 3)
        at = stop + size
        found += [(stop, at)] if size else []
    return found
