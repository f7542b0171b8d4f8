"""A task's side of direct loads: the runs that it loads itself, and its reports."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sparkcache.errors import CacheUnavailable
from sparkcache.node.messages import LoadedDirectly

if TYPE_CHECKING:
    from sparkcache.connector import DecodedRun
    from sparkcache.fetch.direct import DirectReader
    from sparkcache.fetch.scan import Scan
    from sparkcache.node.messages import LoadDirectly

_RUNS_PER_REPORT = 8


class DirectRuns:
    """The runs that the node has assigned a task to load itself.

    Args:
        scan: What the task reads.
        reader: Loads them.

    """

    def __init__(self, scan: Scan, reader: DirectReader) -> None:
        self._scan = scan
        self._reader = reader
        self._assigned: deque[tuple[int, int]] = deque()
        self._current: tuple[int, int] | None = None  # size and offset of the last one
        self._read: list[tuple[int, int]] = []
        self._lost_entries = 0
        self._has_spent = False

    def __repr__(self) -> str:
        return f"DirectRuns({len(self._assigned)} to load, {len(self._read)} to report)"

    def __contains__(self, run_index: tuple[int, int]) -> bool:
        return bool(self._assigned) and self._assigned[0] == run_index

    def begin(self, message: LoadDirectly) -> None:
        """Record what the node tells; raises CacheUnavailable if that is nonsense."""
        if not all(load.is_within(self._scan) for load in message.loads):
            raise CacheUnavailable("the node names runs that this task does not read")
        self._reader.plan(message.loads)
        self._assigned = deque(
            (load.run_slice, index)
            for load in message.loads
            for index in range(load.first, load.stop)
        )

    def take(self) -> DecodedRun:
        """Load the next of the runs. Raises SourceError."""
        self._has_spent = True
        decoded, offset = self._reader.read(*self._assigned.popleft())
        size_bytes = sum(batch.nbytes for batch in decoded.batches)
        self._lost_entries += sum(loss.last - loss.first + 1 for loss in decoded.losses)
        self._current = size_bytes, offset
        return decoded

    def finish_current(self) -> None:
        """Record that the run that `take` returned last is read."""
        if self._current is not None:
            self._read.append(self._current)
            self._current = None

    @property
    def is_report_due(self) -> bool:
        """Whether enough runs are read to tell the node."""
        return len(self._read) >= _RUNS_PER_REPORT

    def report(self) -> LoadedDirectly | None:
        """Return what the node does not know yet; None if it knows all."""
        if not self._has_spent:
            return None
        spent, lost_entries = self._reader.spent(), self._lost_entries
        message = LoadedDirectly(
            tuple(size_bytes for size_bytes, _ in self._read),
            tuple(offset for _, offset in self._read),
            lost_entries,
            spent.gets,
            spent.received_bytes,
            spent.retries,
        )
        self._read.clear()
        self._lost_entries = 0
        self._has_spent = bool(self._assigned or self._current)
        return message
