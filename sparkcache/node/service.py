"""What a node does: events in, messages out. No socket, no process, no clock.

A task asks for its runs one by one. A run that is held is served at once. One that
is being loaded is waited for, by however many tasks. For any other a load is begun,
which goes on past the run asked for: as far ahead of its readers as the settings
allow, and never beyond what they said they will read.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from sparkcache.cache import PlannedCache, Policy, Settings, resolve_ttl
from sparkcache.consumers import Located
from sparkcache.metrics import Metrics
from sparkcache.model import Position
from sparkcache.node import status
from sparkcache.node.loads import Loads
from sparkcache.node.messages import (
    PROTOCOL_VERSION,
    Patience,
    Refused,
    Served,
    Status,
    Told,
    ToldTopics,
)
from sparkcache.node.plan_progress import PlanProgress
from sparkcache.node.read_ahead import ReadAhead
from sparkcache.node.recorder import Recorder
from sparkcache.node.times import Times
from sparkcache.node.topic_counts import TopicCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkcache.cache import CachedRun, Ttl
    from sparkcache.config import CacheConfig
    from sparkcache.consumers import Reader, Reading
    from sparkcache.fetch.stretch import Scan
    from sparkcache.metrics import TopicMetrics
    from sparkcache.model import RunKey
    from sparkcache.node.messages import (
        Decoded,
        Ended,
        EndPlans,
        Failed,
        Finish,
        Open,
        Passed,
        Take,
    )
    from sparkcache.node.task import Peer, Span, Task

# What a pass lets go of at most, 1 to 5 ms of work: a descriptor costs 6 us to close,
# and its memory 0.2 ms a MiB.
_PASS_RUNS = 128
_PASS_BYTES = 16 << 20

_log = logging.getLogger(__name__)


def cache_settings(config: CacheConfig, max_runs: int) -> Settings:
    """Return what the core needs to know of the configuration."""
    return Settings(
        max_bytes=config.max_bytes,
        max_runs=max_runs,
        policy=Policy(config.policy),
        trigger=config.trigger,
        watermark=config.watermark,
        ttl=resolve_ttl(
            create_s=config.ttl_create_s,
            after_read_s=config.ttl_after_read_s,
            legacy_s=config.ttl_s,
            expected_s=config.ttl_expected_s,
            max_life_s=config.max_life_s,
        ),
        max_requeues=config.max_requeues,
        extend_recently_accessed=config.extend_recently_accessed,
        drop_after_last_read=config.drop_after_last_read,
    )


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
        self._close_fd = close_fd
        self._on_configure = on_configure
        self._recorder = Recorder(now) if recorder is None else recorder
        self._recorder.configure(config.trace)
        self._planned = PlannedCache[int](cache_settings(config, max_runs))
        self._cache = self._planned.runs
        self._coming: Settings | None = None  # once nothing is overdue by the present
        self._pass_runs = _PASS_RUNS
        _warn_of(self._cache.settings.ttl)
        self._tasks: set[Task] = set()
        self._count: Counter[str] = Counter()
        self._peak_bytes = 0
        self._topics = TopicCounts()
        self._times = Times()
        self._progress = PlanProgress()
        self._name = name
        self.loads = Loads(self, self._count, self._topics, now)
        self._ahead = ReadAhead(self, self.loads)

    def __repr__(self) -> str:
        return f"Service({len(self._tasks)} tasks, {self.loads!r}, {self._planned!r})"

    # Tasks

    def open(self, task: Task, message: Open) -> None:
        """A task says what it will read."""
        if message.version != PROTOCOL_VERSION:
            reason = f"protocol {message.version}, this node speaks {PROTOCOL_VERSION}"
            task.peer.send(Refused(reason))
            return
        if not all(stretch.is_valid() for stretch in message.scan.stretches):
            _log.warning("a task asked for runs that there are not")
            task.peer.close()
            return
        if message.epoch >= self._epoch:
            self._epoch = message.epoch
            self.configure(message.settings)
        begun = self._planned.begin(message.plans, self._now())
        self._recorder.begin(begun)
        self._progress.begin(begun)
        task.begin(message.scan)
        if message.scan.stretches:
            plan_ids = tuple(plan.id for plan in message.plans)
            task.reading = self._reading(message.reader, plan_ids, message.scan)
            self._progress.open(task.reading, message.reader)
            self._ahead.open(task, message, self._now())
            self._topics.meet(message.scan.stretches[0].ledger.topic, message.group)
        self._tasks.add(task)
        self.loads.proceed()

    def take(self, task: Task, message: Take) -> None:
        """A task wants a run."""
        place = (message.stretch, message.index)
        if (
            task.reading is None
            or task.waiting
            or place <= task.cursor
            or not task.reads(place)
        ):
            _log.warning("a task asked out of order: %s after %s", place, task.cursor)
            task.peer.close()
            return
        self._settle(task, message)
        task.ask(place)
        self._ahead.taken(task)
        self._recorder.take(task.reading, task.stretches[place[0]], place[1])
        key = task.key(place)
        count = self._topics.of(key.ledger.topic)
        count.ask(task, place)
        now_s = self._now()
        cached = self._planned.take(task.reading, key, now_s)
        if cached is not None:
            if cached.is_first_of_prefetched:
                count.prefetch_hits += 1
            else:
                count.hits += 1
            self._serve(task, cached)
            self._times.served(now_s, self._now())
        else:
            if key in self.loads:
                count.waits += 1
            else:
                count.misses += 1
            self.loads.wait(task, place)
            self._ahead.proceed(task, self.config)
        self.loads.proceed()

    def finish(self, task: Task, message: Finish) -> None:
        """A task wants no more."""
        self._settle(task, message)
        if not task.waiting:
            task.finish()
        self.loads.proceed()

    def close(self, task: Task) -> None:
        """A task is gone, done or not: what it mapped is unmapped."""
        self._tasks.discard(task)
        for cached in task.pins.values():
            self._cache.unpin(cached)
        task.pins.clear()
        if task.reading is not None:
            self._planned.close(task.reading)
            self._recorder.leave(task.reading)
            task.reading = None
        self.loads.leave(task)
        self._ahead.close(task, self._now())
        self.loads.proceed()

    def end_plans(self, message: EndPlans) -> None:
        """Plans are over: what nobody else waits for is dropped."""
        self._recorder.end(message.ids)
        self._progress.end(message.ids)
        self._free(self._planned.end(message.ids, self._now()))
        self.loads.proceed()

    def ask(self, peer: Peer) -> None:
        """Somebody wants to know."""
        peer.send(Told(self.metrics()))

    def ask_topics(self, peer: Peer) -> None:
        """Somebody wants to know, topic by topic."""
        peer.send(ToldTopics(self.topic_metrics()))

    def ask_status(self, peer: Peer) -> None:
        """Somebody wants to know all there is, as JSON."""
        told = self.metrics(), self.topic_metrics(), self._progress.records()
        peer.send(Status(status.encode(self._name, self.config.max_bytes, *told)))

    # Loaders

    def loader_ready(self, peer: Peer) -> None:
        """A loader has begun and waits for work."""
        self.loads.loader_ready(peer)
        self.loads.proceed()

    def decoded(self, peer: Peer, message: Decoded) -> None:
        """A loader asks whether it may put a run into shared memory."""
        self.loads.decoded(peer, message)
        self.loads.proceed()

    def passed(self, peer: Peer, message: Passed) -> None:
        """A loader passed over a run."""
        self.loads.passed(peer, message)
        self.loads.proceed()

    def loaded(self, peer: Peer, index: int, fd: int) -> None:
        """A loader hands over a run that it was granted; the descriptor too."""
        run = self.loads.loaded(peer, index)
        now_s = self._now()
        overdue = self._cache.expire_run(run.key, now_s)
        if overdue is not None:  # or it would be kept in the place of this one
            self._free([overdue])
        ahead = not run.waiters and self._ahead.is_wanted(run.span)
        cached = self._planned.insert(
            run.key, fd, size_bytes=run.size_bytes, now_s=now_s, ahead=ahead
        )
        if cached is None:
            self._close_fd(fd)
        else:
            self._count_inserted(cached, run.span)
        for task in run.waiters:
            held = self._cache.get(run.key, now_s) or cached
            assert held is not None, "held, or inserted just now"
            self._serve(task, held)
        self.loads.proceed()

    def streamed(self, peer: Peer, fd: int) -> None:
        """A loader hands over the end of a pipe; the descriptor stays the caller's."""
        self.loads.streamed(peer, fd)

    def ended(self, peer: Peer, message: Ended) -> None:
        """A loader is through with its load."""
        self.loads.ended(peer, message)
        self.loads.proceed()

    def failed(self, peer: Peer, message: Failed) -> None:
        """The storage failed a loader; `ended` follows."""
        self.loads.failed(peer, message)
        self.loads.proceed()

    def loader_gone(self, peer: Peer) -> None:
        """A loader died."""
        self.loads.loader_gone(peer)
        self.loads.proceed()

    # What loads ask

    def is_held(self, key: RunKey) -> bool:
        """Tell whether a run is there to be served."""
        return self.peek(key) is not None

    def reserve(self, key: RunKey, size_bytes: int) -> bool:
        """Make room for a run; False if there can be none, or others need it more."""
        now_s = self._now()
        if size_bytes > self._spare_bytes():  # then what is overdue goes first
            self._free(self._cache.expire(now_s, self._pass_runs, size_bytes))
        fits, evicted = self._planned.reserve(key, size_bytes, now_s)
        self._free(evicted)
        self._recorder.size(key, size_bytes)
        self._peak_bytes = max(self._peak_bytes, self._cache.held_bytes)
        return fits

    def reserve_spare(self, key: RunKey, size_bytes: int) -> bool:
        """Take room for a run if nothing has to go for it."""
        return size_bytes <= self._spare_bytes() and self.reserve(key, size_bytes)

    def unreserve(self, size_bytes: int) -> None:
        """Give back what was reserved."""
        self._cache.unreserve(size_bytes)

    def is_wanted(self, span: Span) -> bool:
        """Tell whether any task waits for a run of a span, or will come to one."""
        return self._ahead.is_wanted(span)

    def is_near(self, key: RunKey, span: Span, size_bytes: int) -> bool:
        """Tell whether one of a run's readers may be read ahead of so far."""
        return self._ahead.is_near(key, span, size_bytes, self.config)

    # What reading ahead asks

    def peek(self, key: RunKey) -> CachedRun[int] | None:
        """Look up a run without any effect."""
        return self._cache.peek(key, self._now())

    def abandon(self, run: CachedRun[int]) -> None:
        """Note that nobody is coming to a run that was loaded ahead."""
        self._cache.abandon(run)

    # The node

    def configure(self, config: CacheConfig) -> None:
        """Take over new settings."""
        if config == self.config:
            return
        _log.info("settings change: %s", config)
        self.config = config
        self._recorder.configure(config.trace)
        self._coming = cache_settings(config, self._max_runs)
        if self._coming.ttl != self._cache.settings.ttl:
            _warn_of(self._coming.ttl)
        self.expire()
        self._on_configure(config)

    def expire(self) -> bool:
        """Let go of some of what has outlived its time; tell whether there is more.

        Nobody waits for longer than that takes, and nobody is served what is overdue.
        """
        now_s = self._now()
        self._free(self._cache.expire(now_s, self._pass_runs, _PASS_BYTES))
        if self._coming is not None and not self._cache.is_behind(now_s):
            settings, self._coming = self._coming, None
            self._free(self._cache.configure(settings, now_s))
        return self._cache.is_behind(now_s)

    def tick(self) -> None:
        """Time has passed."""
        self._recorder.flush()
        self.loads.tick(self.config.request_timeout_s)
        self._ahead.tick(self._now())
        for task in self._tasks:
            if task.waiting:
                task.peer.send(Patience())
        self.loads.proceed()

    def stop(self) -> None:
        """The node ends."""
        self._recorder.close()

    def metrics(self) -> Metrics:
        """Return what was counted so far."""
        core, holdings = self._cache.counters, self._cache.holdings
        counted: dict[str, Any] = {
            **self._count,
            **self._topics.totals(),
            **self._times.histograms(),
        }
        return Metrics(
            **counted,
            load_s=self.loads.load_s.histogram(),
            evicted_by_size=core.evicted,
            evicted_by_ttl=core.expired,
            evicted_by_last_read=core.read_out,
            evicted_by_plan_end=core.called_off,
            evicted_unread=core.given_up,
            wasted=core.wasted,
            wasted_bytes=core.wasted_bytes,
            evicted_explicitly=core.invalidated - core.read_out - core.called_off,
            requeued_by_ttl=core.requeued_expired,
            requeued_by_size=core.requeued_evicted,
            runs=len(self._cache),
            kept_bytes=self._cache.kept_bytes,
            held_bytes=self._cache.held_bytes,
            peak_bytes=self._peak_bytes,
            pinned_runs=holdings.pinned.runs,
            pinned_bytes=holdings.pinned.bytes,
            in_flight=len(self.loads),
            in_flight_bytes=holdings.reserved.bytes,
        )

    def topic_metrics(self) -> tuple[TopicMetrics, ...]:
        """Return what was counted so far of each topic."""
        return self._topics.records()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._check_metrics()
        self._planned.check(self._now())
        self.loads.check()
        self._ahead.check()
        assert set(self.loads.waiting()) == {t for t in self._tasks if t.waiting}

    def _check_metrics(self) -> None:
        found, topics = self.metrics(), self.topic_metrics()
        served = found.hits + found.prefetch_hits
        assert found.requests == served + found.waits + found.misses
        assert found.inserts == found.runs + found.evictions
        assert found.evictions == found.evicted_age_s.count
        assert found.hit_s.count == served
        assert sum(topic.runs for topic in topics) == found.runs
        assert sum(topic.kept_bytes for topic in topics) == found.kept_bytes
        assert sum(topic.evictions for topic in topics) == found.evictions

    def _settle(self, task: Task, message: Take | Finish) -> None:
        """Note what a task has read, and what it maps no longer."""
        for place in filter(task.reads, message.read):
            assert task.reading is not None, "it has a run to read"
            key = task.key(place)
            self._recorder.finish(task.reading, key)
            ordinal = task.ordinal(place)
            stored_bytes = task.stretches[place[0]].stored_bytes(place[1])
            topic = key.ledger.topic
            self._progress.read(task.reading, topic, ordinal, stored_bytes)
            self._free(self._planned.finish(task.reading, ordinal, key, self._now()))
        for place in message.released:
            cached = task.pins.pop(place, None)
            if cached is not None:
                self._cache.unpin(cached)

    def _serve(self, task: Task, cached: CachedRun[int]) -> None:
        self._cache.pin(cached)
        task.pins[task.cursor] = cached
        task.waiting = False
        self._topics.of(cached.key.ledger.topic).served_bytes += cached.size_bytes
        task.peer.send(Served(cached.size_bytes), cached.value)
        self._ahead.served(task, cached)
        self._ahead.proceed(task, self.config)

    def _count_inserted(self, run: CachedRun[int], span: Span) -> None:
        self._topics.of(run.key.ledger.topic).insert(run.size_bytes)
        if run.ahead:
            self._count["loaded_ahead"] += 1
            self._ahead.loaded(run.key, span)

    def _spare_bytes(self) -> int:
        return self._cache.settings.trigger_bytes - self._cache.held_bytes

    def _reading(
        self, reader: Reader, plan_ids: tuple[str, ...], scan: Scan
    ) -> Reading:
        begin, end = scan.stretches[0], scan.stretches[-1]
        extents = [
            Located(
                stretch.ledger.id,
                stretch.extent.first,
                stretch.extent.last,
                stretch.at,
                stretch.extent.size_bytes,
            )
            for stretch in scan.stretches
        ]
        first = Position(begin.ledger.id, begin.runs[begin.start].first)
        stop = Position(end.ledger.id, end.runs[end.stop - 1].last + 1)
        reading = self._planned.open(reader, plan_ids, extents, first, stop)
        self._recorder.open(reading, reader, plan_ids, extents, first, stop)
        return reading

    def _free(self, removed: Iterable[CachedRun[int]]) -> None:
        now_s = self._now()
        for cached in removed:
            self._ahead.removed(cached)
            self._times.evicted(cached, now_s)
            self._close_fd(cached.value)
            self._topics.of(cached.key.ledger.topic).evict(cached.size_bytes)


def _warn_of(ttl: Ttl) -> None:
    if ttl.after_read_s is not None and ttl.after_read_s > ttl.create_s:
        _log.warning(
            "what was read is kept longer than what was not: %g s, not %g s",
            ttl.after_read_s,
            ttl.create_s,
        )
