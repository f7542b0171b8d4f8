"""Which loads are made, by which loader, and what becomes of what they decode.

Each run is loaded once at a time, however many tasks wait for it: it belongs to one
flight, from the moment the flight is laid out until the run is delivered or given up.

A loader asks before it puts a run into shared memory, so the byte limit holds for
what exists, not for what was noticed afterwards. The answer:

    Grant     there is room, or room was made by evicting
    Deny      there is none: who waits for this run gets it through a pipe
    Cancel    nobody wants it, nor anything that follows
    later     it is far enough ahead of all its readers

Loads that are queued are prepared by a loader that is still busy with another, if they
are small or it is nearly through: it asks the storage for them, so that they begin
without waiting for its answer.

A load that is far enough ahead gives way to a queued one that somebody waits for;
otherwise all loaders could wait for readers who wait for a loader. A small one rather
goes on to its end, since what was sent of it would be sent again.

A load that fails, or whose loader dies, is made once more for those who still wait.
The second time, its error is theirs.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sparkcache.histogram import TIMES_S, Values
from sparkcache.node.flight import Flight, lay_out
from sparkcache.node.messages import (
    Cancel,
    Decoded,
    Deny,
    Ended,
    Failed,
    Forget,
    Grant,
    Passed,
    Prepare,
    Refused,
    Start,
    Streamed,
    Unmap,
)
from sparkcache.node.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkcache.model import RunKey, Slot
    from sparkcache.node.task import Peer, Span, Task
    from sparkcache.node.topic_counts import TopicCounts

_MOST_PREPARED = 8  # by each loader

_log = logging.getLogger(__name__)


class Room(Protocol):
    """What loads need of the rest of the node."""

    def is_held(self, key: RunKey) -> bool:
        """Tell whether a run is there to be served."""

    def is_wanted(self, span: Span) -> bool:
        """Tell whether any task waits for a run of a span, or will come to one."""

    def is_near(self, key: RunKey, span: Span, size_bytes: int) -> bool:
        """Tell whether one of a run's readers may be read ahead of so far."""

    def reserve(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Make room for a run; None if there can be none, or others need it more."""

    def reserve_spare(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Take room for a run if nothing has to go for it."""

    def unreserve(self, slot: Slot) -> None:
        """Give back what was reserved."""

    def way_in(self, slot: Slot, loader: Peer) -> int | None:
        """Return a descriptor that a loader needs to write there, if it needs one."""


class Arrival(NamedTuple):
    """A run that a loader hands over, where it lies, and who waits for it."""

    key: RunKey
    span: Span
    slot: Slot
    waiters: list[Task]


class Loads:
    """The loads under way and those that wait for a loader.

    Attributes:
        load_s: How long they took from their beginning to their first run.

    """

    def __init__(
        self,
        room: Room,
        counts: Counter[str],
        topics: TopicCounts,
        now: Callable[[], float],
    ) -> None:
        self._room = room
        self._count = counts
        self._topics = topics
        self._now = now
        self._idle: list[Peer] = []
        self._busy: dict[Peer, Flight] = {}
        self._queue: list[Flight] = []
        self._by_key: dict[RunKey, tuple[Flight, int]] = {}
        self._dying: dict[Peer, Slot] = {}
        self._offsets = Offsets()
        self._numbers = count()
        self._heard_s = now()
        self.load_s = Values(TIMES_S)

    def __repr__(self) -> str:
        return (
            f"Loads({len(self._busy)} under way, {len(self._queue)} queued, "
            f"{len(self._idle)} loaders idle)"
        )

    def __len__(self) -> int:
        return len(self._busy)

    def __contains__(self, key: RunKey) -> bool:
        return key in self._by_key

    # What tasks want

    def wait(self, task: Task, place: tuple[int, int], attempt: int = 0) -> None:
        """Have a task wait for a run that is not held, loading it if nobody does."""
        key = task.key(place)
        if key not in self._by_key:
            self.begin(task, place, attempt)
        flight, index = self._by_key[key]
        flight.waiters.setdefault(index, []).append(task)
        task.waiting = True

    def begin(self, task: Task, place: tuple[int, int], attempt: int = 0) -> None:
        """Line up a load of a run that is not here, and of what follows it."""
        assert task.scan is not None
        stretch = replace(task.stretches[place[0]], stop=task.stop(place))
        flight = lay_out(
            task.scan,
            stretch,
            place[1],
            is_here=lambda key: key in self._by_key or self._room.is_held(key),
            offsets=self._offsets.of(stretch.ledger, stretch.extent),
        )
        flight.number = next(self._numbers)
        flight.attempt = attempt
        for index, key in flight.rest():
            self._by_key[key] = (flight, index)
        self._queue.append(flight)

    def leave(self, task: Task) -> None:
        """A task is gone."""
        for flight in self._flights():
            flight.leave(task)

    def proceed(self) -> None:
        """Give loaders work, and decide what can be decided now."""
        for peer in list(self._idle):
            flight = self._next_queued(peer)
            if flight is not None:
                self._idle.remove(peer)
                self._start(peer, flight)
        self._prepare()
        for peer, flight in self._busy.items():
            if flight.pending is not None:
                self._decide(peer, flight, flight.pending)

    def tick(self, silence_s: float) -> None:
        """Time has passed: give up loaders that have been silent for that long."""
        silent_since_s = self._now() - silence_s
        for peer, flight in self._busy.items():
            if flight.pending is None and flight.heard_s < silent_since_s:
                _log.warning("a loader was silent for %g s: %s", silence_s, flight.load)
                flight.attempt = 1  # who waits has waited long enough
                peer.close()
        if not self._busy and not self._idle and self._heard_s < silent_since_s:
            for flight in list(self._queue):
                self._queue.remove(flight)
                flight.attempt = 1
                self._give_up(flight, Refused("there is no loader"))

    # What loaders say

    def loader_ready(self, peer: Peer) -> None:
        """A loader has begun and waits for work."""
        self._idle.append(peer)

    def decoded(self, peer: Peer, message: Decoded) -> None:
        """A loader asks whether it may put a run into shared memory."""
        flight = self._heard(peer)
        self._learn(flight, message.index, message.offset)
        self._count["lost_entries"] += message.lost_entries
        flight.next = message.index
        flight.pending = message
        if not flight.is_fruitful:
            flight.is_fruitful = True
            self.load_s.see(flight.heard_s - flight.begun_s)

    def passed(self, peer: Peer, message: Passed) -> None:
        """A loader passed over a run."""
        flight = self._heard(peer)
        self._learn(flight, message.index, message.offset)
        flight.next = message.index + 1

    def is_granted(self, peer: Peer, has_own_memory: bool) -> bool:
        """Tell whether a loader was granted room for a run, and of that sort."""
        slot = self._busy[peer].granted if peer in self._busy else None
        return slot is not None and (slot.segment is None) == has_own_memory

    def loaded(self, peer: Peer, index: int) -> Arrival:
        """A loader hands over a run that it was granted."""
        flight = self._heard(peer)
        slot, flight.granted = flight.granted, None
        assert slot is not None, "it was granted"
        flight.next = index + 1
        key = flight.key(index)
        del self._by_key[key]
        waiters = flight.waiters.pop(index, [])
        return Arrival(key, flight.span(index), slot, waiters)

    def streamed(self, peer: Peer, fd: int) -> None:
        """A loader hands over the end of a pipe that a denied run comes through."""
        task = self._heard(peer).streams.pop(0)
        if task is not None:
            self._count["streamed"] += 1
            task.waiting = False
            task.peer.send(Streamed(), fd)

    def ended(self, peer: Peer, message: Ended) -> None:
        """A loader is through with its load."""
        flight = self._heard(peer)
        topic = self._topics.of(flight.load.ledger.topic)
        topic.gets += message.gets
        topic.received_bytes += message.received_bytes
        self._count["retries"] += message.retries
        del self._busy[peer]
        self._idle.append(peer)
        self._give_up(flight, Refused("the load ended before this run"))

    def failed(self, peer: Peer, message: Failed) -> None:
        """The storage failed a loader; `ended` follows."""
        flight = self._heard(peer)
        flight.over = True
        _log.warning("load failed, attempt %d: %s", flight.attempt + 1, message.error())
        self._count["failures"] += 1
        self._give_up(flight, message)

    def loader_gone(self, peer: Peer) -> None:
        """A loader is of no use any more. It may still write where it was granted."""
        if peer in self._idle:
            self._idle.remove(peer)
        for queued in self._queue:
            if queued.loader is peer:
                queued.loader = None
        flight = self._busy.pop(peer, None)
        if flight is None:
            return
        _log.warning("a loader died, attempt %d: %s", flight.attempt + 1, flight.load)
        self._count["failures"] += not flight.over
        if flight.granted is not None:
            self._dying[peer] = flight.granted
        self._give_up(flight, Refused("the loader of this run died"))

    def loader_ended(self, peer: Peer) -> None:
        """A loader's process has ended, so that it writes nowhere."""
        slot = self._dying.pop(peer, None)
        if slot is not None:
            self._room.unreserve(slot)

    def retire(self) -> Peer | None:
        """Return a loader that has no work, which is forgotten; None if all have."""
        return self._idle.pop() if self._idle else None

    def unmap(self, segments: tuple[int, ...]) -> None:
        """Tell the loaders which segments are none of the ring's any more."""
        for peer in (*self._idle, *self._busy):
            peer.send(Unmap(segments))

    def waiting(self) -> list[Task]:
        """List the tasks that wait, once for each time they do."""
        return [task for flight in self._flights() for task in flight.waiting()]

    def check(self) -> None:
        """Assert the invariants, which hold after `proceed`. For tests."""
        flights = list(self._flights())
        assert not set(self._idle) & self._busy.keys()
        for key, (flight, index) in self._by_key.items():
            assert flight in flights
            assert flight.key(index) == key
            assert index >= flight.next
            assert index not in flight.skip
            assert not flight.over or (index == flight.next and flight.granted)
        for flight in flights:
            assert flight.pending is None or not (flight.is_awaited() or flight.over)
            for index, tasks in flight.waiters.items():
                assert not tasks or self._by_key[flight.key(index)] == (flight, index)
        assert all(f.loader is None or f.loader in self._busy for f in self._queue)
        assert not self._idle or all(flight.loader for flight in self._queue)
        waiting = self.waiting()
        assert len(waiting) == len(set(waiting))
        assert all(task.waiting for task in waiting)
        self._offsets.check()

    def _flights(self) -> Iterator[Flight]:
        yield from self._busy.values()
        yield from self._queue

    def _next_queued(self, peer: Peer) -> Flight | None:
        """Take the next flight that is worth it; those awaited go first."""
        while flights := self._open_to(peer):
            flight = min(flights, key=lambda flight: not flight.is_awaited())
            self._queue.remove(flight)
            if flight.is_awaited() or self._room.is_wanted(flight.span()):
                return flight
            self._forget(flight)
            if flight.loader is not None:
                flight.loader.send(Forget(flight.number))
        return None

    def _open_to(self, peer: Peer) -> list[Flight]:
        """List the flights that a loader may take up; those prepared by it go first."""
        prepared = [flight for flight in self._queue if flight.loader is peer]
        return prepared or [flight for flight in self._queue if flight.loader is None]

    def _prepare(self) -> None:
        """Have busy loaders ask the storage for what they will load next.

        That is several small loads, or one that is not, towards the end of the present.
        """
        prepared: Counter[Peer | None] = Counter()
        for flight in self._queue:
            prepared[flight.loader] += 1 if flight.is_small else _MOST_PREPARED
        for flight in self._queue:
            if flight.loader is not None:
                continue
            room = _MOST_PREPARED if flight.is_small else 1
            peers = [
                peer
                for peer, present in self._busy.items()
                if prepared[peer] < room and (flight.is_small or present.is_small)
            ]
            if peers:
                peer = min(peers, key=lambda peer: prepared[peer])
                prepared[peer] += 1 if flight.is_small else _MOST_PREPARED
                flight.loader = peer
                scan = flight.scan
                peer.send(Prepare(flight.number, scan.root, scan.config, flight.load))

    def _start(self, peer: Peer, flight: Flight) -> None:
        self._busy[peer] = flight
        self._topics.of(flight.load.ledger.topic).loads += 1
        flight.begun_s = flight.heard_s = self._now()
        scan = flight.scan
        peer.send(
            Start(flight.number, scan.root, scan.config, flight.load, flight.skip)
        )

    def _decide(self, peer: Peer, flight: Flight, run: Decoded) -> None:
        """Answer a loader that has decoded a run, or leave it waiting."""
        span, key = flight.span(run.index), flight.key(run.index)
        is_wanted = self._room.is_wanted(span)
        if not flight.is_awaited():
            if not self._room.is_wanted(flight.span()):
                self._cancel(peer, flight)
                return
            if is_wanted and not self._room.is_near(key, span, run.size_bytes):
                if not self._must_give_way(peer):
                    return
                if not flight.is_small:
                    self._give_way(peer, flight, run)
                    return
        # What is only on the way to what is wanted may cost nobody anything.
        reserve = self._room.reserve if is_wanted else self._room.reserve_spare
        slot = reserve(key, run.size_bytes)
        if slot is not None:
            self._grant(peer, flight, slot)
        elif flight.is_awaited() or not is_wanted:
            self._deny(peer, flight, run)
        elif self._must_give_way(peer):
            self._cancel(peer, flight)

    def _must_give_way(self, peer: Peer) -> bool:
        awaited = [flight.loader for flight in self._queue if flight.is_awaited()]
        over = sum(flight.over for flight in self._busy.values())
        return peer in awaited or awaited.count(None) > over

    def _give_way(self, peer: Peer, flight: Flight, run: Decoded) -> None:
        """End a load for the sake of another; what is decoded is not lost."""
        slot = self._room.reserve(flight.key(run.index), run.size_bytes)
        if slot is not None:
            self._forget(flight, run.index + 1)
            flight.over = True
            self._grant(peer, flight, slot)
        else:
            self._cancel(peer, flight)

    def _grant(self, peer: Peer, flight: Flight, slot: Slot) -> None:
        flight.granted = slot
        way_in = self._room.way_in(slot, peer)
        self._answer(peer, flight, Grant(slot, last=flight.over), way_in)

    def _deny(self, peer: Peer, flight: Flight, run: Decoded) -> None:
        self._count["not_admitted"] += 1
        del self._by_key[flight.key(run.index)]
        flight.next = run.index + 1
        flight.streams += flight.waiters.pop(run.index, [])
        topic = self._topics.of(flight.load.ledger.topic)
        topic.served_bytes += run.size_bytes * len(flight.streams)
        self._answer(peer, flight, Deny(len(flight.streams)))

    def _cancel(self, peer: Peer, flight: Flight) -> None:
        self._forget(flight)
        flight.over = True
        self._answer(peer, flight, Cancel())

    def _answer(
        self,
        peer: Peer,
        flight: Flight,
        answer: Grant | Deny | Cancel,
        fd: int | None = None,
    ) -> None:
        flight.pending = None
        flight.heard_s = self._now()
        peer.send(answer, fd)

    def _give_up(self, flight: Flight, message: Failed | Refused) -> None:
        """Forget a flight; those who wait get another, or what went wrong."""
        waiters = flight.dismiss()
        self._forget(flight)
        for task in waiters:
            if flight.attempt == 0:
                self.wait(task, task.cursor, attempt=1)
            else:
                task.waiting = False
                task.peer.send(message)

    def _forget(self, flight: Flight, first: int = 0) -> None:
        """Promise a flight's runs to nobody any more, from that index on."""
        for index, key in flight.rest():
            if index >= first and self._by_key.get(key) == (flight, index):
                del self._by_key[key]

    def _heard(self, peer: Peer) -> Flight:
        flight = self._busy[peer]
        flight.heard_s = self._heard_s = self._now()
        return flight

    def _learn(self, flight: Flight, index: int, offset: int) -> None:
        load = flight.load
        if offset >= 0:
            first = load.runs[index].first
            self._offsets.learn(load.ledger, load.extent, first, offset)
