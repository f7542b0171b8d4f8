"""What is done to a topic: a case is a layout, and seeds of changes to it.

A seed stands for one change: to an entry, of which the checksum and all lengths are
mended, so that the change reaches what parses it; to the bytes of an object; or to the
bucket. What may become of which entries is found out by comparing the objects.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

import google_crc32c

from sparkcache_pulsar.testing import Codec, bytes_field, varint, varint_field

from .fuzz_topics import (
    COUNTS,
    FILES,
    LAYOUTS,
    Parts,
    Region,
    Stored,
    batch_places,
    places,
    sources,
    unfolded,
    written,
)
from .reference import IN_BATCH, METADATA, VARINT, BadEntryError

CAP_BYTES = 1 << 20
"""What stands in for the caps of the codecs, so that bombs can be many."""

_BITS = (0, 1, 7, 8, 16, 31, 32, 63)
_NUMBERS = (
    *(number + more for number in (1 << bits for bits in _BITS) for more in (-1, 0)),
    *(-1, -(1 << 31), CAP_BYTES, CAP_BYTES + 1),
)
_LEVELS = ("entry",) * 10 + ("data",) * 5 + ("index",) * 5 + ("bucket",)
Place = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A layout, and the seeds of what is done to it. Written `layout:seed,seed`."""

    layout: str
    seeds: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Case:
        layout, _, seeds = text.partition(":")
        return cls(layout, tuple(map(int, seeds.split(","))))

    def __str__(self) -> str:
        return f"{self.layout}:{','.join(map(str, self.seeds))}"


@dataclass
class Damaged:
    """A damaged topic, and what may become of its entries.

    Attributes:
        objects: What lies in the bucket.
        harmed: Entries that may be lost.
        changed: Entries whose bytes are others now; None if they cannot be found.
        vague: Ledgers that may be given up without saying how many entries they have.
        untold: Entries that may be missing without a word: the index of a segment, or
            that of another ledger, may say that a ledger has less entries than it has.
        free: Entries that may have become any others, if nothing shows it.

    """

    objects: dict[str, Stored]
    entries: dict[tuple[int, int], bytes]
    harmed: set[tuple[int, int]] = field(default_factory=set)
    changed: dict[tuple[int, int], bytes | None] = field(default_factory=dict)
    vague: set[int] = field(default_factory=set)
    untold: set[tuple[int, int]] = field(default_factory=set)
    free: set[tuple[int, int]] = field(default_factory=set)


def _level(seed: int) -> str:
    return random.Random(f"level {seed}").choice(_LEVELS)


def damage(case: Case) -> Damaged:
    """Do what a case says."""
    layout = LAYOUTS[case.layout]
    entries = dict(written())
    for seed in case.seeds:
        if _level(seed) == "entry":
            random_ = random.Random(seed)
            place = random_.choice(sorted(entries))
            entries[place] = _damage_entry(random_, place)
    objects = dict(layout.store(entries))
    damaged = Damaged(dict(objects), entries)
    for place, data in entries.items():
        if data != written()[place]:
            damaged.changed[place] = data
    for seed in case.seeds:
        random_, level = random.Random(seed), _level(seed)
        if level == "bucket":
            _damage_bucket(random_, damaged.objects, case.layout)
        elif level != "entry":
            _damage_object(random_, damaged.objects, is_index=level == "index")
    for name, original in objects.items():
        _compare(case.layout, damaged, name, original, objects)
    return damaged


def _compare(
    layout: str,
    damaged: Damaged,
    name: str,
    original: Stored,
    objects: Mapping[str, Stored],
) -> None:
    """Find out what the changes to an object may do to entries."""
    new = damaged.objects.get(name)
    of_data = objects[re.sub(r"-index$", "", re.sub("/index$", "/data", name))]
    ledgers = {ledger for region in of_data.regions for ledger, _ in region.harmed}
    if layout.startswith("streaming") and not original.regions:
        ledgers = set(COUNTS)  # it can say of any that it has them
    all_of_them = {place for place in damaged.entries if place[0] in ledgers}
    if new is None or not original.regions or len(new.data) != len(original.data):
        if new is None or new != original:
            damaged.harmed |= all_of_them
            damaged.vague |= ledgers
            if new is not None and not original.regions:
                is_another = new.data in {stored.data for stored in objects.values()}
                if layout == "streaming" or is_another:
                    damaged.untold |= all_of_them
        return
    if new.metadata != original.metadata:
        damaged.harmed |= all_of_them
        damaged.vague |= ledgers
    for region in original.regions:
        now = new.data[region.start : region.end]
        if now == original.data[region.start : region.end]:
            continue
        damaged.harmed |= set(region.harmed)
        if region.kind == "entry" and region.entry is not None:
            entry = unfolded(now, layout, region.entry[0])
            damaged.changed[region.entry] = entry
        elif region.kind == "header" and layout in FILES:
            damaged.vague |= ledgers  # they say how to read it, and how many there are
            damaged.free |= set(region.harmed)
        elif region.kind == "frame":
            entry = _as_framed(new.data, region)
            damaged.changed[region.harmed[0]] = entry


