"""The stored ledgers of a stream's topics, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.connector import Selection, Snapshot
from sparkcache.errors import NoSuchTopicError
from sparkcache.source.streaming.stream_offsets import EntrySpan, between, spans

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkcache.connector import Catalog, Storage
    from sparkcache.source.options import ScanOptions
    from sparkcache.source.streaming.stream_offsets import Marks


@dataclass(frozen=True)
class SnapshotView:
    """Snapshots of the topics of a stream.

    Attributes:
        snapshots: The snapshot of each topic, by its name.

    """

    snapshots: Mapping[str, Snapshot]

    def __repr__(self) -> str:
        return f"SnapshotView({', '.join(self.snapshots) or 'nothing'})"

    @classmethod
    def find(
        cls, scan: ScanOptions, storage: Storage, known: Collection[str]
    ) -> SnapshotView:
        """List the storage; a known topic may have no ledgers left.

        Raises ConfigError if a name of the scan has no topic, stored or known;
        SourceError if stored data differ from their index.
        """
        catalog = connectors.find(scan.connector).catalog(storage, scan.raw)
        names = dict.fromkeys([*_select(scan, catalog, known), *known])
        return cls({name: _snapshot(catalog, name, known) for name in names})

    @cached_property
    def spans(self) -> Mapping[str, list[EntrySpan]]:
        """The stored entries of each topic."""
        return {
            name: spans(snapshot.ledgers) for name, snapshot in self.snapshots.items()
        }

    def has(self, start: Mapping[str, Marks], end: Mapping[str, Marks]) -> bool:
        """Return whether the ledgers have all that a batch reads, up to its end."""
        return all(
            any(
                stored.ledger == span.ledger and span.stop <= stored.stop
                for stored in topic_spans
            )
            for topic, marks in end.items()
            for topic_spans in [self.spans.get(topic, [])]
            for span in between(start.get(topic, {}), marks)
        )


def _select(scan: ScanOptions, catalog: Catalog, known: Collection[str]) -> list[str]:
    """Return the stored topics; others may match a pattern later."""
    try:
        return list(catalog.select(scan.selection))
    except NoSuchTopicError:
        topics: list[str] = []
        for name in scan.selection.names:
            topics += _named(scan, catalog, name, known)
        return topics


def _named(
    scan: ScanOptions, catalog: Catalog, name: str, known: Collection[str]
) -> Sequence[str]:
    try:
        return catalog.select(Selection((name,)))
    except NoSuchTopicError:
        connector = connectors.find(scan.connector)
        if not any(connector.matches(topic, name) for topic in known):
            raise
        return ()


def _snapshot(catalog: Catalog, name: str, known: Collection[str]) -> Snapshot:
    try:
        return catalog.snapshot(name)
    except NoSuchTopicError:
        if name not in known:
            raise
        return Snapshot(())
