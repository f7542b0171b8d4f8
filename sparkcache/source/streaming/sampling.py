"""Sampling of rows per entry, from the first run of an extent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachetools import LRUCache

from sparkcache import connector as connectors
from sparkcache.errors import SourceError
from sparkcache.fetch.load import Load, begin, fetch

if TYPE_CHECKING:
    from sparkcache.connector import Storage
    from sparkcache.model import Extent, Ledger

_RUN_BYTES = 1024
_BATCH_BYTES = 1 << 20


class RowSamples:
    """Sampler with an LRU cache, so that it reads most extents only once.

    It does not report a loss; the reader of the entry does.
    """

    def __init__(self, storage: Storage, max_extents: int = 10_000) -> None:
        self._storage = storage
        self._known: LRUCache[tuple[Ledger, Extent], float] = LRUCache(max_extents)

    def __repr__(self) -> str:
        return f"RowSamples({len(self._known)} extents)"

    def rows(self, ledger: Ledger, extent: Extent) -> float:
        """Return the number of rows in an entry, at least one."""
        known = self._known.get((ledger, extent))
        if known is None:
            try:
                known = self._known[ledger, extent] = self._sample(ledger, extent)
            except SourceError:
                return 1.0
        return known

    def _sample(self, ledger: Ledger, extent: Extent) -> float:
        connector = connectors.find(ledger.connector)
        runs = tuple(connector.runs(extent, _RUN_BYTES))[:1]
        end = extent.offset + extent.size_bytes
        load = Load(ledger, extent, runs, extent.offset, end)
        raws = fetch(connector, load, begin(self._storage, load))
        try:
            decoded = connector.decode(ledger, next(raws), _BATCH_BYTES)
        finally:
            raws.close()
        rows: int = sum(batch.num_rows for batch in decoded.batches)
        entries = runs[0].last - runs[0].first + 1
        return max(float(rows) / entries, 1.0)
