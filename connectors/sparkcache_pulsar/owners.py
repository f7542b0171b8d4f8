"""Find the topic of each ledger.

Objects of the classic format and of the file system offloader name their topic. Objects
of the streaming format do not: the topic comes from a manifest, or from another object
that has one of their ledgers and names its topic. Ledger ids are unique in a cluster,
and all ledgers of a segment are of one topic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError, SourceError
from sparkcache_pulsar.manifest import OPTION

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkcache_pulsar.uploads import Upload


def find_owners(
    uploads: Sequence[Upload], topic: str, listed: Collection[int]
) -> Mapping[int, str]:
    """Return the topic of each ledger, as far as known.

    `listed` are the ledgers in the manifest of `topic`. Raises ConfigError if one of
    them is of another topic.
    """
    owners = {upload.ledger: upload.topic for upload in uploads if upload.topic}
    for ledger in listed:
        if (owner := owners.setdefault(ledger, topic)) != topic:
            raise ConfigError(
                f"option {OPTION}: the manifest lists ledger {ledger}, which is of "
                f"{owner}, not of {topic}"
            )
    segments: dict[str, list[int]] = {}
    for upload in uploads:
        if upload.is_piece:
            segments.setdefault(upload.uuid, []).append(upload.ledger)
    while new_owners := _owners_by_segment(segments, owners):
        owners |= new_owners
    return owners


def _owners_by_segment(
    segments: Mapping[str, Sequence[int]], owners: Mapping[int, str]
) -> dict[int, str]:
    """Return owners of ledgers that share a segment with a ledger of known owner."""
    new_owners: dict[int, str] = {}
    for ledgers in segments.values():
        known = [ledger for ledger in ledgers if ledger in owners]
        if 0 < len(known) < len(ledgers):
            owner = owners[known[0]]
            new_owners |= {ledger: owner for ledger in ledgers if ledger not in owners}
    return new_owners


def uploads_of_topic(
    uploads: Sequence[Upload], topic: str, owner: str | None
) -> Sequence[Upload]:
    """Return the uploads of a ledger that are of a topic.

    Includes uploads that could be of any topic, if no owner is known. Their entries are
    lost.
    """
    matching = [upload for upload in uploads if (upload.topic or owner) == topic]
    if matching or owner is not None:
        return matching
    return [
        replace(upload, extents=(), fault=upload.fault or _unnamed(upload))
        for upload in uploads
        if upload.topic is None and not upload.is_piece
    ]


def _unnamed(upload: Upload) -> SourceError:
    assert upload.data is not None
    return SourceError(
        upload.data.uri,
        expected="the name of a topic in the index or in user metadata",
        found=f"none; the option {OPTION} can say which topic has "
        f"ledger {upload.ledger}",
    )
