"""Finds the ledgers of a topic from what lies in the bucket.

    uploads     what there is                               uploads.py
    owners      whose it is                                 owners.py
    coverage    which of it to read                         coverage.py

With a manifest, the ledgers that it lists are the topic's, and no others.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from sparkcache.connector import LedgerMap, Snapshot
from sparkcache.errors import ConfigError
from sparkcache.model import Ledger, placed
from sparkcache_pulsar import frames, unfolding
from sparkcache_pulsar.coverage import Missing, cover, given_up, nowhere
from sparkcache_pulsar.forms import form_of, with_form
from sparkcache_pulsar.manifest import OPTION, read_manifest
from sparkcache_pulsar.owners import find_owners, of_topic
from sparkcache_pulsar.sequencefile import Layout
from sparkcache_pulsar.uploads import NO_LEDGER, read_uploads

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from sparkcache.connector import Storage
    from sparkcache.model import Extent
    from sparkcache_pulsar.manifest import Listed
    from sparkcache_pulsar.uploads import Upload

CONNECTOR = "pulsar"

_TOPICS_TOLD = 10
_log = logging.getLogger(__name__)

_ends: LRUCache[tuple[Ledger, Extent], int | None] = LRUCache(maxsize=10_000)
_ends_lock = Lock()


def discover(
    storage: Storage, topic: str, options: Mapping[str, str], decoding: str
) -> Snapshot:
    """Return the ledgers of a topic, to be decoded so; see `Connector.discover`."""
    manifest = read_manifest(storage, options)
    found = _find(storage, topic, manifest, decoding)
    if found.missing:
        # A broker may have written or deleted ledgers since the bucket was listed.
        found = _find(storage, topic, manifest, decoding)
    if found.missing and options.get("failOnDataLoss", "true") != "false":
        raise found.missing[0].fault
    if topic not in found.topics:
        raise ConfigError(_unknown(topic, storage.root, found))
    if found.nameless:
        _log.warning("%s: left out %s", storage.root, _of_nobody(found.nameless))
    losses = tuple(missing.as_loss() for missing in found.missing)
    _log.info("%s: %r", placed(topic, storage.root), found)
    return Snapshot(tuple(found.maps), losses)


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


def _find(
    storage: Storage,
    topic: str,
    manifest: Mapping[int, Listed] | None,
    decoding: str,
) -> _Found:
    """List the bucket and choose what to read of it."""
    uploads = read_uploads(storage)
    owners = find_owners(uploads, topic, manifest or {})
    segments = [upload for upload in uploads if upload.is_piece]
    nameless = {upload.uuid for upload in segments if upload.ledger not in owners}
    found = _Found(set(owners.values()), nameless)
    grouped = groupby(uploads, key=lambda upload: upload.ledger)
    of_ledger = {ledger: list(group) for ledger, group in grouped}
    anybodys = of_ledger.pop(NO_LEDGER, [])
    as_ledger = partial(_ledger, placed(topic, storage.root), decoding)
    for ledger in sorted(of_ledger if manifest is None else manifest):
        listed = manifest[ledger] if manifest is not None else None
        mine = of_topic(of_ledger.get(ledger, []), topic, owners.get(ledger))
        if mine:
            last = partial(_last, storage)
            covered = cover(mine, listed, storage.root, as_ledger, last)
            found.maps += covered.maps
            found.missing += covered.missing
        elif listed and listed.is_offloaded:
            end = max(listed.entries - 1, 0)
            found.missing.append(nowhere(storage.root, ledger, 0, end))
    if manifest is None or found.missing:
        found.missing += map(given_up, anybodys)
    return found


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


def _unknown(topic: str, root: str, found: _Found) -> str:
    topics = found.topics
    close = get_close_matches(topic, sorted(topics), _TOPICS_TOLD, cutoff=0.6)
    told = close or sorted(topics)[:_TOPICS_TOLD]
    there_is = f"there is {', '.join(told)}" if told else "there is none at all"
    more = f" and {len(topics) - len(told)} more" if len(topics) > len(told) else ""
    beside = f"; beside {_of_nobody(found.nameless)}" if found.nameless else ""
    return (
        f"option topic={topic!r}: no offloaded ledger of it in {root}; {there_is}{more}"
        f"{beside}"
    )


def _of_nobody(segments: Set[str]) -> str:
    return (
        f"{len(segments)} segments in the streaming format, such as {min(segments)}, "
        f"which do not say whose they are; the option {OPTION} would"
    )