def _as_framed(data: bytes, region: Region) -> bytes | None:
    (length,) = struct.unpack_from(">i", data, region.start)
    return data[region.end : region.end + length] if length >= 0 else None


def _damage_entry(random_: random.Random, place: tuple[int, int]) -> bytes:
    parts = Parts.of(sources()[place])
    what = random_.choice(
        ("metadata",) * 4 + ("content",) * 3 + ("packed", "broker", "raw", "bomb")
    )
    if what == "raw":
        data = written()[place]
        return _changed(random_, data, [(0, 2), (2, 6), (6, 10), (10, 14)])
    if what == "bomb":
        return _bomb(random_, parts)
    packed = None
    if what == "broker":
        parts = replace(
            parts, broker=_changed_message(random_, parts.broker or b"", {1: 0, 2: 0})
        )
    elif what == "metadata":
        metadata = _changed_message(random_, parts.metadata, METADATA)
        parts = replace(parts, metadata=metadata)
    elif what == "content":
        at = batch_places(parts.content) if sources()[place].batched else []
        content = _changed(random_, parts.content, at)
        if at and random_.random() < 0.5:
            content = _changed_in_batch(random_, parts.content)
        metadata = parts.metadata
        if random_.random() < 0.8:  # of two sizes the last one counts
            metadata += varint_field(9, len(content))
        parts = replace(parts, content=content, metadata=metadata)
    else:
        packed = _changed(random_, parts.codec.compress(parts.content), [])
    return _assembled(random_, parts, packed)


def _assembled(
    random_: random.Random, parts: Parts, packed: bytes | None = None
) -> bytes:
    """Put an entry together; now and then a length is wrong."""
    payload = parts.codec.compress(parts.content) if packed is None else packed
    size = len(parts.metadata)
    if random_.random() < 0.05:
        size = random_.choice([*_NUMBERS, size + 1, size - 1])
    body = (size & 0xFFFFFFFF).to_bytes(4, "big") + parts.metadata + payload
    if parts.is_checked:
        body = b"\x0e\x01" + google_crc32c.value(body).to_bytes(4, "big") + body
    if parts.broker is None:
        return body
    size = len(parts.broker)
    if random_.random() < 0.05:
        size = random_.choice([*_NUMBERS, size + 1, size - 1])
    return b"\x0e\x02" + (size & 0xFFFFFFFF).to_bytes(4, "big") + parts.broker + body


@cache
def _zeros(codec: Codec, size: int) -> bytes:
    return codec.compress(bytes(size))


