"""Read a bucket: which objects have which entries of which ledger.

One listing finds the objects. Their index objects have the topics and the offsets of
entries, so all of them are read; see indexes.py.

Offloaders write the index last. Data without an index, or with an empty one, is an
upload in progress, or a lost ledger; see unfinished.py. Of such data the user metadata
are read, which name the topic, and the time at which they were written.

Source: BlobStoreManagedLedgerOffloader of Apache Pulsar.
"""

from __future__ import annotations

import logging
from collections import defaultdict
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
from sparkcache_pulsar.indexes import (
    TOPIC_KEY,
    Unreadable,
    read_indexes,
    user_metadata,
)
from sparkcache_pulsar.mapfile import read_map_file
from sparkcache_pulsar.names import FileKey, Key, SegmentKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkcache.connector import Storage
    from sparkcache.model import Extent, ObjectId
    from sparkcache_pulsar.decoding import Form
    from sparkcache_pulsar.indexes import Indexed
    from sparkcache_pulsar.manifest import Listed

NO_LEDGER = -1

_READERS = 8
_STREAMING = Streaming()
_log = logging.getLogger(__name__)


@dataclass(slots=True)  # frozen ones take three times as long to make
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


AnyKey = Key | SegmentKey | FileKey

_files: LRUCache[tuple[ObjectId, ObjectId], Upload] = LRUCache(maxsize=10_000)
_files_lock = Lock()
_without_index: LRUCache[ObjectId, tuple[str | None, int]] = LRUCache(maxsize=10_000)
_without_index_lock = Lock()


@dataclass(slots=True)
class _Found:
    """What a listing has of one upload."""

    index: ObjectId | None = None
    data: ObjectId | None = None


def read_uploads(storage: Storage) -> list[Upload]:
    """List the bucket and read its indexes; return the uploads in order of ledgers."""
    found: defaultdict[str, _Found] = defaultdict(_Found)
    begin = len(storage.root) + 1
    for object_id in steps(
        storage.list(names.CUTS), f"Listing {storage.root}", "objects"
    ):
        stem, is_index = names.stem_of(object_id.uri[begin:])
        if is_index:
            found[stem].index = object_id
        elif stem:
            found[stem].data = object_id
    keyed = ((names.parse(stem), each) for stem, each in found.items())
    return _read(storage, [(key, each) for key, each in keyed if key is not None])


def read_named_uploads(
    storage: Storage, manifest: Mapping[int, Listed]
) -> list[Upload] | None:
    """Return the uploads that a manifest names, without listing the bucket.

    None if it does not name all of them, or if one of them is not as it should be: then
    the bucket has to be listed, to find what else there is.
    """
    keys = []
    for ledger, listed in manifest.items():
        if listed.is_offloaded:
            if listed.uuid is None:
                return None
            keys.append(Key(ledger, listed.uuid, is_index=False))
    uris = [(f"{storage.root}/{key}", f"{storage.root}/{key.index}") for key in keys]
    try:
        ids = _identities(storage, [uri for pair in uris for uri in pair])
    except SourceError as error:
        _log.info("listing %s: %s", storage.root, error)
        return None
    found = [_Found(ids[index], ids[data]) for data, index in uris]
    uploads = _read(storage, list(zip(keys, found, strict=True)))
    is_sound = all(upload.fault is None for upload in uploads)
    return uploads if is_sound else None


def _identities(storage: Storage, uris: Sequence[str]) -> Mapping[str, ObjectId]:
    """Return the identities of objects. Raises SourceError if one does not exist."""
    listed = storage.listed(uris)
    others = [uri for uri in uris if uri not in listed]

    def identity(uri: str) -> ObjectId:
        return storage.get_end(uri, 1).id

    with ThreadPoolExecutor(_READERS, "pulsar-identity") as readers:
        return listed | dict(zip(others, readers.map(identity, others), strict=True))


def _read(storage: Storage, found: Sequence[tuple[AnyKey, _Found]]) -> list[Upload]:
    indexes: list[tuple[Key | SegmentKey, ObjectId]] = []
    data: list[ObjectId | None] = []
    others: list[tuple[AnyKey, _Found]] = []
    for key, each in found:
        if each.index is None or isinstance(key, FileKey):
            others.append((key, each))
        else:
            indexes.append((key, each.index))
            data.append(each.data)
    uploads: list[Upload] = []
    doing = f"Reading indexes in {storage.root}", "indexes", len(found)
    contents = zip(indexes, data, read_indexes(storage, indexes), strict=True)
    for (key, _), stored, indexed in steps(contents, *doing):
        uploads += _indexed_uploads(storage, key, stored, indexed)
    with ThreadPoolExecutor(_READERS, "pulsar-index") as readers:
        rest = readers.map(lambda each: _read_other(storage, *each), others)
        uploads += steps(rest, *doing)
    uploads.sort(key=lambda upload: (upload.ledger, upload.uuid))
    return uploads


