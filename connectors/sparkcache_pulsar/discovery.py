"""Finds the ledgers of a topic from what lies in the bucket.

    uploads     what there is                               uploads.py
    owners      whose it is                                 owners.py
    coverage    which of it to read                         coverage.py

With a manifest, the ledgers that it lists are the topic's, and no others.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.errors import ConfigError, NoSuchTopicError
from sparkcache.model import Ledger, qualified_topic
from sparkcache.progress import steps
from sparkcache_pulsar import frames, names, unfolding
from sparkcache_pulsar.coverage import Missing, cover, given_up, nowhere
from sparkcache_pulsar.forms import form_of, with_form
from sparkcache_pulsar.manifest import OPTION, read_manifest
from sparkcache_pulsar.owners import find_owners, of_topic
from sparkcache_pulsar.sequencefile import Layout
from sparkcache_pulsar.uploads import NO_LEDGER, read_uploads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from sparkcache.connector import Selection, Storage
    from sparkcache.model import Extent
    from sparkcache_pulsar.uploads import Upload

CONNECTOR = "pulsar"

_TOPICS_TOLD = 10
_log = logging.getLogger(__name__)

_ends: LRUCache[tuple[Ledger, Extent], int | None] = LRUCache(maxsize=10_000)
_ends_lock = Lock()


class Catalog:
    """What lies in a bucket; see `sparkcache.connector.Catalog`.

    Args:
        storage: The bucket.
        options: Those of a scan.
        decoding: How what is found is to be decoded.

    """

    def __init__(
        self, storage: Storage, options: Mapping[str, str], decoding: str
    ) -> None:
        self._storage = storage
        self._manifest = read_manifest(storage, options)
        self._fails = options.get("failOnDataLoss", "true") != "false"
        self._decoding = decoding
        self._listing = _Listing(read_uploads(storage))

    def __repr__(self) -> str:
        return f"Catalog({self._storage.root}, {self._listing!r})"

    def select(self, selection: Selection) -> Sequence[str]:
        """Return the topics that are meant; of a partitioned one, all partitions.

        A pattern may match the name of a partition, or that of its topic.
        """
        if selection.pattern is None:
            found = [name for name in selection.names for name in self._named(name)]
        else:
            matches = selection.pattern.fullmatch
            found = [
                name
                for name in sorted(self._topics(), key=names.by_partition)
                if matches(name) or matches(names.without_partition(name))
            ]
            if not found:
                raise self._unknown(str(selection), selection.pattern.pattern)
        chosen = list(dict.fromkeys(found))
        if self._manifest is not None and len(chosen) > 1:
            raise ConfigError(
                f"option {OPTION}: it lists the ledgers of one topic, and the scan is "
                f"of {len(chosen)}, such as {chosen[0]} and {chosen[1]}"
            )
        return chosen

    def snapshot(self, topic: str) -> Snapshot:
        """Return the ledgers of a topic; raises SourceError."""
        found = self._find(topic)
        if found.missing:
            # A broker may have written or deleted ledgers since the bucket was listed.
            self._listing = _Listing(read_uploads(self._storage))
            found = self._find(topic)
        if found.missing and self._fails:
            raise found.missing[0].fault
        if found.nameless:
            _log.warning(
                "%s: left out %s", self._storage.root, _of_nobody(found.nameless)
            )
        losses = tuple(missing.as_loss() for missing in found.missing)
        _log.info("%s: %r", qualified_topic(topic, self._storage.root), found)
        return Snapshot(tuple(found.maps), losses)

    def _named(self, name: str) -> list[str]:
        """Return the topics of a name; raises ConfigError if there is none."""
        found = self._matching(name)
        if not found:
            self.snapshot(name)  # it may be there, and not to be read
            found = self._matching(name)
        if not found:
            raise self._unknown(f"topic={name!r}", name)
        return found

    def _matching(self, name: str) -> list[str]:
        topics = self._topics(name)
        return [name] * (name in topics) + names.partitions_of(name, topics)

    def _topics(self, listed: str = "") -> Set[str]:
        """Return the topics in the bucket; `listed` is that of the manifest, if any."""
        return set(self._owners(listed).values())

    def _owners(self, topic: str) -> Mapping[int, str]:
        """Return the topic of each ledger; `topic` is that of the manifest, if any."""
        if topic and self._manifest:
            return find_owners(self._listing.uploads, topic, self._manifest)
        return self._listing.owners

    def _find(self, topic: str) -> _Found:
        """Choose what to read of a topic."""
        manifest, root, listing = self._manifest, self._storage.root, self._listing
        owners = self._owners(topic)
        nameless = {
            upload.uuid for upload in listing.segments if upload.ledger not in owners
        }
        found = _Found(set(owners.values()), nameless)
        as_ledger = partial(_ledger, qualified_topic(topic, root), self._decoding)
        offloaded = [id_ for id_, of in (manifest or {}).items() if of.is_offloaded]
        newest = max(offloaded, default=-1)
        ledgers = sorted(listing.of(topic) if manifest is None else manifest)
        for ledger in steps(
            ledgers, f"Looking at ledgers in {root}", "ledgers", len(ledgers)
        ):
            listed = manifest[ledger] if manifest is not None else None
            mine = of_topic(
                listing.of_ledger.get(ledger, []), topic, owners.get(ledger)
            )
            if mine:
                last = partial(_last, self._storage)
                covered = cover(mine, listed, root, as_ledger, last)
                found.maps += covered.maps
                found.missing += covered.missing
            elif listed and (
                listed.is_offloaded or (listed.entries and ledger < newest)
            ):
                # One that is not offloaded is missing if a later one is.
                end = max(listed.entries - 1, 0)
                found.missing.append(nowhere(root, ledger, 0, end))
        if manifest is None or found.missing:
            found.missing += map(given_up, listing.anybodys)
        return found

    def _unknown(self, option: str, like: str) -> NoSuchTopicError:
        found = self._find(like)
        topics = found.topics
        close = get_close_matches(like, sorted(topics), _TOPICS_TOLD, cutoff=0.6)
        told = close or sorted(topics)[:_TOPICS_TOLD]
        there_is = f"there is {', '.join(told)}" if told else "there is none at all"
        more = f" and {len(topics) - len(told)} more" if len(topics) > len(told) else ""
        beside = f"; beside {_of_nobody(found.nameless)}" if found.nameless else ""
        return NoSuchTopicError(
            f"option {option}: no offloaded ledger of it in {self._storage.root}; "
            f"{there_is}{more}{beside}"
        )


class _Listing:
    """The uploads in a bucket, by ledger and by topic.

    Attributes:
        uploads: All of them.
        segments: Those in the streaming format.
        of_ledger: Those of each ledger.
        anybodys: Those of which not even the ledger is known.
        owners: The topic of each ledger, as far as uploads say it.

    """

    def __init__(self, uploads: Sequence[Upload]) -> None:
        self.uploads = uploads
        self.segments = [upload for upload in uploads if upload.is_piece]
        grouped = groupby(uploads, key=lambda upload: upload.ledger)
        self.of_ledger = {ledger: list(group) for ledger, group in grouped}
        self.anybodys = self.of_ledger.pop(NO_LEDGER, [])
        self.owners = find_owners(uploads, "", ())
        self._ledgers: defaultdict[str | None, set[int]] = defaultdict(set)
        for ledger, group in self.of_ledger.items():
            for upload in group:
                topic = upload.topic or self.owners.get(ledger)
                self._ledgers[topic].add(ledger)

    def __repr__(self) -> str:
        return f"<{len(self.uploads)} uploads>"

    def of(self, topic: str) -> Set[int]:
        """Return the ledgers that are, or could be, of a topic."""
        return self._ledgers[topic] | self._ledgers[None]


@dataclass(slots=True)
class _Found:
    """What was found of a topic.

    Attributes:
        topics: Which topics there are.
        nameless: Segments that do not say whose they are.
        maps: What to read.
        missing: What should be there too.

    """

    topics: Set[str]
    nameless: Set[str]
    maps: list[LedgerMap] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def __repr__(self) -> str:
        return (
            f"{len(self.maps)} objects to read, {len(self.missing)} ranges of entries "
            f"missing, in a bucket of {len(self.topics)} topics"
        )


def _ledger(place: str, decoding: str, upload: Upload) -> Ledger:
    assert upload.data is not None
    how = with_form(upload.form, decoding)
    return Ledger(CONNECTOR, place, upload.ledger, upload.data, how)


def _last(storage: Storage, ledger: Ledger, extent: Extent) -> int | None:
    """Find out from the data where an extent ends; known once it has been read."""
    with _ends_lock:
        if (ledger, extent) in _ends:
            return _ends[ledger, extent]
    stream = storage.open(ledger.object, extent.offset, extent.size_bytes)
    try:
        if (layout := Layout.parse(form_of(ledger))) is not None:
            last: int | None = unfolding.last_entry(layout, ledger, extent, stream)
        else:
            last = frames.last_entry(ledger, extent, stream)
    finally:
        stream.close()
    with _ends_lock:
        _ends[ledger, extent] = last
    return last


def _of_nobody(segments: Set[str]) -> str:
    return (
        f"{len(segments)} segments in the streaming format, such as {min(segments)}, "
        f"which do not say whose they are; the option {OPTION} would"
    )
