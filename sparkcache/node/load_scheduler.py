"""Which loader runs which load job, and what becomes of the decoded runs.

Each run is loaded once at a time, however many tasks wait for it: it belongs to one
load job from the moment the job is laid out until the run is delivered or given up.

A loader asks before it puts a run into shared memory, so the byte limit holds at any
moment, not only after the fact. The scheduler answers:

    Grant     memory is reserved, if need be after evicting other runs
    Deny      no memory can be reserved: the run is streamed to those who wait for it
    Cancel    nobody wants this run or any that follows
    later     the run is far enough ahead of all its readers

The loader that became idle last gets the next job, so that the others stay small and
can be ended. Another loader is started only if no loader is idle.

While all loaders are busy, queued jobs are prepared by a busy loader, if they are small
or its present job is nearly done: the loader requests their bytes, so that they start
without waiting for the storage.

A job that is far enough ahead of its readers yields its loader to a queued job that
somebody waits for; otherwise all loaders could wait for readers that wait for a loader.
A small job is finished instead, since its bytes would have to be sent again.

A load that fails, or whose loader dies, is attempted once more for the sessions that
still wait. If the second attempt fails, they receive the error. A load that is refused
for want of credentials is not attempted again: each task then reads with its own.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sparkcache.histogram import TIMES_S, Values
from sparkcache.homes import Place
from sparkcache.node.load_job import LoadJob, lay_out
from sparkcache.node.load_queue import LoadQueue
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
    from collections import Counter
    from collections.abc import Callable, Iterator

    from sparkcache.model import RunKey, Slot
    from sparkcache.node.events import LoaderEnded
    from sparkcache.node.reader_session import Peer, ReaderSession, RunSpan
    from sparkcache.node.run_store import RunStore
    from sparkcache.node.topic_counts import TopicCounts

_log = logging.getLogger(__name__)


class Demand(Protocol):
    """What sessions wait for and will come to."""

    def is_wanted(self, span: RunSpan) -> bool:
        """Return whether any session waits for a run of a span, or will come to one."""

    def is_kept(self, span: RunSpan) -> bool:
        """Return whether a run of a span is wanted by a session that it is kept for."""

    def is_near(self, key: RunKey, span: RunSpan, size_bytes: int) -> bool:
        """Return whether a run is in the read-ahead window of a reader."""


class Loaders(Protocol):
    """The processes of loaders."""

    def can_start(self) -> bool:
        """Return whether another loader may be started now."""

    def start(self) -> Peer | None:
        """Start another loader and return it; None if that fails."""

    def release(self, peer: Peer) -> bool:
        """Return whether a loader may begin another load; otherwise end it."""

    @property
    def size_bytes(self) -> int:
        """Memory of all loaders."""


class LoadedRun(NamedTuple):
    """A run that a loader has written, and the sessions that wait for it."""

    key: RunKey
    span: RunSpan
    slot: Slot
    waiters: list[ReaderSession]


class LoadScheduler:
    """The load jobs under way and those queued for a loader."""

    def __init__(
        self,
        store: RunStore,
        demand: Demand,
        counts: Counter[str],
        topics: TopicCounts,
        now: Callable[[], float],
        loaders: Loaders | None = None,
    ) -> None:
        self._loaders = loaders
        self._store = store
        self._demand = demand
        self._count = counts
        self._topics = topics
        self._now = now
        self._idle: dict[Peer, float] = {}  # since when, in this order
        self._busy: dict[Peer, LoadJob] = {}
        self._queue = LoadQueue()
        self._by_key: dict[RunKey, tuple[LoadJob, int]] = {}
        self._dying: dict[Peer, Slot] = {}
        self._last_topics: dict[Peer, str] = {}  # of the loaders' latest loads
        self._offsets = Offsets()
        self._numbers = count()
        self._last_heard_s = now()
        self._load_s = Values(TIMES_S)  # from the start of a load to its first run

    def __repr__(self) -> str:
        return (
            f"LoadScheduler({len(self._busy)} under way, {len(self._queue)} queued, "
            f"{len(self._idle)} loaders idle)"
        )

    def __len__(self) -> int:
        return len(self._busy)

    def __contains__(self, key: RunKey) -> bool:
        return key in self._by_key

    # Demand of sessions

    def wait(
        self, session: ReaderSession, run_index: tuple[int, int], attempt: int = 0
    ) -> bool:
        """Have a session wait for a run that is not held; load it if need be.

        Return whether it is the first to wait for it.
        """
        key = session.key(run_index)
        if key not in self._by_key:
            self.begin(session, run_index, attempt)
        job, index = self._by_key[key]
        waiters = job.waiters.setdefault(index, [])
        waiters.append(session)
        session.waiting = True
        return len(waiters) == 1

    def begin(
        self, session: ReaderSession, run_index: tuple[int, int], attempt: int = 0
    ) -> None:
        """Queue a job that loads a run that is not held, and the runs after it."""
        assert session.scan is not None
        run_slice = replace(session.slices[run_index[0]], stop=session.stop(run_index))
        job = lay_out(
            session.scan,
            run_slice,
            run_index[1],
            is_present=lambda key: key in self._by_key or self._store.is_held(key),
            offsets=self._offsets.for_extent(run_slice.ledger, run_slice.extent),
        )
        job.number = next(self._numbers)
        job.attempt = attempt
        for index, key in job.remaining_runs():
            self._by_key[key] = (job, index)
        self._queue.append(job)

    def leave(self, session: ReaderSession) -> None:
        """Remove a closed session from all jobs."""
        for job in self._jobs():
            job.leave(session)

    def dispatch(self) -> None:
        """Give jobs to idle loaders, and answer loaders that can be answered."""
        if self._queue:
            self._give_jobs()
        for peer, job in self._busy.items():
            if job.pending is not None:
                self._decide(peer, job, job.pending)

    def tick(self) -> None:
        """Give up the loads whose loader is silent, or that no loader begins.

        The limit is the time for which the tasks of the scan wait.
        """
        now_s = self._now()
        for peer, job in self._busy.items():
            silence_s = job.scan.storage.request_timeout_s
            if job.pending is None and job.last_heard_s < now_s - silence_s:
                _log.warning(
                    "closing a loader that was silent for %g s: %s", silence_s, job.load
                )
                job.attempt = 1  # no second attempt: sessions have waited long enough
                peer.close()
        if self._busy or self._idle:
            return
        for job in list(self._queue):
            if self._last_heard_s < now_s - job.scan.storage.request_timeout_s:
                self._queue.remove(job)
                job.attempt = 1
                self._give_up(job, Refused("the node has no loader"))

    # Messages of loaders

    def loader_ready(self, peer: Peer) -> None:
        """Add a new loader that waits for work."""
        self._idle[peer] = self._now()

    def decoded(self, peer: Peer, message: Decoded) -> RunKey:
        """Record a decoded run; its loader waits for Grant, Deny or Cancel.

        Returns the key of the run.
        """
        job = self._heard_from(peer)
        self._spend(peer, message)
        self._learn(job, message.index, message.offset)
        self._count["lost_entries"] += message.lost_entries
        job.next = message.index
        job.pending = message
        if not job.has_decoded:
            job.has_decoded = True
            self._load_s.add(job.last_heard_s - job.begun_s)
        return job.key(message.index)

    def skipped(self, peer: Peer, message: Skipped) -> None:
        """Record that a loader skipped a run."""
        job = self._heard_from(peer)
        self._learn(job, message.index, message.offset)
        job.next = message.index + 1

    def is_granted(self, peer: Peer, has_own_memory: bool) -> bool:
        """Return whether a loader was granted memory, and memory of that kind."""
        slot = self._busy[peer].granted if peer in self._busy else None
        return slot is not None and (slot.segment is None) == has_own_memory

    def loaded(self, peer: Peer, index: int) -> LoadedRun:
        """Return the run that a loader has written into granted memory."""
        job = self._heard_from(peer)
        slot, job.granted = job.granted, None
        assert slot is not None, "it was granted"
        job.next = index + 1
        key = job.key(index)
        del self._by_key[key]
        waiters = job.waiters.pop(index, [])
        return LoadedRun(key, job.span(index), slot, waiters)

    def streamed(self, peer: Peer, fd: int) -> None:
        """Pass the end of a pipe to the session that the denied run is streamed to."""
        session = self._heard_from(peer).streams.pop(0)
        if session is not None:
            if session.place is Place.AWAY:
                self._count_away(session)
            self._count["streamed"] += 1
            session.waiting = False
            session.peer.send(Streamed(), fd)

    def _count_away(self, session: ReaderSession) -> None:
        """Count the run that a session waits for as loaded away from its home."""
        run_slice, index = session.cursor
        stored_bytes = session.slices[run_slice].stored_bytes(index)
        topic = session.key(session.cursor).ledger.topic
        self._topics.for_topic(topic).away_bytes += stored_bytes

    def ended(self, peer: Peer, message: Ended) -> None:
        """Make a loader idle whose load is over."""
        job = self._heard_from(peer)
        self._spend(peer, message)
        del self._busy[peer]
        if self._loaders is None or self._loaders.release(peer):
            self._idle[peer] = job.last_heard_s
        else:
            self._queue.release(peer)
        self._give_up(job, Refused("the load ended before the requested run"))

    def failed(self, peer: Peer, message: Failed) -> None:
        """Record that the storage failed a load; `ended` follows."""
        job = self._heard_from(peer)
        job.is_ending = True
        _log.warning("load failed, attempt %d: %s", job.attempt + 1, message.error())
        self._count["failures"] += 1
        if message.lacks_credentials:
            job.attempt = 1  # the loader has looked them up again
        self._give_up(job, message)

    def loader_closed(self, peer: Peer) -> None:
        """Remove a loader. It may still write to the memory it was granted."""
        self._idle.pop(peer, None)
        self._queue.release(peer)
        job = self._busy.pop(peer, None)
        if job is None:
            return
        _log.warning("a loader died, attempt %d: %s", job.attempt + 1, job.load)
        self._count["failures"] += not job.is_ending
        if job.granted is not None:
            self._dying[peer] = job.granted
        self._give_up(job, Refused("the loader of the requested run died"))

    def loader_ended(self, event: LoaderEnded) -> None:
        """Release the memory granted to a loader whose process has ended.

        What it has fetched in vain is counted.
        """
        slot = self._dying.pop(event.loader, None)
        if slot is not None:
            self._store.unreserve(slot)
        self._spend(event.loader, event)
        self._last_topics.pop(event.loader, None)

    def retire(self, idle_s: float) -> Peer | None:
        """Remove and return the loader that is idle for longest, if for so long."""
        for peer, since_s in self._idle.items():
            if self._now() - since_s < idle_s:
                break
            del self._idle[peer]
            return peer
        return None

    def unmap(self, segments: tuple[int, ...]) -> None:
        """Tell the loaders which segments the ring has dropped."""
        for peer in (*self._idle, *self._busy):
            peer.send(Unmap(segments))

    def waiting(self) -> list[ReaderSession]:
        """Return the sessions that wait, once for each run they wait for."""
        return [session for job in self._jobs() for session in job.waiting()]

    def metrics(self) -> dict[str, Any]:
        """Return what is under way and how long loads take, by names of `Metrics`."""
        return {
            "in_flight": len(self._busy),
            "loaders": len(self._idle) + len(self._busy),
            "loader_bytes": 0 if self._loaders is None else self._loaders.size_bytes,
            "load_s": self._load_s.histogram(),
        }

    def check(self) -> None:
        """Assert the invariants, which hold after `dispatch`. For tests."""
        jobs = list(self._jobs())
        assert not self._idle.keys() & self._busy.keys()
        assert list(self._idle.values()) == sorted(self._idle.values())
        for key, (job, index) in self._by_key.items():
            assert job in jobs
            assert job.key(index) == key
            assert index >= job.next
            assert index not in job.skip
            assert not job.is_ending or (index == job.next and job.granted)
        for job in jobs:
            assert job.pending is None or not (job.is_awaited() or job.is_ending)
            for index, sessions in job.waiters.items():
                assert not sessions or self._by_key[job.key(index)] == (job, index)
        self._queue.check(self._busy, has_idle=bool(self._idle))
        waiting = self.waiting()
        assert len(waiting) == len(set(waiting))
        assert all(session.waiting for session in waiting)
        self._offsets.check()

    def _jobs(self) -> Iterator[LoadJob]:
        yield from self._busy.values()
        yield from self._queue

    def _give_jobs(self) -> None:
        """Start queued jobs on idle and new loaders; have busy ones prepare others."""
        for peer in reversed(list(self._idle)):
            job = self._next_job(peer)
            if job is not None:
                del self._idle[peer]
                self._start(peer, job)
        self._start_loaders()
        for peer, job in self._queue.prepare(self._busy):
            scan = job.scan
            peer.send(Prepare(job.number, scan.root, scan.storage, job.load))

    def _start_loaders(self) -> None:
        """Start loaders for the queued jobs that no loader prepares."""
        while self._loaders is not None and self._loaders.can_start():
            job = self._next_job(None)
            if job is None:
                return
            peer = self._loaders.start()
            if peer is None:
                self._queue.put_back(job)
                return
            self._start(peer, job)

    def _next_job(self, peer: Peer | None) -> LoadJob | None:
        """Take the next wanted job off the queue; drop unwanted ones.

        Without a loader, it is one that no loader prepares.
        """
        while (job := self._queue.pop(peer)) is not None:
            if job.is_awaited() or self._demand.is_wanted(job.span()):
                return job
            self._forget(job)
            if job.loader is not None:
                job.loader.send(Forget(job.number))
        return None

    def _spend(self, peer: Peer, spent: Decoded | Ended | LoaderEnded) -> None:
        """Count requests to the storage, for the topic that the loader read last."""
        if peer in self._last_topics:
            topic = self._topics.for_topic(self._last_topics[peer])
            topic.gets += spent.gets
            topic.received_bytes += spent.received_bytes
            self._count["retries"] += spent.retries

    def _start(self, peer: Peer, job: LoadJob) -> None:
        self._busy[peer] = job
        self._last_topics[peer] = job.load.ledger.topic
        self._topics.for_topic(job.load.ledger.topic).loads += 1
        job.begun_s = job.last_heard_s = self._now()
        scan = job.scan
        peer.send(
            Start(
                job.number,
                scan.root,
                scan.storage,
                job.load,
                job.skip,
                scan.config.batch_bytes,
            )
        )

    def _decide(self, peer: Peer, job: LoadJob, run: Decoded) -> None:
        """Answer a loader that has decoded a run, or leave it waiting."""
        span, key = job.span(run.index), job.key(run.index)
        is_wanted = self._demand.is_wanted(span)
        if not (job.is_awaited() or self._demand.is_wanted(job.span())):
            self._cancel(peer, job)
            return
        if is_wanted and not self._demand.is_kept(span):
            self._stream(peer, job, run)
            return
        is_early = is_wanted and not job.is_awaited()
        if is_early and not self._demand.is_near(key, span, run.size_bytes):
            if not self._must_yield(peer):
                return
            if not job.is_small:
                self._preempt(peer, job, run)
                return
        # A run that is only decoded on the way to a wanted one must evict nothing.
        reserve = self._store.reserve if is_wanted else self._store.reserve_spare
        slot = reserve(key, run.size_bytes)
        if slot is not None:
            self._grant(peer, job, slot)
        elif job.is_awaited() or not is_wanted:
            self._count["not_admitted"] += 1
            self._deny(peer, job, run)
        elif self._must_yield(peer):
            self._cancel(peer, job)

    def _stream(self, peer: Peer, job: LoadJob, run: Decoded) -> None:
        """Have a run that is not to be kept streamed, once a session waits for it."""
        if job.is_awaited():
            self._deny(peer, job, run)
        elif self._must_yield(peer):
            self._cancel(peer, job)

    def _must_yield(self, peer: Peer) -> bool:
        ending = sum(job.is_ending for job in self._busy.values())
        return self._queue.needs(peer, ending)

    def _preempt(self, peer: Peer, job: LoadJob, run: Decoded) -> None:
        """End a load in favour of another; the decoded run is kept if possible."""
        slot = self._store.reserve(job.key(run.index), run.size_bytes)
        if slot is not None:
            self._forget(job, run.index + 1)
            job.is_ending = True
            self._grant(peer, job, slot)
        else:
            self._cancel(peer, job)

    def _grant(self, peer: Peer, job: LoadJob, slot: Slot) -> None:
        job.granted = slot
        writable_fd = self._store.writable_fd(slot, peer)
        self._answer(peer, job, Grant(slot, last=job.is_ending), writable_fd)

    def _deny(self, peer: Peer, job: LoadJob, run: Decoded) -> None:
        del self._by_key[job.key(run.index)]
        job.next = run.index + 1
        job.streams += job.waiters.pop(run.index, [])
        topic = self._topics.for_topic(job.load.ledger.topic)
        topic.served_bytes += run.size_bytes * len(job.streams)
        self._answer(peer, job, Deny(len(job.streams)))

    def _cancel(self, peer: Peer, job: LoadJob) -> None:
        self._forget(job)
        job.is_ending = True
        self._answer(peer, job, Cancel())

    def _answer(
        self,
        peer: Peer,
        job: LoadJob,
        answer: Grant | Deny | Cancel,
        fd: int | None = None,
    ) -> None:
        job.pending = None
        job.last_heard_s = self._now()
        peer.send(answer, fd)

    def _give_up(self, job: LoadJob, message: Failed | Refused) -> None:
        """Drop a job; its sessions get a second attempt, or the error."""
        waiters = job.pop_waiters()
        self._forget(job)
        for session in waiters:
            if job.attempt == 0:
                self.wait(session, session.cursor, attempt=1)
            else:
                session.waiting = False
                session.peer.send(message)

    def _forget(self, job: LoadJob, first: int = 0) -> None:
        """Unregister the runs of a job, from an index on."""
        for index, key in job.remaining_runs():
            if index >= first and self._by_key.get(key) == (job, index):
                del self._by_key[key]

    def _heard_from(self, peer: Peer) -> LoadJob:
        job = self._busy[peer]
        job.last_heard_s = self._last_heard_s = self._now()
        return job

    def _learn(self, job: LoadJob, index: int, offset: int) -> None:
        load = job.load
        if offset >= 0:
            first = load.runs[index].first
            self._offsets.learn(load.ledger, load.extent, first, offset)
