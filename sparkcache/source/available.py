"""What there is of a stream's topics, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.errors import ConfigError
from sparkcache.source.stream_offsets import Span, between, spans

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkcache.connector import Catalog, Snapshot, Storage
    from sparkcache.source.options import ScanOptions
    from sparkcache.source.stream_offsets import Marks


@dataclass(frozen=True)
class Available:
    """The topics by name.

    Attributes:
        snapshots: What each has.

    """

    snapshots: Mapping[str, Snapshot]

    def __repr__(self) -> str:
        return f"Available({', '.join(self.snapshots) or 'nothing'})"

    @classmethod
    def find(
        cls, scan: ScanOptions, storage: Storage, known: Collection[str]
    ) -> Available:
        """Look at the storage; what is known may be trimmed altogether.

        Raises ConfigError if there is nothing of the scan and nothing is known of it,
        SourceError if what is stored is not what its index says.
        """
        catalog = connectors.find(scan.connector).catalog(storage, scan.given)
        names = dict.fromkeys([*_select(scan, catalog, known), *known])
        return cls({name: catalog.snapshot(name) for name in names})

    @cached_property
    def spans(self) -> Mapping[str, list[Span]]:
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
    try:
        return list(catalog.select(scan.selection))
    except ConfigError:
        if not known:
            raise
        return []
