"""Claims that a run is read at some tick: of those that may be evicted next.

Evicting a run costs its bytes and, later, a request to the storage, or none, or even
one less than if it stays: see `NextRead`. The cost of time differs with that, so there
is one heap of claims for each number of requests. The claim that is made last for a run
is the valid one; others stay in the heaps until they come up or are too many.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sparkcache.cache.cached_run import CachedRun

V = TypeVar("V")

_STALE = 4  # heap entries per claim at which the heaps are rebuilt


class Claim(NamedTuple, Generic[V]):
    """A run, the tick at which it is read, and the requests that evicting it costs."""

    run: CachedRun[V]
    tick: float
    requests: int


class Claims(Generic[V]):
    """The valid claim of each run that has one."""

    def __init__(self) -> None:
        self._valid: dict[CachedRun[V], tuple[int, int]] = {}  # requests, number
        self._heaps: dict[int, list[tuple[float, int, CachedRun[V]]]] = {}  # -tick
        self._entries = 0
        self._serial = 0
        self._first_of_decision = 0

    def __len__(self) -> int:
        return len(self._valid)

    def __repr__(self) -> str:
        return f"Claims(of {len(self)} runs)"

    def begin_decision(self) -> None:
        """Note that all claims so far are those of earlier decisions."""
        self._serial += 1
        self._first_of_decision = self._serial

    def is_made(self, run: CachedRun[V], requests: int) -> bool:
        """Return whether this decision has made such a claim for a run."""
        its_requests, number = self._valid.get(run, (0, 0))
        return number >= self._first_of_decision and its_requests == requests

    def make(self, claim: Claim[V]) -> None:
        """Make a claim, in the place of the run's claim so far."""
        self._serial += 1
        self._valid[claim.run] = (claim.requests, self._serial)
        heap = self._heaps.setdefault(claim.requests, [])
        heappush(heap, (-claim.tick, self._serial, claim.run))
        self._entries += 1
        self._compact()

    def drop(self, run: CachedRun[V]) -> None:
        """Drop the claim of a run, if it has one."""
        if self._valid.pop(run, None) is not None:
            self._compact()

    def latest(self) -> Iterator[Claim[V]]:
        """Yield the claim of the latest tick for each number of requests."""
        for requests, heap in self._heaps.items():
            while heap and not self._is_valid(requests, heap[0]):
                heappop(heap)
                self._entries -= 1
            if heap:
                negative_tick, _, run = heap[0]
                yield Claim(run, -negative_tick, requests)

    def check(self, runs: Collection[CachedRun[V]]) -> None:
        """Assert the invariants, where only these runs may have claims. For tests."""
        assert all(run in runs for run in self._valid)
        assert self._entries == sum(map(len, self._heaps.values()))
        assert self._entries <= _STALE * max(len(self), _STALE)
        for run, (requests, number) in self._valid.items():
            entries = self._heaps[requests]
            assert [(number, run)] == [(n, of) for _, n, of in entries if n == number]

    def _is_valid(self, requests: int, entry: tuple[float, int, CachedRun[V]]) -> bool:
        _, number, run = entry
        return self._valid.get(run) == (requests, number)

    def _compact(self) -> None:
        if self._entries <= _STALE * max(len(self), _STALE):
            return
        for requests, heap in self._heaps.items():
            heap[:] = [entry for entry in heap if self._is_valid(requests, entry)]
            heapify(heap)
        self._entries = sum(map(len, self._heaps.values()))
