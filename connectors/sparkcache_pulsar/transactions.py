"""Find how transactions ended, from the markers in the topic.

A marker follows the messages of its transaction, maybe much later. So a task may need
markers from runs after those that it reads.

Source: TopicTransactionBuffer of Apache Pulsar's broker, which delivers nothing from
the first undecided transaction on. Different here: only the messages of undecided
transactions are left out.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Protocol

from sparkcache.model import Position
from sparkcache_pulsar import parts
from sparkcache_pulsar.isolation import State
from sparkcache_pulsar.uploads import NO_LEDGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkcache.connector import DecodedRun
    from sparkcache.model import Loss, RunKey


class RunsAfter(Protocol):
    """The runs after a run; see `SurroundingRuns`."""

    def __call__(self, key: RunKey) -> Iterator[tuple[RunKey, DecodedRun]]:
        """Yield the runs after `key` in order, up to the topic's end."""


class Transactions:
    """The transactions whose end is known.

    Args:
        runs_after: Yields the runs after a run.
        missing: Returns the losses of entries that are in no run.

    """

    def __init__(
        self, runs_after: RunsAfter, missing: Callable[[], Iterable[Loss]]
    ) -> None:
        self._runs_after = runs_after
        self._missing = missing
        self._committed: dict[str, bool] = {}
        self._losses: list[Loss] = []
        self._ahead: Iterator[tuple[RunKey, DecodedRun]] | None = None
        self._reached = Position(-1, 0)

    def __repr__(self) -> str:
        return f"Transactions({len(self._committed)} ended)"

    def learn(self, key: RunKey, run: DecodedRun) -> None:
        """Record which transactions end in the next run that the task reads."""
        if _end(key) > self._reached:
            self._ahead = None  # the task has overtaken it; frees the run it holds
            self._record(key, run)

    def state(self, transaction: str, key: RunKey) -> State:
        """Return how a transaction of a message in the last learned run ended.

        Reads ahead up to the marker of its end, or to the topic's end.
        """
        while transaction not in self._committed:
            if self._ahead is None:
                self._ahead = self._runs_after(key)
            following = next(self._ahead, None)
            if following is None:
                return State.UNDECIDED
            self._record(*following)
        committed = self._committed[transaction]
        return State.COMMITTED if committed else State.ABORTED

    def loss_after(self, key: RunKey) -> Loss | None:
        """Return a loss after the start of a run, which may include missing markers.

        The ledger of a loss may be unknown.
        """
        begin = key.ledger.id, key.run.first
        for loss in chain(self._losses, self._missing()):
            if loss.ledger == NO_LEDGER or (loss.ledger, loss.last) >= begin:
                return loss
        return None

    def _record(self, key: RunKey, run: DecodedRun) -> None:
        self._losses += run.losses
        for batch in run.batches:
            if parts.has_columns(batch):
                self._committed.update(parts.outcomes_of(batch))
        self._reached = _end(key)


def _end(key: RunKey) -> Position:
    return Position(key.ledger.id, key.run.last)
