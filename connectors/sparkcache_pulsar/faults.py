"""Collect the entries of a run that cannot be delivered, while it is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparkcache.model import Loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.arrays import Bools, Ints
    from sparkcache.model import Ledger, Run


class DamagedMessageError(Exception):
    """A message assembled from several entries cannot be delivered."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.fault = expected, found


class Faults:
    """The faults of a run's entries; the first fault of an entry counts.

    Entries are counted from the first entry of the run.
    """

    def __init__(self, entries: int) -> None:
        self.sound: Bools = np.ones(entries, np.bool_)
        self._reasons: dict[int, tuple[str, str]] = {}

    def __repr__(self) -> str:
        return f"Faults({len(self._reasons)} of {len(self.sound)} entries)"

    def add(self, entry: int, expected: str, found: str) -> None:
        """Mark an entry as lost."""
        self._reasons.setdefault(entry, (expected, found))
        self.sound[entry] = False

    def add_all(self, entries: Ints, expected: str, found: str) -> None:
        """Mark entries as lost for the same reason."""
        for entry in entries.tolist():
            self.add(entry, expected, found)

    def losses(
        self, ledger: Ledger, run: Run, offsets: Sequence[int]
    ) -> tuple[Loss, ...]:
        """Return the faults as losses; adjacent entries with one reason form one loss.

        `offsets` are the offsets of all entries in the object.
        """
        losses: list[Loss] = []
        for entry in sorted(self._reasons):
            first, reason = run.first + entry, self._reasons[entry]
            offset = offsets[entry]
            if losses and _continues(losses[-1], first, reason):
                first, offset = losses[-1].first, losses.pop().offset
            last = run.first + entry
            location = ledger.object.uri, offset, ledger.id
            losses.append(Loss(*location, first, last, *reason))
        return tuple(losses)


def _continues(loss: Loss, entry: int, reason: tuple[str, str]) -> bool:
    return loss.last + 1 == entry and (loss.expected, loss.found) == reason
