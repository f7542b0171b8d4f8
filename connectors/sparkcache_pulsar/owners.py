"""Whose a ledger is.

Objects of the classic format and of the file system offloader say it themselves. Those
of the streaming format do not: a manifest says it, or an object that has one of their
ledgers and says whose it is. Ledger ids are unique in a cluster, and all ledgers of a
segment are of one topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.errors import ConfigError
from sparkcache_pulsar.manifest import OPTION

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkcache_pulsar.uploads import Upload


def find_owners(
    uploads: Sequence[Upload], topic: str, listed: Collection[int]
) -> Mapping[int, str]:
    """Return the topic of each ledger of which it is known.

    `listed` are the ledgers that the manifest of `topic` has. Raises ConfigError if one
    of them is of another topic.
    """
    owners = {upload.ledger: upload.topic for upload in uploads if upload.topic}
    for ledger in listed:
        if (owner := owners.setdefault(ledger, topic)) != topic:
            raise ConfigError(
                f"option {OPTION}: it lists ledger {ledger}, which is of {owner}, not "
                f"of {topic}"
            )
    segments: dict[str, list[int]] = {}
    for upload in uploads:
        if upload.is_piece:
            segments.setdefault(upload.uuid, []).append(upload.ledger)
    while newly := _known_by_a_neighbour(segments, owners):
        owners |= newly
    return owners


def _known_by_a_neighbour(
    segments: Mapping[str, Sequence[int]], owners: Mapping[int, str]
) -> dict[int, str]:
    """Return ledgers that lie in one segment with a ledger whose owner is known."""
    newly: dict[int, str] = {}
    for ledgers in segments.values():
        known = [ledger for ledger in ledgers if ledger in owners]
        if 0 < len(known) < len(ledgers):
            owner = owners[known[0]]
            newly |= {ledger: owner for ledger in ledgers if ledger not in owners}
    return newly


def of_topic(
    uploads: Sequence[Upload], topic: str, owner: str | None
) -> Sequence[Upload]:
    """Return those of a ledger's uploads that are of a topic.

    One that is broken and could be anybody's counts, unless its owner is known.
    """
    mine = [upload for upload in uploads if (upload.topic or owner) == topic]
    if mine or owner is not None:
        return mine
    return [upload for upload in uploads if upload.fault and not upload.is_piece]
