"""What there is of a stream's topics, at one moment."""

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
    """The topics by name.

    Attributes:
        snapshots: What each has.

    """

    snapshots: Mapping[str, Snapshot]

    def __repr__(self) -> str:
        return f"SnapshotView({', '.join(self.snapshots) or 'nothing'})"

    @classmethod
    def find(
        cls, scan: ScanOptions, storage: Storage, known: Collection[str]
    ) -> SnapshotView:
        """Look at the storage; what is known may be trimmed altogether.

        Raises ConfigError if there is nothing of a name of the scan, and nothing is
        known of it; SourceError if what is stored is not what its index says.
        """
        catalog = connectors.find(scan.connector).catalog(storage, scan.raw)
        names = dict.fromkeys([*_select(scan, catalog, known), *known])
        return cls({name: _snapshot(catalog, name, known) for name in names})

    @cached_property
    def spans(self) -> Mapping[str, list[EntrySpan]]:
        """The entries of each topic."""
        return {name: spans(of.ledgers) for name, of in self.snapshots.items()}

    def has(self, start: Mapping[str, Marks], end: Mapping[str, Marks]) -> bool:
        """Tell whether all is there that a batch reads, as far as ledgers tell."""
        return all(
            any(of.ledger == span.ledger and span.stop <= of.stop for of in there)
            for topic, marks in end.items()
            for there in [self.spans.get(topic, [])]
            for span in between(start.get(topic, {}), marks)
        )


def _select(scan: ScanOptions, catalog: Catalog, known: Collection[str]) -> list[str]:
    """Return the topics that there are; topics may come to match a pattern later."""
    try:
        return list(catalog.select(scan.selection))
    except NoSuchTopicError:
        found: list[str] = []
        for name in scan.selection.names:
            found += _named(scan, catalog, name, known)
        return found


def _named(
    scan: ScanOptions, catalog: Catalog, name: str, known: Collection[str]
) -> Sequence[str]:
    try:
        return catalog.select(Selection((name,)))
    except NoSuchTopicError:
        is_of = connectors.find(scan.connector).matches
        if not any(is_of(topic, name) for topic in known):
            raise
        return ()


def _snapshot(catalog: Catalog, name: str, known: Collection[str]) -> Snapshot:
    try:
        return catalog.snapshot(name)
    except NoSuchTopicError:
        if name not in known:
            raise
        return Snapshot(())
