"""Reading without a node: the same loads, decoded in the task itself."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sparkcache import connector as connectors
from sparkcache.fetch.checked_load import CheckedLoad
from sparkcache.fetch.load import Load, begin
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from sparkcache.connector import Connector, DecodedRun, Storage
    from sparkcache.fetch.scan import RunSlice, Scan


class DirectReader:
    """Loads runs of a scan for one task and keeps none of them.

    Consecutive runs come from one GET, which stays open between the calls.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self.traffic = Traffic()
        self._storage: Storage | None = None
        self._load: CheckedLoad | None = None
        self._next: tuple[RunSlice, int] | None = None

    def read(self, run_slice: RunSlice, index: int) -> DecodedRun:
        """Load the run at an index of a slice. Raises SourceError."""
        connector = connectors.find(run_slice.ledger.connector)
        if self._load is None or self._next != (run_slice, index):
            self.close()
            self._load = self._begin(connector, run_slice)
        self._next = None  # stays unset if the load fails
        raw = next(raw for raw in self._load if raw.run == run_slice.runs[index])
        decoded = self._load.decode(raw)
        self._next = (run_slice, index + 1)
        return decoded

    def close(self) -> None:
        """Close the open GET, if any."""
        if self._load is not None:
            self._load.close()
        self._load = self._next = None

    def _begin(self, connector: Connector, run_slice: RunSlice) -> CheckedLoad:
        if self._storage is None:
            self._storage = open_storage(
                self._scan.root, self._scan.storage, self.traffic
            )
        extent = run_slice.extent
        load = Load(
            run_slice.ledger,
            extent,
            run_slice.runs,
            extent.offset,
            extent.offset + extent.size_bytes,
        )
        request = partial(begin, self._storage)
        return CheckedLoad(connector, load, request, self._scan.config.batch_bytes)