def _bomb(random_: random.Random, parts: Parts) -> bytes:
    """Return an entry that becomes much, or says that it does."""
    codec = random_.choice(list(Codec)[1:])
    size = random_.choice([CAP_BYTES - 1, CAP_BYTES, CAP_BYTES + 1, 16 * CAP_BYTES])
    metadata = b"".join([bytes_field(1, b"p"), varint_field(2, 1), varint_field(3, 1)])
    packed = _zeros(codec, size)
    claimed = random_.choice([size, min(size, CAP_BYTES), *_NUMBERS])
    kind = random_.choice(["one", "batch", "small", "wide"])
    if kind == "batch":
        metadata += varint_field(11, random_.choice([1, size // 4, *_NUMBERS]))
    elif kind != "one":
        count = random_.choice([1000, 4000])
        content = b"\0\0\0\2\x18\0" * count
        packed, claimed = codec.compress(content), len(content)
        metadata += varint_field(11, count)
        if kind == "wide":
            metadata += bytes_field(random_.choice([1, 16]), b"n" * 50_000)
    metadata += varint_field(8, codec) + varint_field(9, claimed)
    return _assembled(random_, replace(parts, metadata=metadata), packed)


def _changed(random_: random.Random, data: bytes, at: Sequence[Place]) -> bytes:
    """Change something at one of the places, or anywhere."""
    start = random_.randrange(len(data) + 1)
    end = min(len(data), start + random_.choice([1, 1, 2, 4, 8]))
    if at and random_.random() < 0.7:
        start, end = random_.choice(at)
    match random_.randrange(8):
        case 0 | 1 | 2:
            new = _other(random_, data[start:end])
        case 3:
            new = varint(random_.choice(_NUMBERS))
        case 4:
            new = b""
        case 5:
            new = 2 * data[start:end]
        case 6:
            new = random_.randbytes(random_.randrange(1, 20)) + data[start:end]
        case _:
            return data[:start]
    return data[:start] + new + data[end:]


def _other(random_: random.Random, old: bytes) -> bytes:
    """Return other bytes, as many."""
    number = int.from_bytes(old, "big")
    match random_.randrange(4):
        case 0:
            return random_.randbytes(len(old))
        case 1:
            number = random_.choice(_NUMBERS)
        case 2:
            number += random_.choice([-1, 1, 2, -2, 8, 12, 20])
        case _:
            number ^= 1 << random_.randrange(max(1, 8 * len(old)))
    return (number & ((1 << 8 * len(old)) - 1)).to_bytes(len(old), "big")


def _changed_message(
    random_: random.Random, data: bytes, known: Mapping[int, int]
) -> bytes:
    if random_.random() < 0.5:
        return _changed(random_, data, places(data))
    number = random_.choice([*sorted(known), random_.randrange(1, 1 << 29)])
    if known.get(number, random_.choice([0, 2])) == VARINT:
        return data + varint_field(number, random_.choice([*_NUMBERS, 3, 4, 5]))
    value = random_.choice(
        [b"", b"\xff", b"YQ==", bytes_field(1, b"k"), b"\x0a\1k\x12\1v"]
    )
    return data + bytes_field(number, value)


def _changed_in_batch(random_: random.Random, content: bytes) -> bytes:
    """Change the metadata of the first message of a batch, its length as well."""
    stop = 4 + int.from_bytes(content[:4], "big")
    metadata = _changed_message(random_, content[4:stop], IN_BATCH)
    return len(metadata).to_bytes(4, "big") + metadata + content[stop:]


def _damage_object(
    random_: random.Random, objects: dict[str, Stored], *, is_index: bool
) -> None:
    named = [name for name in sorted(objects) if name.endswith("index") == is_index]
    name = random_.choice(named)
    stored = objects[name]
    data, regions = stored.data, stored.regions
    frames = [region for region in regions if region.kind == "frame"]
    choice = random_.randrange(12)
    if choice == 0:
        data = data[: random_.randrange(len(data) + 1)]
    elif choice == 1:
        data = _changed(random_, data, [])
    elif choice in (2, 3, 4) and len(frames) > 1:
        data = _moved(random_, data, frames)
    elif regions:
        region = random_.choice(regions)
        data = _overwritten(random_, data, _parts_of(region))
    else:
        data = _overwritten(random_, data, _parts_of_index(data))
    objects[name] = replace(stored, data=data)


def _parts_of(region: Region) -> list[Place]:
    """Return the fields of a region."""
    sizes = {"header": (4, 8, 8, 8, 8), "frame": (4, 8), "entry": (2, 4, 4, 4)}
    found, at = [(region.start, region.end)], region.start
    for size in sizes.get(region.kind, ()):
        found.append((at, min(at + size, region.end)))
        at += size
    return found


def _parts_of_index(data: bytes) -> list[Place]:
    found, at = [], 0
    for size in (4, 4, 8, 8, 4, 4):
        found.append((at, at + size))
        at += size
    if data.startswith(b"\xde\x47"):
        size = int.from_bytes(data[28:32], "big")
        with suppress(BadEntryError):  # if it is not the first damage
            inside = places(data[at : at + size])
            found += [(low + at, high + at) for low, high in inside]
    end = len(data)
    while end > max(at, len(data) - 80):  # the places of blocks stand at the end
        for size in (8, 4, 8):
            found.append((end - size, end))
            end -= size
    return found


def _overwritten(random_: random.Random, data: bytes, at: Sequence[Place]) -> bytes:
    """Change bytes and leave the length as it is."""
    if not data:
        return data
    start = random_.randrange(len(data))
    end = start + random_.choice([1, 1, 1, 2, 4, 8])
    if random_.random() < 0.6:
        start, end = random_.choice(at)
    new = _other(random_, data[start:end])
    return (data[:start] + new + data[start + len(new) :])[: len(data)]


def _moved(random_: random.Random, data: bytes, frames: Sequence[Region]) -> bytes:
    """Swap two records, repeat one, or leave one out; the length stays."""
    number = random_.randrange(len(frames) - 1)
    first, second = frames[number], frames[number + 1]
    a = data[first.start : second.start]
    end = frames[number + 2].start if number + 2 < len(frames) else len(data)
    b = data[second.start : end]
    new = random_.choice([b + a, a + a + b, b, a + b + a])
    return (data[: first.start] + new + data[end:])[: len(data)].ljust(len(data), b"\0")


def _damage_bucket(
    random_: random.Random, objects: dict[str, Stored], layout: str
) -> None:
    name, other = random_.sample(sorted(objects), 2)
    match random_.randrange(6):
        case 0:
            objects.pop(name)
        case 1 if layout not in FILES:  # nobody knows which file is in which folder
            objects[name], objects[other] = (
                replace(objects[name], data=objects[other].data, regions=()),
                replace(objects[other], data=objects[name].data, regions=()),
            )
        case 2:
            objects[name] = replace(objects[name], data=b"")
        case 3:
            objects[name] = replace(objects[name], data=random_.randbytes(200))
        case 4:
            version = {"s3managedledgeroffloaderformatversion": "2"}
            metadata = {**objects[name].metadata, **version}
            objects[name] = replace(objects[name], metadata=metadata)
        case _:
            metadata = {**objects[name].metadata, "managedledgername": "\udcff/x//"}
            objects[name] = replace(objects[name], metadata=metadata)
