"""What a node does: events in, messages out. No socket, no process, no clock.

A task asks for its runs one by one. A run that is held is served at once. One that
is being loaded is waited for, by however many tasks. For any other a load is begun,
which goes on past the run asked for: as far ahead of its readers as the settings
allow, and never beyond what they said they will read.
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

# What is handed over at once where runs are small: each is pinned until the task has
# read on.
_MOST_AT_ONCE = 64
_AT_ONCE_BYTES = 256 << 10

_log = logging.getLogger(__name__)


class Service:
    """The node's decisions. Its one caller is the node's event loop.

    Args:
        config: The settings to begin with.
        max_runs: How many descriptors it may hold.
        now: The time, in seconds from any moment on; never goes backwards.
        close_fd: Closes a descriptor.
        on_configure: Told of every change of the settings.
        recorder: Writes down what happens, where the settings say so.
        name: Tells it from other nodes of the same executor.

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
            settings, now=now, close_fd=close_fd, on_free=self._freed
        )
        _warn_of(settings.ttl)
        self._sessions: set[ReaderSession] = set()
        self._counts = Counts()
        self._name = name
        self.loads = LoadScheduler(self, self._counts.loads, self._counts.topics, now)
        self._ahead = ReadAhead(self._store, self.loads)

    def __repr__(self) -> str:
        return f"Service({len(self._sessions)} tasks, {self.loads!r}, {self._store!r})"

    # Tasks

    def open(self, session: ReaderSession, message: Open) -> None:
        """A task says what it will read."""
        if message.version != PROTOCOL_VERSION:
            reason = f"protocol {message.version}, this node speaks {PROTOCOL_VERSION}"
            session.peer.send(Refused(reason))
            return
        if not all(run_slice.is_valid() for run_slice in message.scan.slices):
            _log.warning("a task asked for runs that there are not")
            session.peer.close()
            return
        late = message.epoch < self._epoch
        if not late:
            self._epoch = message.epoch
            self.configure(message.settings)
        begun = self._store.planned.begin(message.plans, self._now(), late=late)
        self._recorder.begin(begun)
        self._counts.progress.begin(begun)
        self._move(message.plans)
        session.begin(message.scan)
        if message.scan.slices:
            plan_ids = tuple(plan.id for plan in message.plans if plan.has_begun)
            session.partition_read = self._partition_read(
                message.reader, plan_ids, message.scan
            )
            self._counts.progress.open(session.partition_read, message.reader)
            self._ahead.open(session, message, self._now())
            self._counts.topics.meet(message.scan.slices[0].ledger.topic, message.group)
        self._sessions.add(session)
        self.loads.dispatch()

    def take(self, session: ReaderSession, message: Take) -> None:
        """A task wants a run."""
        place = (message.run_slice, message.index)
        if (
            session.partition_read is None
            or session.waiting
            or place <= session.cursor
            or not session.reads(place)
        ):
            _log.warning(
                "a task asked out of order: %s after %s", place, session.cursor
            )
            session.peer.close()
            return
        self._settle(session, message)
        now_s = self._now()
        run = self._come_to(session, place, now_s)
        if run is not None:
            following = self._following(session, run, now_s)
            self._serve(session, run, *following)
            self._counts.times.served(now_s, self._now(), 1 + len(following))
        else:
            self.loads.wait(session, place)
            self._ahead.advance(session, self.config)
        self.loads.dispatch()

    def finish(self, session: ReaderSession, message: Finish) -> None:
        """A task wants no more."""
        self._settle(session, message)
        if not session.waiting:
            session.finish()
        self.loads.dispatch()

    def close(self, session: ReaderSession) -> None:
        """A task is gone, done or not: what it mapped is unmapped."""
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
        """A query has done a batch, by tasks of this executor or of others."""
        now_s = self._now()
        self._move(self._store.planned.reach(message.query, message.topics, now_s))
        self.loads.dispatch()

    def end_plans(self, message: EndPlans) -> None:
        """Plans are over: what nobody else waits for is dropped."""
        self._recorder.end(message.ids)
        self._counts.progress.end(message.ids)
        self._store.end(message.ids)
        self.loads.dispatch()

    def get_metrics(self, peer: Peer) -> None:
        """Somebody wants to know."""
        peer.send(MetricsReply(self.metrics()))

    def get_topic_metrics(self, peer: Peer) -> None:
        """Somebody wants to know, topic by topic."""
        peer.send(TopicMetricsReply(self.topic_metrics()))

    def get_status(self, peer: Peer) -> None:
        """Somebody wants to know all there is, as JSON."""
        told = self.metrics(), self.topic_metrics(), self._counts.progress.records()
        peer.send(StatusReply(status.encode(self._name, self.config.max_bytes, *told)))

    # Loaders

    def loader_ready(self, peer: Peer) -> None:
        """A loader has begun and waits for work."""
        self.loads.loader_ready(peer)
        self.loads.dispatch()

    def decoded(self, peer: Peer, message: Decoded) -> None:
        """A loader asks whether it may put a run into shared memory."""
        self.loads.decoded(peer, message)
        self.loads.dispatch()

    def skipped(self, peer: Peer, message: Skipped) -> None:
        """A loader passed over a run."""
        self.loads.skipped(peer, message)
        self.loads.dispatch()

    def loaded(self, peer: Peer, index: int, fd: int | None) -> None:
        """A loader has written a run that it was granted room for.

        The descriptor, which it now owns, is that of the run's own memory.
        """
        if not self.loads.is_granted(peer, fd is not None):
            _log.warning("a loader handed over what it was not granted")
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
        """A loader hands over the end of a pipe; the descriptor stays the caller's."""
        self.loads.streamed(peer, fd)

    def ended(self, peer: Peer, message: Ended) -> None:
        """A loader is through with its load."""
        self.loads.ended(peer, message)
        self.loads.dispatch()

    def failed(self, peer: Peer, message: Failed) -> None:
        """The storage failed a loader; `ended` follows."""
        self.loads.failed(peer, message)
        self.loads.dispatch()

    def loader_gone(self, peer: Peer) -> None:
        """A loader is of no use any more; `loader_ended` follows."""
        self.loads.loader_gone(peer)
        self.loads.dispatch()

    def loader_ended(self, peer: Peer) -> None:
        """A loader's process has ended."""
        self.loads.loader_ended(peer)
        self.loads.dispatch()

    # What loads ask

    def is_held(self, key: RunKey) -> bool:
        """Tell whether a run is there to be served."""
        return self._store.peek(key) is not None

    def reserve(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Make room for a run; None if there can be none, or others need it more."""
        self._recorder.size(key, size_bytes)
        return self._store.reserve(key, size_bytes)

    def reserve_spare(self, key: RunKey, size_bytes: int) -> Slot | None:
        """Take room for a run if nothing has to go for it."""
        self._recorder.size(key, size_bytes)
        return self._store.reserve_spare(key, size_bytes)

    def unreserve(self, slot: Slot) -> None:
        """Give back what was reserved."""
        self._store.runs.unreserve(slot)

    def writable_fd(self, slot: Slot, loader: Peer) -> int | None:
        """Return a descriptor that a loader needs to write there, if it needs one."""
        return self._store.writable_fd(slot, loader)

    def is_wanted(self, span: RunSpan) -> bool:
        """Tell whether any task waits for a run of a span, or will come to one."""
        return self._ahead.is_wanted(span)

    def is_near(self, key: RunKey, span: RunSpan, size_bytes: int) -> bool:
        """Tell whether one of a run's readers may be read ahead of so far."""
        return self._ahead.is_near(key, span, size_bytes, self.config)

    # The node

    def configure(self, config: CacheConfig) -> None:
        """Take over new settings."""
        if config == self.config:
            return
        _log.info("settings change: %s", config)
        self.config = config
        self._recorder.configure(config.trace)
        settings = cache_settings(config, self._max_runs)
        if settings.ttl != self._store.runs.settings.ttl:
            _warn_of(settings.ttl)
        self._store.configure(settings)
        self.expire()
        self._on_configure(config)

    def expire(self) -> bool:
        """Let go of some of what has outlived its time; tell whether there is more."""
        is_behind = self._store.expire()
        gone = self._store.discarded()
        if gone:
            self.loads.unmap(gone)
        return is_behind

    def tick(self) -> None:
        """Time has passed."""
        self._recorder.flush()
        self.loads.tick(self.config.request_timeout_s)
        self._ahead.tick(self._now())
        for session in self._sessions:
            if session.waiting:
                session.peer.send(KeepAlive())
        self.loads.dispatch()

    def stop(self) -> None:
        """The node ends."""
        self._recorder.close()
        self._store.close()

    def metrics(self) -> Metrics:
        """Return what was counted so far."""
        return self._counts.metrics(self._store, self.loads)

    def topic_metrics(self) -> tuple[TopicMetrics, ...]:
        """Return what was counted so far of each topic."""
        return self._counts.topics.records()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._counts.check(self._store, self.loads)
        self._store.check()
        self.loads.check()
        self._ahead.check()
        assert set(self.loads.waiting()) == {t for t in self._sessions if t.waiting}

    def _move(self, plans: Iterable[Plan]) -> None:
        """Write down how far streams have come."""
        self._recorder.move(plans)
        self._counts.progress.move(plans)

    def _settle(self, session: ReaderSession, message: Take | Finish) -> None:
        """Note what a task has read, and what it maps no longer."""
        for place in filter(session.reads, message.read):
            assert session.partition_read is not None, "it has a run to read"
            key = session.key(place)
            self._recorder.finish(session.partition_read, key)
            ordinal = session.ordinal(place)
            stored_bytes = session.slices[place[0]].stored_bytes(place[1])
            topic = key.ledger.topic
            self._counts.progress.read(
                session.partition_read, topic, ordinal, stored_bytes
            )
            self._store.finish(session.partition_read, ordinal, key)
        for place in message.released:
            cached = session.pins.pop(place, None)
            if cached is not None:
                self._store.runs.unpin(cached)

    def _come_to(
        self, session: ReaderSession, place: tuple[int, int], now_s: float
    ) -> CachedRun[int] | None:
        """Note that a task comes to a run; return it, pinned, if it is held."""
        assert session.partition_read is not None, "it has a run to read"
        session.ask(place)
        self._ahead.taken(session)
        self._recorder.take(session.partition_read, session.slices[place[0]], place[1])
        key = session.key(place)
        count = self._counts.topics.of(key.ledger.topic)
        count.ask(session, place)
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
        """Come to what follows a run, as far as it can be handed over together."""
        found: list[CachedRun[int]] = []
        size_bytes = run.size_bytes
        for place in session.coming(_MOST_AT_ONCE):
            held = self._store.runs.peek(session.key(place), now_s)
            if held is None or not self._store.can_follow(held, run.slot, session.peer):
                break
            size_bytes += held.size_bytes
            if size_bytes > _AT_ONCE_BYTES:
                break
            self._come_to(session, place, now_s)
            found.append(held)
        return found

    def _pin(self, session: ReaderSession, run: CachedRun[int]) -> None:
        self._store.runs.pin(run)
        session.pins[session.cursor] = run
        self._counts.topics.of(run.key.ledger.topic).served_bytes += run.size_bytes
        self._ahead.served(session, run)

    def _serve(self, session: ReaderSession, *runs: CachedRun[int]) -> None:
        session.waiting = False
        self._store.hand_over(runs, session.peer)
        self._ahead.advance(session, self.config)

    def _count_inserted(self, run: CachedRun[int], span: RunSpan) -> None:
        self._counts.topics.of(run.key.ledger.topic).insert(run.size_bytes)
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
                run_slice.at,
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

    def _freed(self, run: CachedRun[int]) -> None:
        """Note that a run is held no longer."""
        self._ahead.removed(run)
        self._counts.times.evicted(run, self._now())
        self._counts.topics.of(run.key.ledger.topic).evict(run.size_bytes)


def _warn_of(ttl: Ttl) -> None:
    if ttl.after_read_s is not None and ttl.after_read_s > ttl.create_s:
        _log.warning(
            "what was read is kept longer than what was not: %g s, not %g s",
            ttl.after_read_s,
            ttl.create_s,
        )