def _indexed_uploads(
    storage: Storage,
    key: Key | SegmentKey,
    data: ObjectId | None,
    indexed: Indexed | Unreadable,
) -> Iterator[Upload]:
    """Yield what an index has, as far as its data are there."""
    if isinstance(indexed, Unreadable):
        ledger = key.ledger if isinstance(key, Key) else NO_LEDGER
        yield Upload(ledger, key.uuid, indexed.topic, fault=indexed.fault)
        return
    is_piece = isinstance(key, SegmentKey)
    form = _STREAMING if is_piece else None
    is_complete = data is not None and data.size_bytes == indexed.data_bytes
    for part in indexed.parts:
        upload = Upload(
            part.ledger,
            key.uuid,
            indexed.topic,
            part.extents,
            part.first,
            part.last,
            data,
            form,
            is_piece,
            part.ends_here,
            part.fault,
        )
        if is_complete:
            yield upload
        else:
            fault = _mismatch(f"{storage.root}/{key}", indexed.data_bytes, data)
            yield _with_data(upload, data, indexed.data_bytes, fault)


def _read_other(storage: Storage, key: AnyKey, found: _Found) -> Upload:
    """Read an upload without an index, or one of the file system offloader."""
    if found.index is None:
        assert found.data is not None, "one of them was listed"
        return _read_without_index(storage, key, found.data, "no such object")
    assert isinstance(key, FileKey), "indexes of other keys are read elsewhere"
    return _read_file(storage, key, found.index, found.data)


def _read_file(
    storage: Storage, key: FileKey, index_id: ObjectId, data: ObjectId | None
) -> Upload:
    """Read an index of the file system offloader, and the start of its data."""
    topic = key.topic()
    if data is None:
        uri = f"{storage.root}/{key}"
        fault = SourceError(uri, expected="the index's data", found="no such object")
        return Upload(key.ledger, key.uuid, topic, fault=fault)
    with _files_lock:
        known = _files.get((index_id, data))
    if known is not None:
        return known
    try:
        file = read_map_file(storage, index_id, data)
    except SourceError as error:
        return Upload(key.ledger, key.uuid, topic, data=data, fault=error)
    if file is None:
        return _read_without_index(storage, key, data, "no offsets in it")
    named = names.topic_of_managed_ledger(file.managed_ledger or "")
    if named and topic and named != topic:
        expected = f"a ledger of {topic}, as the folder is named"
        found = f"a ledger of {named}"
        fault = SourceError(data.uri, offset=0, expected=expected, found=found)
        return Upload(key.ledger, key.uuid, topic, data=data, fault=fault)
    upload = Upload(
        key.ledger,
        key.uuid,
        named or topic,
        file.extents,
        last=file.extents[-1].last,
        data=data,
        form=file.layout,
        ends_here=False,
    )
    with _files_lock:
        _files[index_id, data] = upload
    return upload


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
        name = user_metadata(read).get(TOPIC_KEY, "")
        known = names.topic_of_managed_ledger(name), read.modified_ms
        with _without_index_lock:
            _without_index[data] = known
    return known


def _with_data(
    upload: Upload, data: ObjectId | None, data_bytes: int, fault: SourceError
) -> Upload:
    """Return what can be read of an upload whose data object has another size.

    `data_bytes` is the size that the index says, `fault` what to say of another one.
    Data of another size could be those of another ledger. Only blocks of the streaming
    format name their ledger. But an index whose last block is empty counts too few
    bytes.
    """
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


def _mismatch(uri: str, size_bytes: int, data: ObjectId | None) -> SourceError:
    """Return the fault of an index whose data object does not have this size."""
    if data is None:
        return SourceError(
            uri,
            expected=f"a data object of {size_bytes} bytes, as its index says",
            found="no such object",
        )
    return SourceError(
        data.uri,
        offset=min(data.size_bytes, size_bytes),
        expected=f"{size_bytes} bytes, as its index says",
        found=f"{data.size_bytes} bytes",
    )
