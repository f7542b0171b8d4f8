"""Read index objects, many at once and each once.

They never change, so what they say is known to this process from then on, and kept on
the driver's disk for those that come after it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from sparkcache.errors import SourceError
from sparkcache.model import Extent
from sparkcache_pulsar import names
from sparkcache_pulsar.index import METADATA_OFFSET, parse_index
from sparkcache_pulsar.names import Key
from sparkcache_pulsar.segments import parse_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparkcache.connector import Storage, StoredObject
    from sparkcache.model import ObjectId
    from sparkcache_pulsar.names import SegmentKey

FORMAT_VERSION = "1"
VERSION_KEY = "s3managedledgeroffloaderformatversion"
TOPIC_KEY = "managedledgername"

_KIND = "pulsar-1"
_FEW = 32  # are read in less time than what is kept
_MOST_KNOWN = 1_000_000


class Part(msgspec.Struct, frozen=True, gc=False):
    """Entries of one ledger, as an index has them; see `Upload`."""

    ledger: int
    extents: tuple[Extent, ...]
    first: int
    last: int
    ends_here: bool = True
    fault: SourceError | None = None


class Indexed(msgspec.Struct, frozen=True, gc=False):
    """The contents of an index: its topic, its ledgers, and the length of its data."""

    topic: str | None
    data_bytes: int
    parts: tuple[Part, ...]


class Unreadable(msgspec.Struct, frozen=True):
    """An index that cannot be read, and its topic, if that is known."""

    fault: SourceError
    topic: str | None = None


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An `Indexed` as it is kept: of each part its fields, and those of its extents."""

    topic: str | None
    data_bytes: int
    parts: tuple[tuple[int, tuple[int, ...], int, int, bool], ...]


_known: dict[bytes, bytes] = {}  # packed, which takes a third of the memory
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Record)


def read_indexes(
    storage: Storage, wanted: Sequence[tuple[Key | SegmentKey, ObjectId]]
) -> Iterator[Indexed | Unreadable]:
    """Yield what each index says, in order."""
    keys = [_key_of(index) for _, index in wanted]
    packed: list[bytes | None] = [_known.get(key) for key in keys]
    missing = [place for place, known in enumerate(packed) if known is None]
    is_many = len(missing) > _FEW
    if is_many:
        kept = storage.recall(_KIND, [wanted[place][1] for place in missing])
        for place, known in zip(missing, kept, strict=True):
            packed[place] = known
    found = list(_unpacked(packed))
    stored = storage.get_many(
        [index.uri for (_, index), each in zip(wanted, found, strict=True) if not each]
    )
    if len(_known) > _MOST_KNOWN:
        _known.clear()
    read: list[tuple[ObjectId, bytes]] = []
    for place, (key, index) in enumerate(wanted):
        indexed = found[place]
        if indexed is not None:
            _known[keys[place]] = packed[place] or b""
            yield indexed
            continue
        now = _read(key, index, next(stored))
        if isinstance(now, Indexed) and _is_sound(now):
            _known[keys[place]] = record = _packed(now)
            read.append((index, record))
        yield now
    if is_many:
        storage.remember(_KIND, read)


def _key_of(index: ObjectId) -> bytes:
    named = f"{index.version} {index.uri}".encode(errors="surrogateescape")
    return blake2b(named, digest_size=16).digest()


def _read(
    key: Key | SegmentKey, index: ObjectId, stored: StoredObject | SourceError
) -> Indexed | Unreadable:
    if isinstance(stored, SourceError):
        return Unreadable(stored)
    metadata = user_metadata(stored)
    topic = names.topic_of_managed_ledger(metadata.get(TOPIC_KEY, ""))
    try:
        _check_version(index.uri, metadata)
        if isinstance(key, Key):
            return _of_ledger(key, topic, stored)
        return _of_segment(topic, stored)
    except SourceError as error:
        return Unreadable(error, topic)


def _of_ledger(key: Key, topic: str | None, stored: StoredObject) -> Indexed:
    index = parse_index(stored.id.uri, stored.data)
    named = names.topic_of_managed_ledger(index.managed_ledger or "")
    if named and topic and named != topic:
        raise SourceError(
            stored.id.uri,
            offset=METADATA_OFFSET,
            expected=f"a ledger of {topic}, as {TOPIC_KEY} says",
            found=f"a ledger of {named}",
        )
    part = Part(key.ledger, index.extents, 0, index.last, fault=index.fault)
    return Indexed(named or topic, index.data_bytes, (part,))


def _of_segment(topic: str | None, stored: StoredObject) -> Indexed:
    segment = parse_segment(stored.id.uri, stored.data)
    parts = tuple(
        Part(
            piece.ledger,
            piece.extents,
            piece.extents[0].first,
            piece.extents[-1].last,
            piece.ends_here,
        )
        for piece in segment.pieces
    )
    return Indexed(topic, segment.data_bytes, parts)


def _is_sound(indexed: Indexed) -> bool:
    """Return whether an index has no fault: others are read again each time."""
    return all(part.fault is None for part in indexed.parts)


def _packed(indexed: Indexed) -> bytes:
    parts = tuple(
        (
            part.ledger,
            tuple(
                number
                for each in part.extents
                for number in (each.first, each.last, each.offset, each.size_bytes)
            ),
            part.first,
            part.last,
            part.ends_here,
        )
        for part in indexed.parts
    )
    return _encoder.encode(_Record(indexed.topic, indexed.data_bytes, parts))


def _unpacked(records: Iterable[bytes | None]) -> Iterator[Indexed | None]:
    """Yield what is kept; None for what is not, or is of another format."""
    topics: dict[str | None, str | None] = {}  # one text for all ledgers of a topic
    for packed in records:
        try:
            record = _decoder.decode(packed or b"")
        except msgspec.DecodeError:
            yield None
            continue
        parts = tuple(
            Part(ledger, _extents(numbers), first, last, ends_here)
            for ledger, numbers, first, last, ends_here in record.parts
        )
        topic = topics.setdefault(record.topic, record.topic)
        yield Indexed(topic, record.data_bytes, parts)


def _extents(numbers: Sequence[int]) -> tuple[Extent, ...]:
    fields = iter(numbers)
    return tuple(map(Extent, fields, fields, fields, fields))


def user_metadata(stored: StoredObject) -> dict[str, str]:
    """Return the user metadata of an object, by names in lower case."""
    return {name.lower(): text for name, text in stored.metadata.items()}


def _check_version(uri: str, metadata: Mapping[str, str]) -> None:
    version = metadata.get(VERSION_KEY, FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise SourceError(
            uri,
            expected=f"format version {FORMAT_VERSION}",
            found=f"{version!r} in {VERSION_KEY}",
        )
