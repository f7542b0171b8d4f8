"""A task, as the node sees it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.cache import CachedRun
    from sparkcache.demand import PartitionRead
    from sparkcache.fetch.scan import RunSlice, Scan
    from sparkcache.model import Extent, Ledger, RunKey
    from sparkcache.node.messages import Message


class Peer(Protocol):
    """Where messages go. Never blocks, never fails: a peer that is gone is closed."""

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message; the descriptor stays the caller's."""

    def close(self) -> None:
        """Hang up."""


@dataclass(frozen=True, slots=True)
class RunSpan:
    """Consecutive runs of an extent, by their indexes in it; `stop` not included."""

    ledger: Ledger
    extent: Extent
    first: int
    stop: int


@dataclass(eq=False, slots=True)
class ReaderSession:
    """One connection of a task: what it reads, maps and waits for.

    Attributes:
        peer: Its connection.
        scan: What it reads; None until it has said so.
        reading: As what it counts, if there is anything to read.
        cursor: RunSlice and index of the run it asked for last; or what is before the
            first, or after the last one.
        is_in_order: Whether it asked for that run right after the one before it.
        waiting: Whether it waits for that run.
        pins: Runs that it maps, by stretch and index.

    """

    peer: Peer
    scan: Scan | None = None
    partition_read: PartitionRead | None = None
    cursor: tuple[int, int] = (0, -1)
    is_in_order: bool = True
    waiting: bool = False
    pins: dict[tuple[int, int], CachedRun[int]] = field(default_factory=dict)
    _next: int = 0
    _begins: tuple[int, ...] = (0,)
    _stretch_of: dict[tuple[Ledger, Extent], int] = field(default_factory=dict)

    def begin(self, scan: Scan) -> None:
        """Note what it will read."""
        self.scan = scan
        lengths = (run_slice.stop - run_slice.start for run_slice in scan.slices)
        self._begins = (0, *accumulate(lengths))
        self._stretch_of = {
            (run_slice.ledger, run_slice.extent): at
            for at, run_slice in enumerate(scan.slices)
        }

    def ask(self, place: tuple[int, int]) -> None:
        """Note which run it asks for; the next one comes after it."""
        self.cursor = place
        self.is_in_order = self.ordinal(place) == self._next
        self._next = self.ordinal(place) + 1

    def finish(self) -> None:
        """Note that it will ask for nothing more."""
        self.cursor = (len(self.slices), 0)
        self._next = self._begins[-1]

    @property
    def slices(self) -> tuple[RunSlice, ...]:
        """What it reads, in order."""
        return self.scan.slices if self.scan else ()

    def reads(self, place: tuple[int, int]) -> bool:
        """Tell whether a stretch and index lie in what it said it will read."""
        at, index = place
        return (
            0 <= at < len(self.slices)
            and self.slices[at].start <= index < self.slices[at].stop
        )

    def stop(self, place: tuple[int, int]) -> int:
        """Return the index after the last run that a load of that place should reach.

        Of what comes after a jump nothing is known.
        """
        at, index = place
        return self.slices[at].stop if self.is_in_order else index + 1

    def span(self, place: tuple[int, int]) -> RunSpan:
        """Return where a run lies, by stretch and index."""
        run_slice = self.slices[place[0]]
        return RunSpan(run_slice.ledger, run_slice.extent, place[1], place[1] + 1)

    def key(self, place: tuple[int, int]) -> RunKey:
        """Return the key of a run, by stretch and index."""
        return self.slices[place[0]].key(place[1])

    def ordinal(self, place: tuple[int, int]) -> int:
        """Return which of its runs that is, counted from 0."""
        at, index = place
        return self._begins[at] + index - self.slices[at].start

    def wants(self, span: RunSpan) -> bool:
        """Tell whether it waits for any run of a span, or will come to one."""
        at = self._stretch_of.get((span.ledger, span.extent))
        if at is None or at < self.cursor[0]:
            return False
        run_slice = self.slices[at]
        first = run_slice.start
        if at == self.cursor[0]:
            first = max(first, self.cursor[1] + (not self.waiting))
        return max(first, span.first) < min(run_slice.stop, span.stop)

    def coming(self, most: int) -> Iterator[tuple[int, int]]:
        """Yield the places that it comes to next, that many at most."""
        for ordinal in range(self._next, min(self._next + most, self._begins[-1])):
            at = bisect_right(self._begins, ordinal) - 1
            yield at, self.slices[at].start + ordinal - self._begins[at]
