"""What a stream has still to read; its files are looked up as they are asked for.

The log tells at once which files there are, and the marks between them. What is in a
file its footer tells, which costs a request: so no more are read than batches take, but
for some that are read at once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from sparkcache.connector import Change
from sparkcache_delta.discovery import least_id
from sparkcache_delta.footers import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkcache.connector import LedgerMap
    from sparkcache_delta.marks import TableMark
    from sparkcache_delta.table import DataFile

_MOST_AT_ONCE = 16 * AT_ONCE


class Step(NamedTuple):
    """What a stream reads as a whole.

    Attributes:
        after: Where it is then.
        version: The version that it is of.
        file: A file; None if the version has none to read.

    """

    after: TableMark
    version: int
    file: DataFile | None = None


class Lookups:
    """The changes that steps are; see `sparkcache.connector.Changes`.

    Args:
        begin: Where a stream is before them.
        steps: The steps.
        look: Returns the ledgers of files with anything to read, by where they lie.

    """

    def __init__(
        self,
        begin: TableMark,
        steps: Iterable[Step],
        look: Callable[[Sequence[Step]], Mapping[str, LedgerMap]],
    ) -> None:
        self._left = deque(steps)
        self._found: deque[Change] = deque()
        self._look = look
        self._at_once = AT_ONCE
        self.until = (self._left[-1].after if self._left else begin).written()

    def __repr__(self) -> str:
        return f"Lookups({len(self._found)} found, {len(self._left)} left)"

    def __iter__(self) -> Lookups:
        return self

    def __next__(self) -> Change:
        """Return the next change. Raises SourceError; asked again, tries again."""
        if self._left and not self._found:
            self._find()
        if not self._found:
            raise StopIteration
        return self._found.popleft()

    def least_id(self) -> int | None:
        """Return an id that no ledger is before that is left; None if none are."""
        found = [of.ledger.ledger.id for of in self._found if of.ledger is not None]
        left = [least_id(step.file) for step in self._left if step.file is not None]
        return min(found + left, default=None)

    def _find(self) -> None:
        """Look up the next files, each time twice as many: waiting for few is short."""
        steps = self._next()
        maps = self._look(steps)
        for step in steps:
            ledger = None if step.file is None else maps.get(step.file.uri)
            self._found.append(Change(step.after.written(), ledger))
            self._left.popleft()
        self._at_once = min(2 * self._at_once, _MOST_AT_ONCE)

    def _next(self) -> list[Step]:
        """Return the next steps, up to a file that was removed and added again."""
        steps: list[Step] = []
        uris: set[str] = set()
        for step in self._left:
            uri = None if step.file is None else step.file.uri
            if len(steps) == self._at_once or uri in uris:
                break
            steps.append(step)
            uris.update([] if uri is None else [uri])
        return steps
