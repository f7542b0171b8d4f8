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
from sparkcache.node.load_job import LoadJob, lay_out
from sparkcache.node.messages import (
    Cancel,
    Decoded,
    Deny,
    Ended,
    Failed,
    Forget,
    Grant,
    Prepare,
    Refused,
    Skipped,
    Start,
    Streamed,
    Unmap,
)
from sparkcache.node.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkcache.model import RunKey, Slot
    from sparkcache.node.reader_session import Peer, ReaderSession, RunSpan
    from sparkcache.node.topic_counts import TopicCounts

_MOST_PREPARED = 8  # by each loader

_log = logging.getLogger(__name__)


class LoadHost(Protocol):
    """What loads need of the rest of the node."""

    def is_held(self, key: RunKey) -> bool:
        """Tell whether a run is there to be served."""

    def is_wanted(self, span: RunSpan) -> bool:
        """Tell whether any task waits for a run of a span, or will come to one."""

    def is_near(self, key: RunKey, span: RunSpan, size_bytes: int) -> bool:
        """Tell whether one of a run's readers may be read ahead of so far."""

    def reserve(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Make room for a run; None if there can be none, or others need it more."""

    def reserve_spare(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Take room for a run if nothing has to go for it."""

    def unreserve(self, slot: Slot) -> None:
        """Give back what was reserved."""

    def writable_fd(self, slot: Slot, loader: Peer) -> int | None:
        """Return a descriptor that a loader needs to write there, if it needs one."""


class LoadedRun(NamedTuple):
    """A run that a loader hands over, where it lies, and who waits for it."""

    key: RunKey
    span: RunSpan
    slot: Slot
    waiters: list[ReaderSession]


class LoadScheduler:
    """The loads under way and those that wait for a loader.

    Attributes:
        load_s: How long they took from their beginning to their first run.

    """

    def __init__(
        self,
        room: LoadHost,
        counts: Counter[str],
        topics: TopicCounts,
        now: Callable[[], float],
    ) -> None:
        self._room = room
        self._count = counts
        self._topics = topics
        self._now = now
        self._idle: list[Peer] = []
        self._busy: dict[Peer, LoadJob] = {}
        self._queue: list[LoadJob] = []
        self._by_key: dict[RunKey, tuple[LoadJob, int]] = {}
        self._dying: dict[Peer, Slot] = {}
        self._offsets = Offsets()
        self._numbers = count()
        self._heard_s = now()
        self.load_s = Values(TIMES_S)

    def __repr__(self) -> str:
        return (
            f"LoadScheduler({len(self._busy)} under way, {len(self._queue)} queued, "
            f"{len(self._idle)} loaders idle)"
        )

    def __len__(self) -> int:
        return len(self._busy)

    def __contains__(self, key: RunKey) -> bool:
        return key in self._by_key

    # What tasks want

    def wait(
        self, session: ReaderSession, place: tuple[int, int], attempt: int = 0
    ) -> None:
        """Have a task wait for a run that is not held, loading it if nobody does."""
        key = session.key(place)
        if key not in self._by_key:
            self.begin(session, place, attempt)
        job, index = self._by_key[key]
        job.waiters.setdefault(index, []).append(session)
        session.waiting = True

    def begin(
        self, session: ReaderSession, place: tuple[int, int], attempt: int = 0
    ) -> None:
        """Line up a load of a run that is not here, and of what follows it."""
        assert session.scan is not None
        run_slice = replace(session.slices[place[0]], stop=session.stop(place))
        job = lay_out(
            session.scan,
            run_slice,
            place[1],
            is_here=lambda key: key in self._by_key or self._room.is_held(key),
            offsets=self._offsets.of(run_slice.ledger, run_slice.extent),
        )
        job.number = next(self._numbers)
        job.attempt = attempt
        for index, key in job.rest():
            self._by_key[key] = (job, index)
        self._queue.append(job)

    def leave(self, session: ReaderSession) -> None:
        """A task is gone."""
        for job in self._jobs():
            job.leave(session)

    def dispatch(self) -> None:
        """Give loaders work, and decide what can be decided now."""
        for peer in list(self._idle):
            job = self._next_queued(peer)
            if job is not None:
                self._idle.remove(peer)
                self._start(peer, job)
        self._prepare()
        for peer, job in self._busy.items():
            if job.pending is not None:
                self._decide(peer, job, job.pending)

    def tick(self, silence_s: float) -> None:
        """Time has passed: give up loaders that have been silent for that long."""
        silent_since_s = self._now() - silence_s
        for peer, job in self._busy.items():
            if job.pending is None and job.heard_s < silent_since_s:
                _log.warning("a loader was silent for %g s: %s", silence_s, job.load)
                job.attempt = 1  # who waits has waited long enough
                peer.close()
        if not self._busy and not self._idle and self._heard_s < silent_since_s:
            for job in list(self._queue):
                self._queue.remove(job)
                job.attempt = 1
                self._give_up(job, Refused("there is no loader"))

    # What loaders say

    def loader_ready(self, peer: Peer) -> None:
        """A loader has begun and waits for work."""
        self._idle.append(peer)

    def decoded(self, peer: Peer, message: Decoded) -> None:
        """A loader asks whether it may put a run into shared memory."""
        job = self._heard(peer)
        self._learn(job, message.index, message.offset)
        self._count["lost_entries"] += message.lost_entries
        job.next = message.index
        job.pending = message
        if not job.is_fruitful:
            job.is_fruitful = True
            self.load_s.see(job.heard_s - job.begun_s)

    def skipped(self, peer: Peer, message: Skipped) -> None:
        """A loader passed over a run."""
        job = self._heard(peer)
        self._learn(job, message.index, message.offset)
        job.next = message.index + 1

    def is_granted(self, peer: Peer, has_own_memory: bool) -> bool:
        """Tell whether a loader was granted room for a run, and of that sort."""
        slot = self._busy[peer].granted if peer in self._busy else None
        return slot is not None and (slot.segment is None) == has_own_memory

    def loaded(self, peer: Peer, index: int) -> LoadedRun:
        """A loader hands over a run that it was granted."""
        job = self._heard(peer)
        slot, job.granted = job.granted, None
        assert slot is not None, "it was granted"
        job.next = index + 1
        key = job.key(index)
        del self._by_key[key]
        waiters = job.waiters.pop(index, [])
        return LoadedRun(key, job.span(index), slot, waiters)

    def streamed(self, peer: Peer, fd: int) -> None:
        """A loader hands over the end of a pipe that a denied run comes through."""
        session = self._heard(peer).streams.pop(0)
        if session is not None:
            self._count["streamed"] += 1
            session.waiting = False
            session.peer.send(Streamed(), fd)

    def ended(self, peer: Peer, message: Ended) -> None:
        """A loader is through with its load."""
        job = self._heard(peer)
        topic = self._topics.of(job.load.ledger.topic)
        topic.gets += message.gets
        topic.received_bytes += message.received_bytes
        self._count["retries"] += message.retries
        del self._busy[peer]
        self._idle.append(peer)
        self._give_up(job, Refused("the load ended before this run"))

    def failed(self, peer: Peer, message: Failed) -> None:
        """The storage failed a loader; `ended` follows."""
        job = self._heard(peer)
        job.over = True
        _log.warning("load failed, attempt %d: %s", job.attempt + 1, message.error())
        self._count["failures"] += 1
        self._give_up(job, message)

    def loader_gone(self, peer: Peer) -> None:
        """A loader is of no use any more. It may still write where it was granted."""
        if peer in self._idle:
            self._idle.remove(peer)
        for queued in self._queue:
            if queued.loader is peer:
                queued.loader = None
        job = self._busy.pop(peer, None)
        if job is None:
            return
        _log.warning("a loader died, attempt %d: %s", job.attempt + 1, job.load)
        self._count["failures"] += not job.over
        if job.granted is not None:
            self._dying[peer] = job.granted
        self._give_up(job, Refused("the loader of this run died"))

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

    def waiting(self) -> list[ReaderSession]:
        """List the tasks that wait, once for each time they do."""
        return [session for job in self._jobs() for session in job.waiting()]

    def check(self) -> None:
        """Assert the invariants, which hold after `dispatch`. For tests."""
        jobs = list(self._jobs())
        assert not set(self._idle) & self._busy.keys()
        for key, (job, index) in self._by_key.items():
            assert job in jobs
            assert job.key(index) == key
            assert index >= job.next
            assert index not in job.skip
            assert not job.over or (index == job.next and job.granted)
        for job in jobs:
            assert job.pending is None or not (job.is_awaited() or job.over)
            for index, sessions in job.waiters.items():
                assert not sessions or self._by_key[job.key(index)] == (job, index)
        assert all(f.loader is None or f.loader in self._busy for f in self._queue)
        assert not self._idle or all(job.loader for job in self._queue)
        waiting = self.waiting()
        assert len(waiting) == len(set(waiting))
        assert all(session.waiting for session in waiting)
        self._offsets.check()

    def _jobs(self) -> Iterator[LoadJob]:
        yield from self._busy.values()
        yield from self._queue

    def _next_queued(self, peer: Peer) -> LoadJob | None:
        """Take the next flight that is worth it; those awaited go first."""
        while jobs := self._open_to(peer):
            job = min(jobs, key=lambda job: not job.is_awaited())
            self._queue.remove(job)
            if job.is_awaited() or self._room.is_wanted(job.span()):
                return job
            self._forget(job)
            if job.loader is not None:
                job.loader.send(Forget(job.number))
        return None

    def _open_to(self, peer: Peer) -> list[LoadJob]:
        """List the flights that a loader may take up; those prepared by it go first."""
        prepared = [job for job in self._queue if job.loader is peer]
        return prepared or [job for job in self._queue if job.loader is None]

    def _prepare(self) -> None:
        """Have busy loaders ask the storage for what they will load next.

        That is several small loads, or one that is not, towards the end of the present.
        """
        prepared: Counter[Peer | None] = Counter()
        for job in self._queue:
            prepared[job.loader] += 1 if job.is_small else _MOST_PREPARED
        for job in self._queue:
            if job.loader is not None:
                continue
            room = _MOST_PREPARED if job.is_small else 1
            peers = [
                peer
                for peer, present in self._busy.items()
                if prepared[peer] < room and (job.is_small or present.is_small)
            ]
            if peers:
                peer = min(peers, key=lambda peer: prepared[peer])
                prepared[peer] += 1 if job.is_small else _MOST_PREPARED
                job.loader = peer
                scan = job.scan
                peer.send(Prepare(job.number, scan.root, scan.config, job.load))

    def _start(self, peer: Peer, job: LoadJob) -> None:
        self._busy[peer] = job
        self._topics.of(job.load.ledger.topic).loads += 1
        job.begun_s = job.heard_s = self._now()
        scan = job.scan
        peer.send(Start(job.number, scan.root, scan.config, job.load, job.skip))

    def _decide(self, peer: Peer, job: LoadJob, run: Decoded) -> None:
        """Answer a loader that has decoded a run, or leave it waiting."""
        span, key = job.span(run.index), job.key(run.index)
        is_wanted = self._room.is_wanted(span)
        if not job.is_awaited():
            if not self._room.is_wanted(job.span()):
                self._cancel(peer, job)
                return
            if is_wanted and not self._room.is_near(key, span, run.size_bytes):
                if not self._must_yield(peer):
                    return
                if not job.is_small:
                    self._preempt(peer, job, run)
                    return
        # What is only on the way to what is wanted may cost nobody anything.
        reserve = self._room.reserve if is_wanted else self._room.reserve_spare
        slot = reserve(key, run.size_bytes)
        if slot is not None:
            self._grant(peer, job, slot)
        elif job.is_awaited() or not is_wanted:
            self._deny(peer, job, run)
        elif self._must_yield(peer):
            self._cancel(peer, job)

    def _must_yield(self, peer: Peer) -> bool:
        awaited = [job.loader for job in self._queue if job.is_awaited()]
        over = sum(job.over for job in self._busy.values())
        return peer in awaited or awaited.count(None) > over

    def _preempt(self, peer: Peer, job: LoadJob, run: Decoded) -> None:
        """End a load for the sake of another; what is decoded is not lost."""
        slot = self._room.reserve(job.key(run.index), run.size_bytes)
        if slot is not None:
            self._forget(job, run.index + 1)
            job.over = True
            self._grant(peer, job, slot)
        else:
            self._cancel(peer, job)

    def _grant(self, peer: Peer, job: LoadJob, slot: Slot) -> None:
        job.granted = slot
        writable_fd = self._room.writable_fd(slot, peer)
        self._answer(peer, job, Grant(slot, last=job.over), writable_fd)

    def _deny(self, peer: Peer, job: LoadJob, run: Decoded) -> None:
        self._count["not_admitted"] += 1
        del self._by_key[job.key(run.index)]
        job.next = run.index + 1
        job.streams += job.waiters.pop(run.index, [])
        topic = self._topics.of(job.load.ledger.topic)
        topic.served_bytes += run.size_bytes * len(job.streams)
        self._answer(peer, job, Deny(len(job.streams)))

    def _cancel(self, peer: Peer, job: LoadJob) -> None:
        self._forget(job)
        job.over = True
        self._answer(peer, job, Cancel())

    def _answer(
        self,
        peer: Peer,
        job: LoadJob,
        answer: Grant | Deny | Cancel,
        fd: int | None = None,
    ) -> None:
        job.pending = None
        job.heard_s = self._now()
        peer.send(answer, fd)

    def _give_up(self, job: LoadJob, message: Failed | Refused) -> None:
        """Forget a flight; those who wait get another, or what went wrong."""
        waiters = job.dismiss()
        self._forget(job)
        for session in waiters:
            if job.attempt == 0:
                self.wait(session, session.cursor, attempt=1)
            else:
                session.waiting = False
                session.peer.send(message)

    def _forget(self, job: LoadJob, first: int = 0) -> None:
        """Promise a flight's runs to nobody any more, from that index on."""
        for index, key in job.rest():
            if index >= first and self._by_key.get(key) == (job, index):
                del self._by_key[key]

    def _heard(self, peer: Peer) -> LoadJob:
        job = self._busy[peer]
        job.heard_s = self._heard_s = self._now()
        return job

    def _learn(self, job: LoadJob, index: int, offset: int) -> None:
        load = job.load
        if offset >= 0:
            first = load.runs[index].first
            self._offsets.learn(load.ledger, load.extent, first, offset)
