"""Reading without a node: the same loads, decoded in the task itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.fetch.load import Load, begin, fetch
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from collections.abc import Generator

    from sparkcache.connector import Connector, DecodedRun, RawRun, Storage
    from sparkcache.fetch.stretch import Scan, Stretch


class DirectReader:
    """Loads runs of a scan for the task that wants them, and keeps none.

    Runs that follow one another come from one GET, which stays open in between.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self.traffic = Traffic()
        self._storage: Storage | None = None
        self._open: Generator[RawRun] | None = None
        self._next: tuple[Stretch, int] | None = None

    def read(self, stretch: Stretch, index: int) -> DecodedRun:
        """Load the run of that index. Raises SourceError."""
        connector = connectors.find(stretch.ledger.connector)
        if self._open is None or self._next != (stretch, index):
            self.close()
            self._open = self._begin(connector, stretch)
        self._next = None  # unless this one comes
        raw = next(raw for raw in self._open if raw.run == stretch.runs[index])
        self._next = (stretch, index + 1)
        return connector.decode(stretch.ledger, raw, self._scan.config.batch_bytes)

    def close(self) -> None:
        """Give up the GET that may be open."""
        if self._open is not None:
            self._open.close()
        self._open = self._next = None

    def _begin(self, connector: Connector, stretch: Stretch) -> Generator[RawRun]:
        if self._storage is None:
            self._storage = open_storage(
                self._scan.root, self._scan.config, self.traffic
            )
        extent = stretch.extent
        whole = Load(
            stretch.ledger,
            extent,
            stretch.runs,
            extent.offset,
            extent.offset + extent.size_bytes,
        )
        return fetch(connector, whole, begin(self._storage, whole))
