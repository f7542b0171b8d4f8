"""The node's behaviour: events in, messages out. No socket, no process, no clock.

A task asks for its runs one by one. A run that is held is served at once. A run that is
being loaded is waited for, by any number of sessions. For any other run a load is
begun, which continues past the requested run: as far ahead of its readers as the
settings allow, and never beyond what they will read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparkcache.demand import ExtentOffset
from sparkcache.model import Position
from sparkcache.node import status
from sparkcache.node.cache_settings import cache_settings
from sparkcache.node.counts import Counts
from sparkcache.node.load_scheduler import LoadScheduler
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    KeepAlive,
    MetricsReply,
    Refused,
    StatusReply,
    TopicMetricsReply,
)
from sparkcache.node.read_ahead import ReadAhead
from sparkcache.node.recorder import Recorder
from sparkcache.node.run_store import RunStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkcache.cache import CachedRun, Ttl
    from sparkcache.config import CacheConfig
    from sparkcache.demand import PartitionRead, Plan, ReaderIdentity
    from sparkcache.fetch.scan import Scan
    from sparkcache.metrics import Metrics, TopicMetrics
    from sparkcache.model import RunKey, Slot
    from sparkcache.node.messages import (
        Decoded,
        Ended,
        EndPlans,
        Failed,
        Finish,
        Open,
        QueryProgress,
        Skipped,
        Take,
    )
    from sparkcache.node.reader_session import Peer, ReaderSession, RunSpan

# Limits for runs sent together, if runs are small: each stays pinned until the task
# has read on.
_MAX_RUNS_AT_ONCE = 64
_MAX_BYTES_AT_ONCE = 256 << 10

_log = logging.getLogger(__name__)


class Service:
    """The node's decisions. Only the node's event loop calls it.

    Args:
        config: The initial settings.
        max_runs: How many descriptors the node may hold.
        now: The time in seconds from any origin; never decreases.
        close_fd: Closes a descriptor.
        on_configure: Called with every change of the settings.
        recorder: Records events to a trace if the settings ask for it.
        name: Name that distinguishes the nodes of one executor.

    """

    def __init__(
        self,
        config: CacheConfig,
        *,
        max_runs: int,
        now: Callable[[], float],
        close_fd: Callable[[int], None],
        on_configure: Callable[[CacheConfig], None] = lambda _: None,
        recorder: Recorder | None = None,
        name: str = "",
    ) -> None:
        self.config = config
        self._epoch = -1
        self._max_runs = max_runs
        self._now = now
        self._on_configure = on_configure
        self._recorder = Recorder(now) if recorder is None else recorder
        self._recorder.configure(config.trace)
        settings = cache_settings(config, max_runs)
        self._store = RunStore(
            settings, now=now, close_fd=close_fd, on_free=self._on_free
        )
        _warn_about(settings.ttl)
        self._sessions: set[ReaderSession] = set()
        self._counts = Counts()
        self._name = name
        self.loads = LoadScheduler(self, self._counts.loads, self._counts.topics, now)
        self._ahead = ReadAhead(self._store, self.loads)

    def __repr__(self) -> str:
        return (
            f"Service({len(self._sessions)} sessions, {self.loads!r}, {self._store!r})"
        )

    # Messages of tasks
    def open(self, session: ReaderSession, message: Open) -> None:
        """Begin a session: record what its task will read."""
        if message.version != PROTOCOL_VERSION:
            reason = f"protocol version {message.version}, expected {PROTOCOL_VERSION}"
            session.peer.send(Refused(reason))
            return
        if not all(run_slice.is_valid() for run_slice in message.scan.slices):
            _log.warning(
                "closing a task's connection: a slice is empty or not within its runs"
            )
            session.peer.close()
            return
        late = message.epoch < self._epoch
        if not late:
            self._epoch = message.epoch
            self.configure(message.settings)
        begun = self._store.planned.begin(message.plans, self._now(), late=late)
        self._recorder.begin(begun)
        self._counts.progress.begin(begun)
        self._record_progress(message.plans)
        session.begin(message.scan)
        if message.scan.slices:
            plan_ids = tuple(plan.id for plan in message.plans if plan.has_begun)
            session.partition_read = self._partition_read(
                message.reader, plan_ids, message.scan
            )
            self._counts.progress.open(session.partition_read, message.reader)
            self._ahead.open(session, message, self._now())
            self._counts.topics.set_group(
                message.scan.slices[0].ledger.topic, message.group
            )
        self._sessions.add(session)
        self.loads.dispatch()

    def take(self, session: ReaderSession, message: Take) -> None:
        """Serve a run to a session, or have the session wait for it."""
        run_index = (message.run_slice, message.index)
        if (
            session.partition_read is None
            or session.waiting
            or run_index <= session.cursor
            or not session.reads(run_index)
        ):
            _log.warning(
                "closing a task's connection: it asked for run %s after run %s",
                run_index,
                session.cursor,
            )
            session.peer.close()
            return
        self._settle(session, message)
        now_s = self._now()
        run = self._take(session, run_index, now_s)
        if run is not None:
            following = self._following(session, run, now_s)
            self._serve(session, run, *following)
            self._counts.times.served(now_s, self._now(), 1 + len(following))
        else:
            self.loads.wait(session, run_index)
            self._ahead.advance(session, self.config)
        self.loads.dispatch()

    def finish(self, session: ReaderSession, message: Finish) -> None:
        """Handle the last message of a task."""
        self._settle(session, message)
        if not session.waiting:
            session.finish()
        self.loads.dispatch()

    def close(self, session: ReaderSession) -> None:
        """Remove the session of a closed connection, and unpin its runs."""
        self._sessions.discard(session)
        for cached in session.pins.values():
            self._store.runs.unpin(cached)
        session.pins.clear()
        if session.partition_read is not None:
            self._store.planned.close(session.partition_read)
            self._recorder.leave(session.partition_read)
            session.partition_read = None
        self.loads.leave(session)
        self._ahead.close(session, self._now())
        self.loads.dispatch()

    def query_progress(self, message: QueryProgress) -> None:
        """Record that a query has read a batch, on this executor or others."""
        now_s = self._now()
        self._record_progress(
            self._store.planned.reach(message.query, message.topics, now_s)
        )
        self.loads.dispatch()

    def end_plans(self, message: EndPlans) -> None:
        """End plans, and evict the runs that only they expected."""
        self._recorder.end(message.ids)
        self._counts.progress.end(message.ids)
        self._store.end(message.ids)
        self.loads.dispatch()

    def get_metrics(self, peer: Peer) -> None:
        """Reply with the node's metrics."""
        peer.send(MetricsReply(self.metrics()))

    def get_topic_metrics(self, peer: Peer) -> None:
        """Reply with the node's metrics by topic."""
        peer.send(TopicMetricsReply(self.topic_metrics()))

    def get_status(self, peer: Peer) -> None:
        """Reply with the node's metrics, topics and plans as JSON."""
        records = self.metrics(), self.topic_metrics(), self._counts.progress.records()
        peer.send(
            StatusReply(status.encode(self._name, self.config.max_bytes, *records))
        )

    # Messages of loaders
    def loader_ready(self, peer: Peer) -> None:
        """Add a new loader that waits for work."""
        self.loads.loader_ready(peer)
        self.loads.dispatch()

    def decoded(self, peer: Peer, message: Decoded) -> None:
        """Answer a loader that asks whether to put a run into shared memory."""
        self.loads.decoded(peer, message)
        self.loads.dispatch()

    def skipped(self, peer: Peer, message: Skipped) -> None:
        """Record that a loader skipped a run."""
        self.loads.skipped(peer, message)
        self.loads.dispatch()

    def loaded(self, peer: Peer, index: int, fd: int | None) -> None:
        """Hold a run that a loader has written, and serve it to the sessions that wait.

        The descriptor, owned by the service from now on, is that of the run's own
        memory.
        """
        if not self.loads.is_granted(peer, fd is not None):
            _log.warning("closing a loader: it sent a run that it was not granted")
            if fd is not None:
                self._store.close_fd(fd)
            peer.close()
            return
        run = self.loads.loaded(peer, index)
        ahead = not run.waiters and self._ahead.is_wanted(run.span)
        cached = self._store.insert(run.key, run.slot, fd, ahead=ahead)
        if cached is not None:
            self._count_inserted(cached, run.span)
        for session in run.waiters:
            held = self._store.runs.get(run.key, self._now()) or cached
            assert held is not None, "held, or inserted just now"
            self._pin(session, held)
            self._serve(session, held)
        self.loads.dispatch()

    def streamed(self, peer: Peer, fd: int) -> None:
        """Pass the end of a pipe to a session; the caller keeps the descriptor."""
        self.loads.streamed(peer, fd)

    def ended(self, peer: Peer, message: Ended) -> None:
        """Make a loader idle whose load is over."""
        self.loads.ended(peer, message)
        self.loads.dispatch()

    def failed(self, peer: Peer, message: Failed) -> None:
        """Record that the storage failed a load; `ended` follows."""
        self.loads.failed(peer, message)
        self.loads.dispatch()

    def loader_gone(self, peer: Peer) -> None:
        """Remove a loader that is of no use any longer; `loader_ended` follows."""
        self.loads.loader_gone(peer)
        self.loads.dispatch()

    def loader_ended(self, peer: Peer) -> None:
        """Release the memory granted to a loader whose process has ended."""
        self.loads.loader_ended(peer)
        self.loads.dispatch()

    # The `LoadHost` of the scheduler
    def is_held(self, key: RunKey) -> bool:
        """Return whether a run is held."""
        return self._store.peek(key) is not None

    def reserve(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Reserve memory for a run; None if impossible, or if others need it more."""
        self._recorder.size(key, size_bytes)
        return self._store.reserve(key, size_bytes)

    def reserve_spare(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Reserve memory for a run if that evicts nothing."""
        self._recorder.size(key, size_bytes)
        return self._store.reserve_spare(key, size_bytes)

    def unreserve(self, slot: Slot) -> None:
        """Release reserved memory."""
        self._store.runs.unreserve(slot)

    def writable_fd(self, slot: Slot, loader: Peer) -> int | None:
        """Return the descriptor that a loader still needs to write a slot, if any."""
        return self._store.writable_fd(slot, loader)

    def is_wanted(self, span: RunSpan) -> bool:
        """Return whether any session waits for a run of a span, or will come to one."""
        return self._ahead.is_wanted(span)

    def is_near(self, key: RunKey, span: RunSpan, size_bytes: int) -> bool:
        """Return whether a run is in the read-ahead window of a reader."""
        return self._ahead.is_near(key, span, size_bytes, self.config)

    # The node

    def configure(self, config: CacheConfig) -> None:
        """Apply new settings."""
        if config == self.config:
            return
        _log.info("settings change: %s", config)
        self.config = config
        self._recorder.configure(config.trace)
        settings = cache_settings(config, self._max_runs)
        if settings.ttl != self._store.runs.settings.ttl:
            _warn_about(settings.ttl)
        self._store.configure(settings)
        self.expire()
        self._on_configure(config)

    def expire(self) -> bool:
        """Evict some of the overdue runs; return whether more are overdue."""
        more_is_overdue = self._store.expire()
        freed = self._store.take_freed_segments()
        if freed:
            self.loads.unmap(freed)
        return more_is_overdue

    def tick(self) -> None:
        """Do the periodic work: timeouts, keep-alive messages, flushing the trace."""
        self._recorder.flush()
        self.loads.tick(self.config.request_timeout_s)
        self._ahead.tick(self._now())
        for session in self._sessions:
            if session.waiting:
                session.peer.send(KeepAlive())
        self.loads.dispatch()

    def stop(self) -> None:
        """End the node: close the trace and release all segments."""
        self._recorder.close()
        self._store.close()

    def metrics(self) -> Metrics:
        """Return the node's metrics so far."""
        return self._counts.metrics(self._store, self.loads)

    def topic_metrics(self) -> tuple[TopicMetrics, ...]:
        """Return the metrics so far of each topic."""
        return self._counts.topics.records()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._counts.check(self._store, self.loads)
        self._store.check()
        self.loads.check()
        self._ahead.check()
        assert set(self.loads.waiting()) == {
            session for session in self._sessions if session.waiting
        }

    def _record_progress(self, plans: Iterable[Plan]) -> None:
        """Record how far streams have read."""
        self._recorder.move(plans)
        self._counts.progress.move(plans)

    def _settle(self, session: ReaderSession, message: Take | Finish) -> None:
        """Record the runs that a task has read, and those that it has unmapped."""
        for run_index in filter(session.reads, message.read):
            assert session.partition_read is not None, "it has a run to read"
            key = session.key(run_index)
            self._recorder.finish(session.partition_read, key)
            ordinal = session.ordinal(run_index)
            stored_bytes = session.slices[run_index[0]].stored_bytes(run_index[1])
            topic = key.ledger.topic
            self._counts.progress.read(
                session.partition_read, topic, ordinal, stored_bytes
            )
            self._store.finish(session.partition_read, ordinal, key)
        for run_index in message.released:
            cached = session.pins.pop(run_index, None)
            if cached is not None:
                self._store.runs.unpin(cached)

    def _take(
        self, session: ReaderSession, run_index: tuple[int, int], now_s: float
    ) -> CachedRun[int] | None:
        """Record that a session asks for a run; return it, pinned, if it is held."""
        assert session.partition_read is not None, "it has a run to read"
        session.ask(run_index)
        self._ahead.taken(session)
        self._recorder.take(
            session.partition_read, session.slices[run_index[0]], run_index[1]
        )
        key = session.key(run_index)
        count = self._counts.topics.ask(key.ledger.topic, session, run_index)
        run = self._store.take(session.partition_read, key, now_s)
        if run is not None:
            if run.is_first_of_prefetched:
                count.prefetch_hits += 1
            else:
                count.hits += 1
            self._pin(session, run)
        elif key in self.loads:
            count.waits += 1
        else:
            count.misses += 1
        return run

    def _following(
        self, session: ReaderSession, run: CachedRun[int], now_s: float
    ) -> list[CachedRun[int]]:
        """Take the held runs after a run that can be sent together with it."""
        following: list[CachedRun[int]] = []
        size_bytes = run.size_bytes
        for run_index in session.upcoming(_MAX_RUNS_AT_ONCE):
            held = self._store.runs.peek(session.key(run_index), now_s)
            if held is None or not self._store.can_follow(held, run.slot, session.peer):
                break
            size_bytes += held.size_bytes
            if size_bytes > _MAX_BYTES_AT_ONCE:
                break
            self._take(session, run_index, now_s)
            following.append(held)
        return following

    def _pin(self, session: ReaderSession, run: CachedRun[int]) -> None:
        self._store.runs.pin(run)
        session.pins[session.cursor] = run
        self._counts.topics.for_topic(
            run.key.ledger.topic
        ).served_bytes += run.size_bytes
        self._ahead.served(session, run)

    def _serve(self, session: ReaderSession, *runs: CachedRun[int]) -> None:
        session.waiting = False
        self._store.send_runs(runs, session.peer)
        self._ahead.advance(session, self.config)

    def _count_inserted(self, run: CachedRun[int], span: RunSpan) -> None:
        self._counts.topics.insert(run.key.ledger.topic, run.size_bytes)
        if run.ahead:
            self._counts.loads["loaded_ahead"] += 1
            self._ahead.loaded(run.key, span)

    def _partition_read(
        self, reader: ReaderIdentity, plan_ids: tuple[str, ...], scan: Scan
    ) -> PartitionRead:
        begin, end = scan.slices[0], scan.slices[-1]
        extents = [
            ExtentOffset(
                run_slice.ledger.id,
                run_slice.extent.first,
                run_slice.extent.last,
                run_slice.topic_offset,
                run_slice.extent.size_bytes,
            )
            for run_slice in scan.slices
        ]
        first = Position(begin.ledger.id, begin.runs[begin.start].first)
        stop = Position(end.ledger.id, end.runs[end.stop - 1].last + 1)
        partition_read = self._store.planned.open(
            reader, plan_ids, extents, first, stop
        )
        self._recorder.open(partition_read, reader, plan_ids, extents, first, stop)
        return partition_read

    def _on_free(self, run: CachedRun[int]) -> None:
        """Record that a run is no longer held."""
        self._ahead.removed(run)
        self._counts.times.evicted(run, self._now())
        self._counts.topics.evict(run.key.ledger.topic, run.size_bytes)


def _warn_about(ttl: Ttl) -> None:
    if ttl.after_read_s is not None and ttl.after_read_s > ttl.create_s:
        _log.warning(
            "runs are held longer after a read (%g s) than after creation (%g s)",
            ttl.after_read_s,
            ttl.create_s,
        )
