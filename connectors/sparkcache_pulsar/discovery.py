"""Find the ledgers of a topic in a bucket.

    uploads     which objects are stored                    uploads.py
    unfinished  which of them are still being uploaded      unfinished.py
    owners      which topic each ledger belongs to          owners.py
    coverage    which uploads of a ledger to read           coverage.py

A topic with a manifest has exactly the ledgers that the manifest lists. If it names
their uploads as well, the bucket is not listed.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, partial
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from sparkcache import connector as connectors
from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.errors import ConfigError, NoSuchTopicError
from sparkcache.model import UNKNOWN_END, Ledger, qualified_topic
from sparkcache.progress import steps
from sparkcache_pulsar import frames, names, unfinished, unfolding
from sparkcache_pulsar.coverage import (
    Missing,
    cover,
    is_whole,
    not_stored,
    unreadable,
)
from sparkcache_pulsar.decoding import Decoding, form_of
from sparkcache_pulsar.manifest import OPTION, read_manifest
from sparkcache_pulsar.owners import find_owners, uploads_of_topic
from sparkcache_pulsar.sequencefile import Layout
from sparkcache_pulsar.uploads import (
    NO_LEDGER,
    read_named_uploads,
    read_uploads,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    from sparkcache.connector import Selection, Storage
    from sparkcache.model import Extent
    from sparkcache_pulsar.decoding import Form
    from sparkcache_pulsar.uploads import Upload

CONNECTOR = "pulsar"

_TOPICS_SHOWN = 10
_log = logging.getLogger(__name__)

_ends: LRUCache[tuple[Ledger, Extent], int | None] = LRUCache(maxsize=10_000)
_ends_lock = Lock()


class Catalog(connectors.Catalog):
    """The topics in a bucket; see `sparkcache.connector.Catalog`.

    Args:
        storage: The bucket.
        options: The options of a scan.
        decoding: How to decode the ledgers.

    """

    def __init__(
        self, storage: Storage, options: Mapping[str, str], decoding: str
    ) -> None:
        self._storage = storage
        self._manifest = read_manifest(storage, options)
        self._fails = options.get("failOnDataLoss", "true") != "false"
        self._decoding = Decoding.parse(decoding)
        self._max_upload_ms = unfinished.max_upload_ms(options)
        named = self._manifest and read_named_uploads(storage, self._manifest)
        self._listing = _Listing(named) if named else self._list()
        self._is_listed = not named

    def __repr__(self) -> str:
        return f"Catalog({self._storage.root}, {self._listing!r})"

    def select(self, selection: Selection) -> Sequence[str]:
        """Return the selected topics; for a partitioned topic, all its partitions.

        A pattern may match the name of a partition, or that of its topic.
        """
        if selection.pattern is None:
            selected = [name for name in selection.names for name in self._named(name)]
        else:
            self._require_listing()
            matches = selection.pattern.fullmatch
            selected = [
                name
                for name in sorted(self._topics(), key=names.by_partition)
                if matches(name) or matches(names.without_partition(name))
            ]
            if not selected:
                raise self._unknown(str(selection), selection.pattern.pattern)
        topics = list(dict.fromkeys(selected))
        if self._manifest is not None and len(topics) > 1:
            raise ConfigError(
                f"option {OPTION}: a manifest lists the ledgers of one topic, but the "
                f"scan reads {len(topics)} topics, such as {topics[0]} and {topics[1]}"
            )
        return topics

    def snapshot(self, topic: str) -> Snapshot:
        """Return the ledgers of a topic; raises SourceError."""
        contents = self._find(topic)
        if contents.missing:
            # A broker may have written or deleted ledgers since the bucket was listed.
            self._listing, self._is_listed = self._list(), True
            contents = self._find(topic)
        if contents.missing and self._fails:
            raise contents.missing[0].fault
        if contents.unassigned:
            _log.warning(
                "%s: left out %s",
                self._storage.root,
                _describe_unassigned(contents.unassigned),
            )
        losses = tuple(missing.as_loss() for missing in contents.missing)
        _log.info("%s: %r", qualified_topic(topic, self._storage.root), contents)
        return Snapshot(tuple(contents.maps), losses)

    def _require_listing(self) -> None:
        """List the bucket, unless that is done: it has more than a manifest names."""
        if not self._is_listed:
            self._listing, self._is_listed = self._list(), True

    def _list(self) -> _Listing:
        """List the bucket; the manifest says which uploads should be finished."""
        found = read_uploads(self._storage)
        uploads = unfinished.without_repeated(found)
        if self._manifest is None:
            now_ms = time.time_ns() // 10**6
            uploads = unfinished.without_uploads_in_progress(
                uploads, now_ms, self._max_upload_ms
            )
        else:
            uploads = unfinished.without_unlisted(uploads, self._manifest)
        kept = {upload.uuid for upload in uploads}
        for upload in found:
            if upload.uuid not in kept:
                _log.info("left out an unfinished upload: %s", upload.fault)
        return _Listing(uploads)

    def _named(self, name: str) -> list[str]:
        """Return the topics of a name; raises ConfigError if it has none."""
        topics = self._matching(name)
        if not topics:
            self.snapshot(name)  # the topic may be stored, but unreadable
            topics = self._matching(name)
        if not topics:
            raise self._unknown(f"topic={name!r}", name)
        return topics

    def _matching(self, name: str) -> list[str]:
        topics = self._topics(name)
        return [name] * (name in topics) + names.partitions_of(name, topics)

    def _topics(self, listed: str = "") -> Set[str]:
        """Return the topics in the bucket; a manifest, if any, is of topic `listed`."""
        return set(self._owners(listed).values())

    def _owners(self, topic: str) -> Mapping[int, str]:
        """Return the topic of each ledger; a manifest, if any, is of `topic`."""
        if topic and self._manifest:
            return find_owners(self._listing.uploads, topic, self._manifest)
        return self._listing.owners

    def _find(self, topic: str) -> _Contents:
        """Choose the objects of a topic to read."""
        manifest, root, listing = self._manifest, self._storage.root, self._listing
        owners = self._owners(topic)
        unassigned = {
            upload.uuid for upload in listing.segments if upload.ledger not in owners
        }
        contents = _Contents(set(owners.values()), unassigned)
        text = cache(lambda form: str(self._decoding.with_form(form)))
        as_ledger = partial(_ledger, qualified_topic(topic, root), text)
        offloaded = [
            id_ for id_, listed in (manifest or {}).items() if listed.is_offloaded
        ]
        newest = max(offloaded, default=-1)
        ledgers = sorted(listing.ledgers(topic) if manifest is None else manifest)
        for ledger in steps(
            ledgers, f"Looking at ledgers in {root}", "ledgers", len(ledgers)
        ):
            listed = manifest[ledger] if manifest is not None else None
            stored = listing.by_ledger.get(ledger, [])
            if is_whole(stored, topic, listed):
                whole = stored[0]
                contents.maps.append(LedgerMap(as_ledger(whole), whole.extents))
                continue
            uploads = uploads_of_topic(stored, topic, owners.get(ledger))
            # A ledger not offloaded is missing only if a later one is offloaded.
            is_due = listed is None or (
                listed.is_offloaded or (listed.entries > 0 and ledger < newest)
            )
            if uploads and (is_due or uploads[0].has_index):
                last = partial(_last_entry, self._storage)
                coverage = cover(uploads, listed, root, as_ledger, last)
                contents.maps += coverage.maps
                contents.missing += coverage.missing
            elif listed and is_due:
                end = listed.entries - 1 if listed.entries else UNKNOWN_END
                contents.missing.append(not_stored(root, ledger, 0, end))
        if manifest is None or contents.missing:
            contents.missing += [
                unreadable(upload)
                for upload in listing.without_ledger
                if upload.topic in (None, topic)
            ]
        return contents

    def _unknown(self, option: str, like: str) -> NoSuchTopicError:
        self._require_listing()
        contents = self._find(like)
        topics, unassigned = contents.topics, contents.unassigned
        close = get_close_matches(like, sorted(topics), _TOPICS_SHOWN, cutoff=0.6)
        shown = close or sorted(topics)[:_TOPICS_SHOWN]
        found = f"found topics {', '.join(shown)}" if shown else "found no topics"
        hidden = len(topics) - len(shown)
        more = f" and {hidden} more" if hidden > 0 else ""
        also = f"; also found {_describe_unassigned(unassigned)}" if unassigned else ""
        return NoSuchTopicError(
            f"option {option}: no offloaded ledger matches in {self._storage.root}; "
            f"{found}{more}{also}"
        )


class _Listing:
    """The uploads in a bucket, by ledger and by topic.

    Attributes:
        uploads: All uploads.
        segments: The uploads in the streaming format.
        by_ledger: The uploads of each ledger.
        without_ledger: The uploads whose ledger is unknown.
        owners: The topic of each ledger, as far as uploads name it.

    """

    def __init__(self, uploads: Sequence[Upload]) -> None:
        self.uploads = uploads
        self.segments = [upload for upload in uploads if upload.is_piece]
        grouped = groupby(uploads, key=lambda upload: upload.ledger)
        self.by_ledger = {ledger: list(group) for ledger, group in grouped}
        self.without_ledger = self.by_ledger.pop(NO_LEDGER, [])
        self.owners = find_owners(uploads, "", ())
        self._ledgers: defaultdict[str | None, set[int]] = defaultdict(set)
        for ledger, group in self.by_ledger.items():
            for upload in group:
                topic = upload.topic or self.owners.get(ledger)
                self._ledgers[topic].add(ledger)

    def __repr__(self) -> str:
        return f"<{len(self.uploads)} uploads>"

    def ledgers(self, topic: str) -> Set[int]:
        """Return the ledgers that are, or could be, of a topic."""
        return self._ledgers[topic] | self._ledgers[None]


@dataclass(slots=True)
class _Contents:
    """The contents of a bucket for one topic.

    Attributes:
        topics: All topics in the bucket.
        unassigned: Segments whose topic is unknown.
        maps: The ledgers to read.
        missing: Entries that should be stored too.

    """

    topics: Set[str]
    unassigned: Set[str]
    maps: list[LedgerMap] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def __repr__(self) -> str:
        return (
            f"{len(self.maps)} objects to read, {len(self.missing)} ranges of entries "
            f"missing, in a bucket of {len(self.topics)} topics"
        )


def _ledger(topic: str, decoding: Callable[[Form], str], upload: Upload) -> Ledger:
    assert upload.data is not None
    text = decoding(upload.form)
    return Ledger(CONNECTOR, topic, upload.ledger, upload.data, text)


def _last_entry(storage: Storage, ledger: Ledger, extent: Extent) -> int | None:
    """Find the last entry of an extent from its data, which is read only once."""
    with _ends_lock:
        if (ledger, extent) in _ends:
            return _ends[ledger, extent]
    stream = storage.open(ledger.object, extent.offset, extent.size_bytes)
    try:
        form = form_of(ledger)
        if isinstance(form, Layout):
            last: int | None = unfolding.last_entry(form, ledger, extent, stream)
        else:
            last = frames.last_entry(ledger, extent, stream)
    finally:
        stream.close()
    with _ends_lock:
        _ends[ledger, extent] = last
    return last


def _describe_unassigned(segments: Set[str]) -> str:
    return (
        f"{len(segments)} segments in the streaming format, such as {min(segments)}, "
        f"which do not name their topic; set the option {OPTION} to assign them"
    )
