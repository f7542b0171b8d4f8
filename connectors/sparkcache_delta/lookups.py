"""Changes that a stream still has to read; files are looked up when they are needed.

The log lists all files and the marks between them at once. The content of a file is
described by its footer, which costs a request. So footers are read only as batches
need them, except that several are always read concurrently.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from sparkcache.connector import Change, Changes
from sparkcache_delta.discovery import least_id
from sparkcache_delta.footers import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkcache.connector import LedgerMap, Mark
    from sparkcache.model import ObjectId
    from sparkcache_delta.marks import TableMark
    from sparkcache_delta.table import DataFile

    Identities: TypeAlias = Mapping[str, ObjectId]

_MOST_AT_ONCE = 16 * AT_ONCE


class Step(NamedTuple):
    """The smallest part of a version that a stream reads as a whole.

    Attributes:
        after: The mark after this step.
        version: The version it belongs to.
        file: The file to read; None if the version has no file to read.

    """

    after: TableMark
    version: int
    file: DataFile | None = None


class Lookups(Changes):
    """The changes of a sequence of steps; see `sparkcache.connector.Changes`.

    Args:
        begin: The mark before the first step.
        steps: The steps.
        identify: Returns the identities of files that need no footer, by their URIs.
        look_up: Returns the ledgers of files with anything to read, by their URIs;
            is passed these identities.

    """

    def __init__(
        self,
        begin: TableMark,
        steps: Iterable[Step],
        identify: Callable[[Sequence[DataFile]], Identities],
        look_up: Callable[[Sequence[Step], Identities], Mapping[str, LedgerMap]],
    ) -> None:
        self._steps = deque(steps)
        self._changes: deque[Change] = deque()
        self._identify = identify
        self._identities: Identities | None = None
        self._look_up = look_up
        self._at_once = AT_ONCE
        self._until = (self._steps[-1].after if self._steps else begin).to_json()

    def __repr__(self) -> str:
        return f"Lookups({len(self._changes)} found, {len(self._steps)} to look up)"

    @property
    def until(self) -> Mark:
        """The mark after all of these changes."""
        return self._until

    def __next__(self) -> Change:
        """Return the next change. Raises SourceError; the next call tries again."""
        if self._steps and not self._changes:
            self._look_up_next()
        if not self._changes:
            raise StopIteration
        return self._changes.popleft()

    def least_id(self) -> int | None:
        """Return a lower bound of the ids of remaining ledgers; None if none remain."""
        found = [
            change.ledger.ledger.id
            for change in self._changes
            if change.ledger is not None
        ]
        pending = [least_id(step.file) for step in self._steps if step.file is not None]
        return min(found + pending, default=None)

    def _look_up_next(self) -> None:
        """Look up the next files, twice as many each time: the first wait is short.

        Once many were looked up, all others are identified together: listings are for
        names side by side, and the steps are in another order.
        """
        if self._identities is None and self._at_once == _MOST_AT_ONCE:
            files = [step.file for step in self._steps if step.file is not None]
            self._identities = self._identify(files)
        steps = self._next_steps()
        maps = self._look_up(steps, self._identities or {})
        for step in steps:
            ledger = None if step.file is None else maps.get(step.file.uri)
            self._changes.append(Change(step.after.to_json(), ledger))
            self._steps.popleft()
        self._at_once = min(2 * self._at_once, _MOST_AT_ONCE)

    def _next_steps(self) -> list[Step]:
        """Return the next steps, up to a file that was removed and added again."""
        steps: list[Step] = []
        uris: set[str] = set()
        for step in self._steps:
            uri = None if step.file is None else step.file.uri
            if len(steps) == self._at_once or uri in uris:
                break
            steps.append(step)
            uris.update([] if uri is None else [uri])
        return steps
