"""Which loads are made, by which loader, and what becomes of what they decode.

Each run is loaded once at a time, however many tasks wait for it: it belongs to one
flight, from the moment the flight is laid out until the run is delivered or given up.

A loader asks before it puts a run into shared memory, so the byte limit holds for
what exists, not for what was noticed afterwards. The answer:

    Grant     there is room, or room was made by evicting
    Deny      there is none: who waits for this run gets it through a pipe
    Cancel    nobody wants it, nor anything that follows
    later     it is far enough ahead of all its readers

A load that fails, or whose loader dies, is made once more for those who still wait.
The second time, its error is theirs.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol

from cachetools import LRUCache

from sparkcache.node.flight import Flight, lay_out
from sparkcache.node.messages import (
    Cancel,
    Decoded,
    Deny,
    Ended,
    Failed,
    Grant,
    Passed,
    Refused,
    Start,
    Streamed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.model import Extent, Ledger, RunKey
    from sparkcache.node.task import Peer, Task

_EXTENTS_REMEMBERED = 10_000

_log = logging.getLogger(__name__)


class Room(Protocol):
    """What loads need of the cache."""

    def is_held(self, key: RunKey) -> bool:
        """Tell whether a run is there to be served."""

    def reserve(self, size_bytes: int) -> bool:
        """Make room for a run; False if there can be none."""

    def unreserve(self, size_bytes: int) -> None:
        """Give back what was reserved."""

    def ahead_bytes(self) -> int:
        """Return how far a task may be read ahead of."""


class Loads:
    """The loads under way and those that wait for a loader."""

    def __init__(self, room: Room, count: Counter[str]) -> None:
        self._room = room
        self._count = count
        self._idle: list[Peer] = []
        self._busy: dict[Peer, Flight] = {}
        self._queue: deque[Flight] = deque()
        self._by_key: dict[RunKey, tuple[Flight, int]] = {}
        self._offsets: LRUCache[tuple[Ledger, Extent], dict[int, int]] = LRUCache(
            _EXTENTS_REMEMBERED
        )

    def __repr__(self) -> str:
        return (
            f"Loads({len(self._busy)} under way, {len(self._queue)} queued, "
            f"{len(self._idle)} loaders idle)"
        )

    def __contains__(self, key: RunKey) -> bool:
        return key in self._by_key

    @property
    def granted_bytes(self) -> int:
        """Bytes reserved for runs that are being written."""
        return sum(flight.granted_bytes for flight in self._busy.values())

    # What tasks want

    def wait(self, task: Task, place: tuple[int, int], attempt: int = 0) -> None:
        """Have a task wait for a run that is not held, loading it if nobody does."""
        key = task.key(place)
        if key not in self._by_key:
            self.begin(task, place, attempt)
        flight, index = self._by_key[key]
        flight.tasks.add(task)
        flight.waiters.setdefault(index, []).append(task)
        task.waiting = True

    def begin(self, task: Task, place: tuple[int, int], attempt: int = 0) -> None:
        """Line up a load of a run that is not here, and of what follows it."""
        assert task.scan is not None
        stretch = task.stretches[place[0]]
        flight = lay_out(
            task.scan,
            stretch,
            place[1],
            is_here=lambda key: key in self._by_key or self._room.is_held(key),
            offsets=self._offsets.get((stretch.ledger, stretch.extent), {}),
        )
        flight.attempt = attempt
        flight.tasks.add(task)
        for index, key in flight.rest():
            self._by_key[key] = (flight, index)
        self._queue.append(flight)

    def is_made_for(self, task: Task) -> bool:
        """Tell whether a load under way, or queued, is made for a task."""
        return any(task in flight.tasks for flight in self._flights())

    def leave(self, task: Task) -> None:
        """A task is gone; loads made for it alone are given up."""
        for flight in self._flights():
            flight.tasks.discard(task)
            for waiters in flight.waiters.values():
                if task in waiters:
                    waiters.remove(task)

    def proceed(self) -> None:
        """Decide again what could not be decided, and give loaders work."""
        for peer, flight in list(self._busy.items()):
            if flight.pending is not None:
                self._decide(peer, flight, flight.pending)
        while self._queue and self._idle:
            flight = self._queue.popleft()
            if not flight.tasks:
                self._forget(flight)
                continue
            peer = self._idle.pop()
            self._busy[peer] = flight
            self._count["loads"] += 1
            scan = flight.scan
            peer.send(Start(scan.root, scan.config, flight.load, flight.skip))
        if self._queue:
            # Otherwise every loader might wait for a reader who waits for a loader.
            for peer, flight in self._busy.items():
                if flight.pending is not None:
                    self._cancel(peer, flight)
                    break

    # What loaders say

    def loader_ready(self, peer: Peer) -> None:
        """A loader has begun and waits for work."""
        self._idle.append(peer)

    def decoded(self, peer: Peer, message: Decoded) -> None:
        """A loader asks whether it may put a run into shared memory."""
        flight = self._busy[peer]
        self._learn(flight, message.index, message.offset)
        flight.next = message.index
        self._decide(peer, flight, message)

    def passed(self, peer: Peer, message: Passed) -> None:
        """A loader passed over a run."""
        flight = self._busy[peer]
        self._learn(flight, message.index, message.offset)
        flight.next = message.index + 1

    def loaded(self, peer: Peer, index: int) -> tuple[RunKey, int, list[Task]]:
        """A loader hands over a run; return its key, size, and who waits for it."""
        flight = self._busy[peer]
        size_bytes, flight.granted_bytes = flight.granted_bytes, 0
        flight.next = index + 1
        key = flight.key(index)
        del self._by_key[key]
        return key, size_bytes, self._dismiss(flight, index)

    def streamed(self, peer: Peer, fd: int) -> None:
        """A loader hands over the end of a pipe that a denied run comes through."""
        flight = self._busy[peer]
        if flight.streams:
            self._count["streamed"] += 1
            flight.streams.pop(0).peer.send(Streamed(), fd)

    def ended(self, peer: Peer, message: Ended) -> None:
        """A loader is through with its load."""
        self._count["gets"] += message.gets
        self._count["received_bytes"] += message.received_bytes
        self._count["retries"] += message.retries
        flight = self._busy.pop(peer)
        self._idle.append(peer)
        self._fail(flight, Refused("the load ended before this run"))

    def failed(self, peer: Peer, message: Failed) -> None:
        """The storage failed a loader; `ended` follows."""
        flight = self._busy[peer]
        _log.warning("load failed, attempt %d: %s", flight.attempt + 1, message.error())
        self._count["failures"] += 1
        self._fail(flight, message)

    def loader_gone(self, peer: Peer) -> None:
        """A loader died."""
        if peer in self._idle:
            self._idle.remove(peer)
        flight = self._busy.pop(peer, None)
        if flight is not None:
            self._count["failures"] += 1
            self._room.unreserve(flight.granted_bytes)
            flight.granted_bytes = 0
            self._fail(flight, Refused("its loader died, twice"))

    def retire(self) -> Peer | None:
        """Return a loader that has no work, which is forgotten; None if all have."""
        return self._idle.pop() if self._idle else None

    def check(self) -> None:
        """Assert the invariants. For tests."""
        flights = list(self._flights())
        assert not set(self._idle) & self._busy.keys()
        for key, (flight, index) in self._by_key.items():
            assert flight in flights
            assert flight.key(index) == key
            assert index >= flight.next
            assert index not in flight.skip
        waiting = [
            task
            for flight in flights
            for waiters in flight.waiters.values()
            for task in waiters
        ]
        assert len(waiting) == len(set(waiting))
        assert all(task.waiting for task in waiting)

    def _flights(self) -> Iterator[Flight]:
        yield from self._busy.values()
        yield from self._queue

    def _decide(self, peer: Peer, flight: Flight, run: Decoded) -> None:
        """Answer a loader that has decoded a run, or leave it waiting."""
        if flight.is_awaited():
            granted = self._room.reserve(run.size_bytes)
        elif not any(task.wants(flight.span()) for task in flight.tasks):
            self._cancel(peer, flight)
            return
        else:
            granted = self._may_go_ahead(flight, run)
            if not granted:
                flight.pending = run
                return
        flight.pending = None
        if granted:
            flight.granted_bytes = run.size_bytes
            peer.send(Grant())
            return
        del self._by_key[flight.key(run.index)]
        flight.next = run.index + 1
        flight.streams = self._dismiss(flight, run.index)
        peer.send(Deny(len(flight.streams)))

    def _may_go_ahead(self, flight: Flight, run: Decoded) -> bool:
        """Reserve room for a run that nobody waits for, if it may be so far ahead."""
        limit_bytes = self._room.ahead_bytes() - run.size_bytes
        readers = [task for task in flight.tasks if task.wants(flight.span(run.index))]
        if not any(sum(task.ahead.values()) <= limit_bytes for task in readers):
            return False
        if not self._room.reserve(run.size_bytes):
            return False
        for task in readers:
            task.ahead[flight.key(run.index)] = run.size_bytes
        return True

    def _cancel(self, peer: Peer, flight: Flight) -> None:
        """Tell a loader that waits for an answer to drop the rest of its load."""
        flight.pending = None
        flight.cancelled = True
        self._forget(flight)
        peer.send(Cancel())

    def _fail(self, flight: Flight, message: Failed | Refused) -> None:
        """Give up a flight; those who wait get another, or what went wrong."""
        waiters = [
            task
            for index in list(flight.waiters)
            for task in self._dismiss(flight, index)
        ]
        self._forget(flight)
        for task in waiters:
            if flight.attempt == 0:
                self.wait(task, task.cursor, attempt=1)
            else:
                task.peer.send(message)

    def _forget(self, flight: Flight) -> None:
        for _, key in flight.rest():
            if self._by_key.get(key, (None,))[0] is flight:
                del self._by_key[key]
        flight.tasks.clear()

    def _dismiss(self, flight: Flight, index: int) -> list[Task]:
        """Return those who wait for a run; they do no longer."""
        waiters = flight.waiters.pop(index, [])
        for task in waiters:
            task.waiting = False
        return waiters

    def _learn(self, flight: Flight, index: int, offset: int) -> None:
        known = self._offsets.setdefault((flight.load.ledger, flight.load.extent), {})
        known[flight.load.runs[index].first] = offset
