"""Finds the ledgers of a topic from what lies in the bucket, and nothing else.

One listing tells which ledgers there are. Whose they are is in their index objects, so
all of them are read, and kept by their identity: they never change.

The offloader writes the index last. Data without an index is an upload that has not
been finished, now or ever, and is no part of the topic. Several uploads of a ledger
may be whole; they are equal, and the one with the least uuid is taken.

Source: BlobStoreManagedLedgerOffloader of Apache Pulsar.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.errors import ConfigError, SourceError
from sparkcache.model import Ledger, Loss, placed
from sparkcache_pulsar import names
from sparkcache_pulsar.index import Index, parse_index
from sparkcache_pulsar.names import Key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from sparkcache.connector import Storage
    from sparkcache.model import ObjectId

CONNECTOR = "pulsar"
FORMAT_VERSION = "1"
VERSION_KEY = "s3managedledgeroffloaderformatversion"
TOPIC_KEY = "managedledgername"

_READERS = 8
_TOPICS_TOLD = 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Upload:
    """One upload of a ledger, as far as it can be read.

    Attributes:
        key: Of its data object.
        topic: Whose it is; None if that cannot be known.
        index: None if it cannot be read.
        data: Its data object; None if there is none.
        fault: Why entries cannot be read from it.

    """

    key: Key
    topic: str | None
    index: Index | None = None
    data: ObjectId | None = None
    fault: SourceError | None = None


_indexes: LRUCache[ObjectId, tuple[str | None, Index]] = LRUCache(maxsize=10_000)
_indexes_lock = Lock()


def discover(
    storage: Storage, topic: str, options: Mapping[str, str], decoding: str
) -> Snapshot:
    """Return the ledgers of a topic, to be decoded so; see `Connector.discover`."""
    uploads = _read_uploads(storage)
    if any(upload.fault for upload in uploads):
        # A broker may have written or deleted ledgers since the bucket was listed.
        uploads = _read_uploads(storage)
    place = placed(topic, storage.root)
    ledgers: list[LedgerMap] = []
    losses: list[Loss] = []
    for _, same_ledger in groupby(uploads, key=lambda upload: upload.key.ledger):
        match _choose(list(same_ledger), topic):
            case _Upload(key=key, index=Index() as index, data=data, fault=None) if (
                data
            ):
                ledger = Ledger(CONNECTOR, place, key.ledger, data, decoding)
                ledgers.append(LedgerMap(ledger, index.extents))
            case _Upload(fault=SourceError() as fault) as upload:
                if options.get("failOnDataLoss", "true") != "false":
                    raise fault
                losses.append(_loss(upload, fault))
    topics = {upload.topic for upload in uploads if upload.topic}
    if topic not in topics:
        raise ConfigError(_unknown(topic, storage.root, topics))
    _log.info(
        "%s: %d ledgers found, %d lost, among %d uploads of %d topics",
        place,
        len(ledgers),
        len(losses),
        len(uploads),
        len(topics),
    )
    return Snapshot(tuple(ledgers), tuple(losses))


def _choose(uploads: Sequence[_Upload], topic: str) -> _Upload | None:
    """Choose among the uploads of a ledger; None if it is not of the topic.

    One that could be anybody's counts, unless another upload says whose the ledger is.
    """
    mine = [upload for upload in uploads if upload.topic == topic]
    if mine:
        return next((upload for upload in mine if upload.fault is None), mine[0])
    if any(upload.topic for upload in uploads):
        return None
    return next((upload for upload in uploads if upload.fault), None)


def _read_uploads(storage: Storage) -> list[_Upload]:
    """List the bucket, read its indexes; return the uploads in the order of keys."""
    data: dict[Key, ObjectId] = {}
    indexes: dict[Key, ObjectId] = {}
    streaming = 0
    for object_id in storage.list():
        name = object_id.uri.removeprefix(storage.root + "/")
        if (key := Key.parse(name)) is not None:
            (indexes if key.is_index else data)[key.of_data()] = object_id
        streaming += names.is_streaming_index(name)
    if streaming:
        _log.warning(
            "%s: %d segments in the streaming format, which is not read yet, left out",
            storage.root,
            streaming,
        )
    for key in sorted(data.keys() - indexes.keys()):
        _log.info("%s: %s has no index: an unfinished upload", storage.root, key)
    keys = sorted(indexes)
    with ThreadPoolExecutor(_READERS, "pulsar-index") as readers:
        return list(
            readers.map(
                lambda key: _read_upload(storage, key, indexes[key], data.get(key)),
                keys,
            )
        )


def _read_upload(
    storage: Storage, key: Key, index_id: ObjectId, data: ObjectId | None
) -> _Upload:
    with _indexes_lock:
        known = _indexes.get(index_id)
    if known is not None:
        topic, index = known
        return _matched(key, topic, index, data, storage.root)
    topic = None
    try:
        stored = storage.get(index_id.uri)
        metadata = {name.lower(): value for name, value in stored.metadata.items()}
        topic = names.of_managed_ledger(metadata.get(TOPIC_KEY, ""))
        _check_version(index_id.uri, metadata)
        index = parse_index(index_id.uri, stored.data)
    except SourceError as error:
        return _Upload(key, topic, fault=error)
    if index.managed_ledger is not None:
        topic = names.of_managed_ledger(index.managed_ledger) or topic
    if topic is None:
        _log.warning("%s does not say whose ledger it is: left out", index_id.uri)
    with _indexes_lock:
        _indexes[stored.id] = topic, index
    return _matched(key, topic, index, data, storage.root)


def _check_version(uri: str, metadata: Mapping[str, str]) -> None:
    version = metadata.get(VERSION_KEY, FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise SourceError(
            uri,
            expected=f"format version {FORMAT_VERSION}",
            found=f"{version!r} in {VERSION_KEY}",
        )


def _matched(
    key: Key, topic: str | None, index: Index, data: ObjectId | None, root: str
) -> _Upload:
    """Bring an index together with its data object."""
    fault = None
    if data is None:
        fault = SourceError(
            f"{root}/{key}",
            expected=f"a data object of {index.data_bytes} bytes, as its index says",
            found="no such object",
        )
    elif data.size_bytes != index.data_bytes:
        fault = SourceError(
            data.uri,
            offset=min(data.size_bytes, index.data_bytes),
            expected=f"{index.data_bytes} bytes, as its index says",
            found=f"{data.size_bytes} bytes",
        )
    return _Upload(key, topic, index, data, fault)


def _loss(upload: _Upload, fault: SourceError) -> Loss:
    """Give up a ledger. How many entries it had is known if its index is."""
    last = upload.index.extents[-1].last if upload.index else 0
    return Loss(
        fault.uri,
        fault.offset or 0,
        upload.key.ledger,
        0,
        last,
        fault.expected,
        fault.found,
    )


def _unknown(topic: str, root: str, topics: Set[str]) -> str:
    close = get_close_matches(topic, sorted(topics), _TOPICS_TOLD, cutoff=0.6)
    told = close or sorted(topics)[:_TOPICS_TOLD]
    there_is = f"there is {', '.join(told)}" if told else "there is none at all"
    more = f" and {len(topics) - len(told)} more" if len(topics) > len(told) else ""
    return (
        f"option topic={topic!r}: no offloaded ledger of it in {root}; {there_is}{more}"
    )
