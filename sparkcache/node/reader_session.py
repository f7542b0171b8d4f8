"""The node's view of one connection of a task."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from sparkcache.homes import Place
from sparkcache.node.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.cache import CachedRun
    from sparkcache.demand import PartitionRead
    from sparkcache.fetch.scan import RunSlice, Scan
    from sparkcache.filters import Filter, RunStatistics
    from sparkcache.model import Extent, Ledger, RunKey
    from sparkcache.node.messages import Message, RunAt


_LEDGERS_SHARED = 10_000
_KEYS_REMEMBERED = 100  # of the runs that are asked for, and of those after them


class Peer(Protocol):
    """The other end of a connection; sending never blocks and never fails."""

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message; the caller keeps the descriptor."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True)
class RunSpan:
    """Consecutive runs of an extent, by their indexes; `stop` is not included."""

    ledger: Ledger
    extent: Extent
    first: int
    stop: int


@dataclass(slots=True)
class HeldAhead:
    """The next runs of a session, as far as all were held at the last look-up.

    Attributes:
        size_bytes: Size of these runs together.

    """

    size_bytes: int = 0
    _first: int = 0
    _removals: int = 0
    _sizes: deque[int] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._sizes)

    def move(self, first: int, removals: int) -> None:
        """Go on to the run with the ordinal `first`, which never decreases.

        Nothing is known any longer if a run was removed: `removals` counts these.
        """
        if removals != self._removals:
            self._sizes.clear()
            self.size_bytes = 0
        for _ in range(min(first - self._first, len(self._sizes))):
            self.size_bytes -= self._sizes.popleft()
        self._first, self._removals = first, removals

    def append(self, size_bytes: int) -> None:
        """Add the run after them, which is held."""
        self._sizes.append(size_bytes)
        self.size_bytes += size_bytes


@dataclass(eq=False, slots=True)
class ReaderSession:
    """One connection of a task: what it reads, maps and waits for.

    A run is named by its index: the index of its slice, and its index in that slice's
    runs.

    Attributes:
        peer: The connection to the task.
        scan: What the task reads; None before its first message.
        slices: The slices it reads, in order.
        partition_read: The accounting of what it reads, if it reads anything.
        cursor: Index of the run it asked for last; before the first run, or after the
            last one, if it has asked for none or is done.
        is_in_order: Whether it asked for that run right after the previous one.
        waiting: Whether it waits for that run.
        pins: Runs that it maps, by index.
        held_ahead: What is known of its next runs.
        filters: The filters of its query.
        rows_only: Whether it wants to know no more than how many rows there are.
        place: Whether this executor is the home of its runs. For a task that reads
            away from their home no run is kept.
        outcome: How the run was found that it asked for last.
        unmapped: What is reported of runs that it need not map, by index.

    """

    peer: Peer
    scan: Scan | None = None
    slices: tuple[RunSlice, ...] = ()
    partition_read: PartitionRead | None = None
    cursor: tuple[int, int] = (0, -1)
    is_in_order: bool = True
    waiting: bool = False
    pins: dict[tuple[int, int], CachedRun[int]] = field(default_factory=dict)
    held_ahead: HeldAhead = field(default_factory=HeldAhead)
    filters: tuple[Filter, ...] = ()
    rows_only: bool = False
    place: Place = Place.ANYWHERE
    unmapped: dict[tuple[int, int], RunAt] = field(default_factory=dict)
    outcome: Outcome = Outcome.HIT
    _next: int = 0
    _first_ordinals: tuple[int, ...] = (0,)
    _keys: dict[tuple[int, int], RunKey] = field(default_factory=dict)
    _slice_of: dict[tuple[Ledger, Extent], int] = field(default_factory=dict)

    @property
    def is_selective(self) -> bool:
        """Whether the statistics of a run may tell it enough."""
        return self.rows_only or bool(self.filters)

    def maps(self, statistics: RunStatistics | None) -> bool:
        """Return whether it needs more of a run than its statistics."""
        return statistics is None or (
            not self.rows_only and statistics.may_match(self.filters)
        )

    def begin(self, scan: Scan) -> None:
        """Set what the session will read."""
        self.slices = tuple(map(_with_shared_ledger, scan.slices))
        self.scan = replace(scan, slices=self.slices)
        lengths = (run_slice.stop - run_slice.start for run_slice in self.slices)
        self._first_ordinals = (0, *accumulate(lengths))
        self._slice_of = {
            (run_slice.ledger, run_slice.extent): slice_index
            for slice_index, run_slice in enumerate(self.slices)
        }

    def ask(self, run_index: tuple[int, int]) -> None:
        """Record the run it asks for."""
        self.cursor = run_index
        ordinal = self.ordinal(run_index)
        self.is_in_order = ordinal == self._next
        self._next = ordinal + 1

    def finish(self) -> None:
        """Record that it will not ask for any more runs."""
        self.cursor = (len(self.slices), 0)
        self._next = self._first_ordinals[-1]

    def reads(self, run_index: tuple[int, int]) -> bool:
        """Return whether a run is among those that the session will read."""
        slice_index, index = run_index
        if not 0 <= slice_index < len(self.slices):
            return False
        run_slice = self.slices[slice_index]
        return run_slice.start <= index < run_slice.stop

    def stop(self, run_index: tuple[int, int]) -> int:
        """Return the index at which a load that includes a run should stop.

        After a jump only the run itself is loaded, as the next ones are not known.
        """
        slice_index, index = run_index
        return self.slices[slice_index].stop if self.is_in_order else index + 1

    def span(self, run_index: tuple[int, int]) -> RunSpan:
        """Return the span of a run."""
        run_slice = self.slices[run_index[0]]
        return RunSpan(
            run_slice.ledger, run_slice.extent, run_index[1], run_index[1] + 1
        )

    def key(self, run_index: tuple[int, int]) -> RunKey:
        """Return the key of a run."""
        key = self._keys.get(run_index)
        if key is None:
            if len(self._keys) == _KEYS_REMEMBERED:
                self._keys.clear()
            key = self._keys[run_index] = self.slices[run_index[0]].key(run_index[1])
        return key

    def ordinal(self, run_index: tuple[int, int]) -> int:
        """Return the number of a run among the session's runs, from 0."""
        slice_index, index = run_index
        first = self.slices[slice_index].start
        return self._first_ordinals[slice_index] + index - first

    def wants(self, span: RunSpan) -> bool:
        """Return whether it waits for any run of a span, or will come to one."""
        slice_index = self._slice_of.get((span.ledger, span.extent))
        if slice_index is None or slice_index < self.cursor[0]:
            return False
        run_slice = self.slices[slice_index]
        first = run_slice.start
        if slice_index == self.cursor[0]:
            first = max(first, self.cursor[1] + (not self.waiting))
        return max(first, span.first) < min(run_slice.stop, span.stop)

    @property
    def next_ordinal(self) -> int:
        """The number of its next run among its runs."""
        return self._next

    def upcoming(self, limit: int, *, skip: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the indexes of its next `limit` runs, without the first `skip`."""
        for ordinal in range(
            self._next + skip, min(self._next + limit, self._first_ordinals[-1])
        ):
            slice_index = bisect_right(self._first_ordinals, ordinal) - 1
            yield (
                slice_index,
                self.slices[slice_index].start
                + ordinal
                - self._first_ordinals[slice_index],
            )


def _with_shared_ledger(run_slice: RunSlice) -> RunSlice:
    shared = _shared(run_slice.ledger)
    return (
        run_slice if shared is run_slice.ledger else replace(run_slice, ledger=shared)
    )


@lru_cache(_LEDGERS_SHARED)
def _shared(ledger: Ledger) -> Ledger:
    """Return one of the equals of a ledger, always the same.

    Every task brings its own. Keys are compared with each look-up, and to compare a
    ledger with itself costs nothing.
    """
    return ledger
