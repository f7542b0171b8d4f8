"""The tally of reads and loads in a simulation."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from sparkcache.simulate.outcome import Outcome

if TYPE_CHECKING:
    from sparkcache.trace import Open, Take, Trace


class Tally:
    """Sums of takes, each counted as a hit or a load.

    A loader reads the runs of one extent with one request, up to the first that is
    held. So a task's loads that follow each other in one extent are one request.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._reads = 0
        self._loads = 0
        self._read_bytes = 0
        self._loaded_bytes = 0
        self._gets = 0
        self._extents: dict[int, list[tuple[int, int]]] = {}  # of tasks: their firsts
        self._loading: dict[int, int] = {}  # by task, if its last take was a load

    def open(self, event: Open) -> None:
        """Note which extents a task reads."""
        self._extents[event.task] = sorted(
            (extent.ledger, extent.first) for extent in event.extents
        )
        self._loading.pop(event.task, None)

    def take(self, take: Take, *, is_held: bool) -> None:
        """Count a take."""
        stored_bytes = self._trace.runs[take.key].stored_bytes
        self._reads += 1
        self._read_bytes += stored_bytes
        if is_held:
            self._loading.pop(take.task, None)
            return
        self._loads += 1
        self._loaded_bytes += stored_bytes
        first = (take.key.ledger.id, take.key.run.first)
        extent = bisect_right(self._extents[take.task], first)
        self._gets += self._loading.get(take.task) != extent
        self._loading[take.task] = extent

    def outcome(self) -> Outcome:
        """Return the sums."""
        return Outcome(
            self._reads, self._loads, self._read_bytes, self._loaded_bytes, self._gets
        )
