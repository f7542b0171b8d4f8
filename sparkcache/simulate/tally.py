"""The tally of reads and loads in a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.simulate.outcome import Outcome

if TYPE_CHECKING:
    from sparkcache.model import Ledger
    from sparkcache.trace import Take, Trace


class Tally:
    """Sums of takes, each counted as a hit or a load."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._reads = 0
        self._loads = 0
        self._read_bytes = 0
        self._loaded_bytes = 0
        self._gets = 0
        self._loading: dict[int, Ledger] = {}  # by task, if its last take was a load

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
        self._gets += self._loading.get(take.task) != take.key.ledger
        self._loading[take.task] = take.key.ledger

    def outcome(self) -> Outcome:
        """Return the sums."""
        return Outcome(
            self._reads, self._loads, self._read_bytes, self._loaded_bytes, self._gets
        )
