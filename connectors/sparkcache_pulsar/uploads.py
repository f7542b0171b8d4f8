"""Read a bucket: which objects have which entries of which ledger.

One listing finds the objects. Their index objects have the topics and the offsets of
entries, so all of them are read, and cached by their identity: they never change.

Offloaders write the index last. Data without an index, or with an empty one, is an
upload in progress, or a lost ledger; see unfinished.py. Of such data the user metadata
are read, which name the topic, and the time at which they were written.

Source: BlobStoreManagedLedgerOffloader of Apache Pulsar.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from sparkcache.errors import SourceError
from sparkcache.model import UNKNOWN_END
from sparkcache.progress import steps
from sparkcache_pulsar import names
from sparkcache_pulsar.decoding import Streaming
from sparkcache_pulsar.index import METADATA_OFFSET, parse_index
from sparkcache_pulsar.mapfile import read_map_file
from sparkcache_pulsar.names import FileKey, Key, SegmentKey
from sparkcache_pulsar.segments import parse_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkcache.connector import Storage, StoredObject
    from sparkcache.model import Extent, ObjectId
    from sparkcache_pulsar.decoding import Form

FORMAT_VERSION = "1"
VERSION_KEY = "s3managedledgeroffloaderformatversion"
TOPIC_KEY = "managedledgername"
NO_LEDGER = -1

_READERS = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Upload:
    """The entries of a ledger in one object, as far as they can be read.

    Attributes:
        ledger: The ledger's id; NO_LEDGER if unknown.
        uuid: Identifies the attempt at offloading.
        topic: The ledger's topic; None if unknown.
        extents: Where the entries that can be read are stored.
        first: The first entry that should be stored, whether it can be read or not.
        last: The last such entry; UNKNOWN_END if nothing says which it is.
        data: The object that stores them; None if it does not exist.
        form: How its records are stored.
        is_piece: Whether other objects may have more entries of the ledger.
        ends_here: Whether the last entry of the extents is known to be stored.
        fault: Why entries after those of the extents cannot be read; None if it is not
            known that there are any.
        has_index: Whether there is an index.
        written_ms: When the data were written, in milliseconds since 1970; only if
            there is no index.

    """

    ledger: int
    uuid: str
    topic: str | None = None
    extents: tuple[Extent, ...] = ()
    first: int = 0
    last: int = UNKNOWN_END
    data: ObjectId | None = None
    form: Form = None
    is_piece: bool = False
    ends_here: bool = True
    fault: SourceError | None = None
    has_index: bool = True
    written_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Indexed:
    """The contents of an index: its uploads, and the length of their data."""

    uploads: tuple[Upload, ...]
    data_bytes: int


AnyKey = Key | SegmentKey | FileKey

_indexes: LRUCache[ObjectId | tuple[ObjectId, ObjectId], _Indexed]
_indexes = LRUCache(maxsize=10_000)
_indexes_lock = Lock()
_without_index: LRUCache[ObjectId, tuple[str | None, int]] = LRUCache(maxsize=10_000)
_without_index_lock = Lock()


def read_uploads(storage: Storage) -> list[Upload]:
    """List the bucket and read its indexes; return the uploads in order of ledgers."""
    data: dict[AnyKey, ObjectId] = {}
    indexes: dict[AnyKey, ObjectId] = {}
    for object_id in steps(storage.list(), f"Listing {storage.root}", "objects"):
        name = object_id.uri.removeprefix(storage.root + "/")
        key = Key.parse(name) or SegmentKey.parse(name) or FileKey.parse(name)
        if key is not None:
            (indexes if key.is_index else data)[replace(key, is_index=False)] = (
                object_id
            )
    keys = data | indexes

    def read(key: AnyKey) -> Iterable[Upload]:
        if key not in indexes:
            return [_read_without_index(storage, key, data[key], "no such object")]
        if isinstance(key, FileKey):
            return _read_file(storage, key, indexes[key], data.get(key))
        return _read_upload(storage, key, indexes[key], data.get(key))

    with ThreadPoolExecutor(_READERS, "pulsar-index") as readers:
        groups = steps(
            readers.map(read, keys),
            f"Reading indexes in {storage.root}",
            "indexes",
            len(keys),
        )
        uploads = [upload for group in groups for upload in group]
    return sorted(uploads, key=lambda upload: (upload.ledger, upload.uuid))


def _read_upload(
    storage: Storage, key: Key | SegmentKey, index_id: ObjectId, data: ObjectId | None
) -> Sequence[Upload]:
    with _indexes_lock:
        indexed = _indexes.get(index_id)
    if indexed is None:
        topic = None
        try:
            stored = storage.get(index_id.uri)
            metadata = _user_metadata(stored)
            topic = names.topic_of_managed_ledger(metadata.get(TOPIC_KEY, ""))
            _check_version(index_id.uri, metadata)
            if isinstance(key, Key):
                indexed = _read_index(key, topic, stored)
            else:
                indexed = _read_segment(key, topic, stored)
        except SourceError as error:
            ledger = key.ledger if isinstance(key, Key) else NO_LEDGER
            return [Upload(ledger, key.uuid, topic, fault=error)]
        with _indexes_lock:
            _indexes[stored.id] = indexed
    fault = _mismatch(f"{storage.root}/{key}", indexed.data_bytes, data)
    return [
        _with_data(upload, data, indexed.data_bytes, fault)
        for upload in indexed.uploads
    ]


def _read_index(key: Key, topic: str | None, stored: StoredObject) -> _Indexed:
    index = parse_index(stored.id.uri, stored.data)
    named = names.topic_of_managed_ledger(index.managed_ledger or "")
    if named and topic and named != topic:
        raise SourceError(
            stored.id.uri,
            offset=METADATA_OFFSET,
            expected=f"a ledger of {topic}, as {TOPIC_KEY} says",
            found=f"a ledger of {named}",
        )
    upload = Upload(
        key.ledger,
        key.uuid,
        named or topic,
        index.extents,
        last=index.last,
        fault=index.fault,
    )
    return _Indexed((upload,), index.data_bytes)


def _read_segment(key: SegmentKey, topic: str | None, stored: StoredObject) -> _Indexed:
    segment = parse_segment(stored.id.uri, stored.data)
    uploads = tuple(
        Upload(
            piece.ledger,
            key.uuid,
            topic,
            piece.extents,
            piece.extents[0].first,
            piece.extents[-1].last,
            form=Streaming(),
            is_piece=True,
            ends_here=piece.ends_here,
        )
        for piece in segment.pieces
    )
    return _Indexed(uploads, segment.data_bytes)


def _read_file(
    storage: Storage, key: FileKey, index_id: ObjectId, data: ObjectId | None
) -> Sequence[Upload]:
    """Read an index of the file system offloader, and the start of its data."""
    topic = key.topic()
    if data is None:
        uri = f"{storage.root}/{key}"
        fault = SourceError(uri, expected="the index's data", found="no such object")
        return [Upload(key.ledger, key.uuid, topic, fault=fault)]
    with _indexes_lock:
        indexed = _indexes.get((index_id, data))
    if indexed is None:
        try:
            file = read_map_file(storage, index_id, data)
        except SourceError as error:
            return [Upload(key.ledger, key.uuid, topic, data=data, fault=error)]
        if file is None:
            return [_read_without_index(storage, key, data, "no offsets in it")]
        named = names.topic_of_managed_ledger(file.managed_ledger or "")
        if named and topic and named != topic:
            expected = f"a ledger of {topic}, as the folder is named"
            found = f"a ledger of {named}"
            fault = SourceError(data.uri, offset=0, expected=expected, found=found)
            return [Upload(key.ledger, key.uuid, topic, data=data, fault=fault)]
        topic = named or topic
        upload = Upload(
            key.ledger,
            key.uuid,
            topic,
            file.extents,
            last=file.extents[-1].last,
            data=data,
            form=file.layout,
            ends_here=False,
        )
        indexed = _Indexed((upload,), data.size_bytes)
        with _indexes_lock:
            _indexes[index_id, data] = indexed
    return indexed.uploads


def _read_without_index(
    storage: Storage, key: AnyKey, data: ObjectId, found: str
) -> Upload:
    """Return an upload whose index was found to be missing."""
    topic = key.topic() if isinstance(key, FileKey) else None
    ledger = NO_LEDGER if isinstance(key, SegmentKey) else key.ledger
    upload = Upload(ledger, key.uuid, topic, data=data, has_index=False)
    try:
        named, written_ms = _topic_and_time(storage, data)
    except SourceError as error:  # such as an object deleted since it was listed
        return replace(upload, fault=error)
    written = datetime.fromtimestamp(written_ms / 1e3, UTC)
    fault = SourceError(
        data.uri,
        expected="an index of these data",
        found=f"{found}, and the data were written at {written:%Y-%m-%d %H:%M:%S} UTC",
    )
    return replace(upload, topic=topic or named, fault=fault, written_ms=written_ms)


def _topic_and_time(storage: Storage, data: ObjectId) -> tuple[str | None, int]:
    """Return the topic that user metadata of data name, and when it was written."""
    with _without_index_lock:
        known = _without_index.get(data)
    if known is None:
        # An empty object has no last byte.
        read = (
            storage.get_end(data.uri, 1) if data.size_bytes else storage.get(data.uri)
        )
        name = _user_metadata(read).get(TOPIC_KEY, "")
        known = names.topic_of_managed_ledger(name), read.modified_ms
        with _without_index_lock:
            _without_index[data] = known
    return known


def _user_metadata(stored: StoredObject) -> dict[str, str]:
    return {name.lower(): text for name, text in stored.metadata.items()}


def _check_version(uri: str, metadata: Mapping[str, str]) -> None:
    version = metadata.get(VERSION_KEY, FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise SourceError(
            uri,
            expected=f"format version {FORMAT_VERSION}",
            found=f"{version!r} in {VERSION_KEY}",
        )


def _with_data(
    upload: Upload, data: ObjectId | None, data_bytes: int, fault: SourceError | None
) -> Upload:
    """Return what can be read of an upload whose data object has another size.

    `data_bytes` is the size that the index says, `fault` what to say of another one.
    Data of another size could be those of another ledger. Only blocks of the streaming
    format name their ledger. But an index whose last block is empty counts too few
    bytes.
    """
    upload = replace(upload, data=data)
    if fault is None:
        return upload
    size_bytes = data.size_bytes if data else 0
    is_counted_too_few = upload.fault is not None and size_bytes > data_bytes
    end = size_bytes if upload.is_piece or is_counted_too_few else 0
    extents = tuple(extent for extent in upload.extents if _end_of(extent) <= end)
    if extents != upload.extents:
        return replace(upload, extents=extents, fault=upload.fault or fault)
    if upload.is_piece and _end_of(extents[-1]) == data_bytes:
        # The data go on, so nothing says which entry is the last.
        return replace(upload, last=UNKNOWN_END, fault=fault)
    return upload


def _end_of(extent: Extent) -> int:
    return extent.offset + extent.size_bytes


def _mismatch(uri: str, size_bytes: int, data: ObjectId | None) -> SourceError | None:
    """Return the fault of an index's data object; None if it has the right size."""
    if data is None:
        return SourceError(
            uri,
            expected=f"a data object of {size_bytes} bytes, as its index says",
            found="no such object",
        )
    if data.size_bytes != size_bytes:
        return SourceError(
            data.uri,
            offset=min(data.size_bytes, size_bytes),
            expected=f"{size_bytes} bytes, as its index says",
            found=f"{data.size_bytes} bytes",
        )
    return None
