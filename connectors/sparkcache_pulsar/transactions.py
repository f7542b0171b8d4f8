"""How transactions ended, as markers in the topic tell.

A marker comes behind the messages of its transaction, maybe far behind. So what a task
needs of runs that it does not read lies after them.

Source: TopicTransactionBuffer of Apache Pulsar's broker, which delivers nothing from
the first undecided transaction on. Different here: only what is undecided is held back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sparkcache.model import Position
from sparkcache_pulsar import parts
from sparkcache_pulsar.isolation import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.connector import DecodedRun
    from sparkcache.model import Loss, RunKey


class Behind(Protocol):
    """The runs behind one; see `SurroundingRuns.after`."""

    def __call__(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield them in order, up to the topic's end."""


class Transactions:
    """The transactions whose end is known.

    Args:
        behind: Yields the runs behind one.

    """

    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self._committed: dict[str, bool] = {}
        self._losses: list[Loss] = []
        self._ahead: Iterator[tuple[RunKey, DecodedRun]] | None = None
        self._reached = Position(-1, 0)

    def __repr__(self) -> str:
        return f"Transactions({len(self._committed)} ended)"

    def learn(self, key: RunKey, run: DecodedRun) -> None:
        """Note which transactions end in the next run that the task reads."""
        if _end(key) > self._reached:
            self._ahead = None  # it has been overtaken, and would hold what it read
            self._note(key, run)

    def state(self, transaction: str, key: RunKey) -> State:
        """Return how a transaction ended that has a message in the last run learned.

        Looks as far ahead as that is told: to the topic's end, if it is not.
        """
        while transaction not in self._committed:
            if self._ahead is None:
                self._ahead = self._behind(key)
            following = next(self._ahead, None)
            if following is None:
                return State.UNDECIDED
            self._note(*following)
        committed = self._committed[transaction]
        return State.COMMITTED if committed else State.ABORTED

    def lost_behind(self, key: RunKey) -> Loss | None:
        """Return entries behind the beginning of a run that may have told an end."""
        begin = key.ledger.id, key.run.first
        behind = (loss for loss in self._losses if (loss.ledger, loss.last) >= begin)
        return next(behind, None)

    def _note(self, key: RunKey, run: DecodedRun) -> None:
        self._losses += run.losses
        for batch in run.batches:
            if parts.has_columns(batch):
                self._committed.update(parts.outcomes_of(batch))
        self._reached = _end(key)


def _end(key: RunKey) -> Position:
    return Position(key.ledger.id, key.run.last)
