"""The node's behaviour: events in, messages out. No socket, no process, no clock.

A task asks for its runs one by one. A run that is held is served at once. A run that is
being loaded is waited for, by any number of sessions. For any other run a load is
begun, which continues past the requested run: as far ahead of its readers as the
settings allow, and never beyond what they will read.

    RequestHandler   answers the requests of tasks for runs
    DirectLoads      what a task is to load itself
    LoadScheduler    which loader loads what, and whether a run gets memory
    ReadAhead        what is loaded before a task asks for it
    Readers          who will read what: asked by both
    RunStore         the runs that are held, and their memory
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparkcache.node import status
from sparkcache.node.cache_settings import cache_settings
from sparkcache.node.counts import Counts
from sparkcache.node.direct_loads import DirectLoads
from sparkcache.node.events import (
    LoaderClosed,
    LoaderEnded,
    LoaderMessage,
    LoaderReady,
    TaskClosed,
    TaskMessage,
    Tick,
)
from sparkcache.node.load_scheduler import LoadScheduler
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    Clear,
    Decoded,
    DecodedTogether,
    Ended,
    EndPlans,
    Failed,
    Finish,
    GetLosses,
    GetMetrics,
    GetStatus,
    GetTopicMetrics,
    KeepAlive,
    Loaded,
    LoadedBundle,
    LoadedDirectly,
    LossesReply,
    MetricsReply,
    Open,
    QueryProgress,
    Refused,
    ReportLosses,
    Skipped,
    StatusReply,
    Streamed,
    Take,
    TopicMetricsReply,
)
from sparkcache.node.read_ahead import ReadAhead
from sparkcache.node.readers import Readers
from sparkcache.node.recorder import Recorder
from sparkcache.node.request_handler import RequestHandler
from sparkcache.node.run_store import RunStore
from sparkcache.reported_loss import LossLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkcache.cache import CachedRun
    from sparkcache.config import NodeConfig
    from sparkcache.demand import PartitionRead, Plan
    from sparkcache.filters import RunStatistics
    from sparkcache.metrics import Metrics, TopicMetrics
    from sparkcache.model import RunKey
    from sparkcache.node.events import Event, TaskRequest
    from sparkcache.node.load_scheduler import LoadedRun, Loaders
    from sparkcache.node.messages import FromLoader
    from sparkcache.node.reader_session import Peer, ReaderSession

_log = logging.getLogger(__name__)


class Service:
    """The node's decisions. Only the node's event loop calls it.

    Args:
        config: The initial settings.
        max_runs: How many descriptors the node may hold.
        now: The time in seconds from any origin; never decreases.
        close_fd: Closes a descriptor.
        on_configure: Called with every change of the settings.
        loaders: The loaders' processes; None if they come as LoaderReady alone.
        recorder: Records events to a trace if the settings ask for it.
        name: Name that distinguishes the nodes of one executor.

    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        max_runs: int,
        now: Callable[[], float],
        close_fd: Callable[[int], None],
        on_configure: Callable[[NodeConfig], None] = lambda _: None,
        loaders: Loaders | None = None,
        recorder: Recorder | None = None,
        name: str = "",
    ) -> None:
        self.config = config
        self._epoch = -1
        self._configured_by = (0, -1)
        self._max_runs = max_runs
        self._now = now
        self._close_fd = close_fd
        self._on_configure = on_configure
        self._name = name
        self._sessions: set[ReaderSession] = set()
        self._recorder = Recorder(now) if recorder is None else recorder
        self._recorder.configure(config.trace)
        self._counts = Counts()
        self._losses = LossLog()
        self._store = RunStore(
            cache_settings(config, max_runs),
            now=now,
            close_fd=close_fd,
            on_free=self._on_free,
        )
        self._readers = Readers(config, self._store)
        self._loads = LoadScheduler(
            self._store,
            self._readers,
            self._counts.loads,
            self._counts.topics,
            now,
            loaders,
        )
        self._ahead = ReadAhead(self._readers, self._store, self._loads)
        self._requests = RequestHandler(
            store=self._store,
            loads=self._loads,
            ahead=self._ahead,
            direct=DirectLoads(
                self._readers,
                self._store,
                self._loads,
                self._counts.loads,
                self._counts.topics,
            ),
            counts=self._counts,
            recorder=self._recorder,
            now=now,
        )

    def __repr__(self) -> str:
        return (
            f"Service({len(self._sessions)} sessions, {self._loads!r}, {self._store!r})"
        )

    def handle(self, event: Event) -> None:
        """Handle an event, then give jobs to loaders and answer those that wait."""
        match event:
            case TaskMessage():
                self._on_task_message(event.session, event.message)
            case TaskClosed():
                self._on_task_closed(event.session)
            case LoaderMessage():
                self._on_loader_message(event.loader, event.message, event.fd)
            case LoaderReady():
                self._loads.loader_ready(event.loader)
            case LoaderClosed():
                self._loads.loader_closed(event.loader)
            case LoaderEnded():
                self._loads.loader_ended(event)
            case Tick():
                self._on_tick()
        self._loads.dispatch()

    def _on_task_message(self, session: ReaderSession, message: TaskRequest) -> None:
        peer, is_open = session.peer, session.scan is not None
        match message:
            case Open() if not is_open:
                self._open(session, message)
            case Take() if is_open:
                self._requests.take(session, message)
            case LoadedDirectly() if is_open:
                self._requests.loaded_directly(session, message)
            case Finish() if is_open:
                self._requests.finish(session, message)
            case QueryProgress():
                self._record_progress(self._store.reach(message.query, message.topics))
            case EndPlans():
                self._end_plans(message.ids)
            case Clear():
                self._store.clear(message.topic)
            case ReportLosses():
                self._losses.add(message.losses, message.not_listed)
            case GetMetrics():
                peer.send(MetricsReply(self.metrics()))
            case GetTopicMetrics():
                peer.send(TopicMetricsReply(self.topic_metrics()))
            case GetLosses():
                losses = self._losses
                peer.send(LossesReply(losses.records(), losses.not_kept))
            case GetStatus():
                peer.send(StatusReply(self._status()))
            case _:
                _log.warning(
                    "closing a connection: unexpected %s", type(message).__name__
                )
                peer.close()

    def _on_loader_message(
        self, loader: Peer, message: FromLoader, fd: int | None
    ) -> None:
        match message:
            case Loaded():
                self._loaded(loader, message, fd)
                return  # the run owns the descriptor now
            case LoadedBundle() if fd is not None:
                self._loaded_bundle(loader, message, fd)
                return
            case DecodedTogether():
                for key, size_bytes in self._loads.decoded_together(
                    loader, message
                ).items():
                    self._recorder.size(key, size_bytes)
            case Decoded():
                key = self._loads.decoded(loader, message)
                self._recorder.size(key, message.size_bytes)
            case Skipped():
                self._loads.skipped(loader, message)
            case Streamed() if fd is not None:
                self._loads.streamed(loader, fd)
            case Failed():
                self._loads.failed(loader, message)
            case Ended():
                self._loads.ended(loader, message)
            case _:
                loader.close()
        if fd is not None:
            self._close_fd(fd)

    def _on_task_closed(self, session: ReaderSession) -> None:
        self._sessions.discard(session)
        self._requests.close(session)
        self._readers.close(session, self._now())
        self._ahead.abandon(session)

    def _on_tick(self) -> None:
        """Do the periodic work: timeouts, keep-alive messages, flushing the trace."""
        self._recorder.flush()
        self._loads.tick()
        for session in self._readers.expire(self._now()):
            self._ahead.abandon(session)
        for session in self._sessions:
            if session.waiting:
                session.peer.send(KeepAlive())

    def _open(self, session: ReaderSession, message: Open) -> None:
        """Begin a session: record what its task will read."""
        if message.version != PROTOCOL_VERSION:
            reason = f"protocol version {message.version}, expected {PROTOCOL_VERSION}"
            session.peer.send(Refused(reason))
            return
        if not all(run_slice.is_valid() for run_slice in message.scan.slices):
            _log.warning(
                "closing a task's connection: a slice is empty or not within its runs, "
                "or these do not follow each other"
            )
            session.peer.close()
            return
        late = message.epoch < self._epoch
        if not late:
            self._epoch = message.epoch
        self._adopt(message)
        begun = self._store.begin(message.plans, late=late)
        self._recorder.begin(begun)
        self._counts.progress.begin(begun)
        self._record_progress(message.plans)
        session.begin(message.scan)
        session.filters, session.rows_only = message.filters, message.rows_only
        session.place, session.can_load = message.place, message.can_load
        self._counts.homes.open(message.scan.slices, message.place)
        if message.scan.slices:
            session.partition_read = self._open_read(message)
            self._readers.open(session, message, self._now())
            topic = message.scan.slices[0].ledger.topic
            self._counts.topics.set_group(topic, message.group)
        self._sessions.add(session)

    def _adopt(self, message: Open) -> None:
        """Apply a task's settings, unless those of a task with more authority hold."""
        by = (message.authority, message.epoch)
        if by >= self._configured_by:
            self._configured_by = by
            self.configure(message.settings)

    def _open_read(self, message: Open) -> PartitionRead:
        """Begin the accounting of what a task reads."""
        reader, scan = message.reader, message.scan
        plan_ids = tuple(plan.id for plan in message.plans if plan.has_begun)
        extents, (first, stop) = scan.extents(), scan.bounds()
        self._store.catch_up(plan_ids, scan)
        read = self._store.open_read(reader, plan_ids, extents, first, stop)
        self._recorder.open(read, reader, plan_ids, extents, first, stop)
        self._counts.progress.open(read, reader)
        return read

    def _end_plans(self, plan_ids: tuple[str, ...]) -> None:
        """End plans, and evict the runs that only they expected."""
        self._recorder.end(plan_ids)
        self._counts.progress.end(plan_ids)
        self._store.end(plan_ids)

    def _record_progress(self, plans: Iterable[Plan]) -> None:
        """Record how far streams have read."""
        self._recorder.move(plans)
        self._counts.progress.move(plans)

    def _loaded(self, loader: Peer, message: Loaded, fd: int | None) -> None:
        """Hold a run that a loader has written, and serve it to the sessions that wait.

        The descriptor is that of the run's own memory, if it has its own.
        """
        if not self._loads.is_granted(loader, fd is not None):
            _log.warning("closing a loader: it sent a run that it was not granted")
            if fd is not None:
                self._close_fd(fd)
            loader.close()
            return
        run = self._loads.loaded(loader, message.index)
        ahead = self._is_ahead(run)
        cached = self._store.insert(run.key, run.slot, fd, ahead=ahead)
        self._inserted(run, cached, message.statistics)
        self._requests.deliver(run, cached)

    def _loaded_bundle(self, loader: Peer, message: LoadedBundle, fd: int) -> None:
        """Hold runs that share memory, and serve them to the sessions that wait."""
        if not self._loads.is_bundle_granted(loader, len(message.statistics)):
            _log.warning("closing a loader: it sent runs that it was not granted")
            self._close_fd(fd)
            loader.close()
            return
        slot, runs = self._loads.loaded_bundle(loader)
        parts = [(run.key, run.slot, self._is_ahead(run)) for run in runs]
        held = self._store.insert_bundle(slot, parts, fd)
        for run, cached, known in zip(runs, held, message.statistics, strict=True):
            self._inserted(run, cached, known)
        for run, cached in zip(runs, held, strict=True):
            self._requests.deliver(run, cached)

    def _is_ahead(self, run: LoadedRun) -> bool:
        """Return whether a run is loaded before a session that wants it waits."""
        return not run.waiters and self._readers.is_wanted(run.span)

    def _inserted(
        self,
        run: LoadedRun,
        cached: CachedRun[int] | None,
        statistics: RunStatistics | None,
    ) -> None:
        """Count a run that was loaded, unless it is held already."""
        if cached is not None:
            self._counts.inserted(cached)
            self._store.describe(cached, statistics)
            if cached.ahead:
                self._ahead.loaded(run.key, run.span)

    def _on_free(self, run: CachedRun[int]) -> None:
        """Record that a run is no longer held."""
        self._ahead.removed(run.key)
        self._counts.freed(run, self._now())

    # Called by the event loop besides `handle`

    def configure(self, config: NodeConfig) -> None:
        """Apply new settings."""
        if config == self.config:
            return
        _log.info("settings change: %s", config)
        self.config = config
        self._recorder.configure(config.trace)
        self._readers.configure(config)
        self._store.configure(cache_settings(config, self._max_runs))
        self.expire()
        self._on_configure(config)

    def expire(self) -> bool:
        """Evict some of the overdue runs; return whether more are overdue."""
        more_is_overdue = self._store.expire()
        freed = self._store.take_freed_segments()
        if freed:
            self._loads.unmap(freed)
        return more_is_overdue

    def retire_loader(self, idle_s: float = 0.0) -> Peer | None:
        """Remove and return the loader that is idle for longest, if for so long."""
        return self._loads.retire(idle_s)

    def stop(self) -> None:
        """End the node: close the trace and release all segments."""
        self._recorder.close()
        self._store.close()

    def is_held(self, key: RunKey) -> bool:
        """Return whether a run is held."""
        return self._store.is_held(key)

    def metrics(self) -> Metrics:
        """Return the node's metrics so far."""
        return self._counts.metrics(self._store, self._loads)

    def topic_metrics(self) -> tuple[TopicMetrics, ...]:
        """Return the metrics so far of each topic."""
        return self._counts.topics.records()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._counts.check(self._store, self._loads)
        self._store.check()
        self._loads.check()
        self._readers.check()
        self._ahead.check()
        assert set(self._loads.waiting()) == {
            session for session in self._sessions if session.waiting
        }

    def _status(self) -> bytes:
        """Return the node's metrics, topics, plans and losses as JSON."""
        plans = self._counts.progress.records()
        return status.encode(
            self._name,
            self.config.max_bytes,
            self.metrics(),
            self.topic_metrics(),
            plans,
            self._losses.records(),
        )
