"""What a node does: events in, messages out. No socket, no process, no clock.

A task asks for its runs one by one. A run that is held is served at once. One that
is being loaded is waited for, by however many tasks. For any other a load is begun,
which goes on past the run asked for: as far ahead of its readers as the settings
allow, and never beyond what they said they will read.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from sparkcache.cache import RunCache, Settings, resolve_ttl
from sparkcache.consumers import ExpectedReads
from sparkcache.metrics import Metrics
from sparkcache.node.loads import Loads
from sparkcache.node.messages import PROTOCOL_VERSION, Refused, Served, Told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkcache.cache import CachedRun
    from sparkcache.config import CacheConfig
    from sparkcache.consumers import Plan
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
    from sparkcache.node.task import Peer, Task

_AHEAD_SHARE = 4  # of the byte limit, all tasks together may be read ahead of
_SCOUTED_RUNS = 16

_log = logging.getLogger(__name__)


def cache_settings(config: CacheConfig, max_runs: int) -> Settings:
    """Return what the core needs to know of the configuration."""
    return Settings(
        max_bytes=config.max_bytes,
        max_runs=max_runs,
        trigger=config.trigger,
        watermark=config.watermark,
        ttl=resolve_ttl(
            create_s=config.ttl_create_s,
            after_read_s=config.ttl_after_read_s,
            legacy_s=config.ttl_s,
            expected_s=config.ttl_expected_s,
        ),
        max_requeues=config.max_requeues,
        extend_recently_accessed=config.extend_recently_accessed,
    )


class Service:
    """The node's decisions. Its one caller is the node's event loop.

    Args:
        config: The settings to begin with.
        max_runs: How many descriptors it may hold.
        now: The time, in seconds from any moment on; never goes backwards.
        close_fd: Closes a descriptor.
        on_configure: Told of every change of the settings.

    """

    def __init__(
        self,
        config: CacheConfig,
        *,
        max_runs: int,
        now: Callable[[], float],
        close_fd: Callable[[int], None],
        on_configure: Callable[[CacheConfig], None] = lambda _: None,
    ) -> None:
        self.config = config
        self._epoch = -1
        self._max_runs = max_runs
        self._now = now
        self._close_fd = close_fd
        self._on_configure = on_configure
        self._cache = RunCache[int](cache_settings(config, max_runs))
        self._plans = ExpectedReads()
        self._tasks: set[Task] = set()
        self._count: Counter[str] = Counter()
        self._peak_bytes = 0
        self.loads = Loads(self, self._count)

    def __repr__(self) -> str:
        return f"Service({len(self._tasks)} tasks, {self.loads!r}, {self._cache!r})"

    # Tasks

    def open(self, task: Task, message: Open) -> None:
        """A task says what it will read."""
        if message.version != PROTOCOL_VERSION:
            reason = f"protocol {message.version}, this node speaks {PROTOCOL_VERSION}"
            task.peer.send(Refused(reason))
            return
        if message.epoch >= self._epoch:
            self._epoch = message.epoch
            self.configure(message.settings)
        for plan in message.plans:
            if self._plans.begin(plan):
                self._recount(plan)
        task.begin(message.scan, message.token, tuple(p.id for p in message.plans))
        self._tasks.add(task)

    def take(self, task: Task, message: Take) -> None:
        """A task wants a run."""
        place = (message.stretch, message.index)
        if task.waiting or not task.reads(place):
            task.peer.close()
            return
        self._settle(task, message)
        task.cursor = place
        key = task.key(place)
        task.ahead.pop(key, None)
        self._count["requests"] += 1
        cached = self._cache.get(key, self._now())
        if cached is not None:
            self._count["hits"] += 1
            self._serve(task, cached)
        else:
            self._count["waits" if key in self.loads else "misses"] += 1
            self.loads.wait(task, place)
        self._scout(task)
        self.loads.proceed()

    def finish(self, task: Task, message: Finish) -> None:
        """A task wants no more."""
        self._settle(task, message)
        self.loads.proceed()

    def close(self, task: Task) -> None:
        """A task is gone, done or not: what it mapped is unmapped."""
        self._tasks.discard(task)
        for cached in task.pins.values():
            self._cache.unpin(cached)
        task.pins.clear()
        self.loads.leave(task)
        self.loads.proceed()

    def end_plans(self, message: EndPlans) -> None:
        """Plans are over: what nobody else waits for is dropped."""
        for plan in self._plans.end(message.ids):
            self._recount(plan, is_over=True)

    def ask(self, peer: Peer) -> None:
        """Somebody wants to know."""
        peer.send(Told(self.metrics()))

    # Loaders

    def loader_ready(self, peer: Peer) -> None:
        """A loader has begun and waits for work."""
        self.loads.loader_ready(peer)
        self.loads.proceed()

    def decoded(self, peer: Peer, message: Decoded) -> None:
        """A loader asks whether it may put a run into shared memory."""
        self.loads.decoded(peer, message)

    def passed(self, peer: Peer, message: Passed) -> None:
        """A loader passed over a run."""
        self.loads.passed(peer, message)

    def loaded(self, peer: Peer, index: int, fd: int) -> None:
        """A loader hands over a run that it was granted; the descriptor too."""
        key, size_bytes, waiters = self.loads.loaded(peer, index)
        now_s = self._now()
        cached = self._cache.insert(
            key,
            fd,
            size_bytes=size_bytes,
            expected_reads=self._plans.expected(key),
            now_s=now_s,
        )
        if cached is None:
            self._close_fd(fd)
        else:
            self._count["inserts"] += 1
        for task in waiters:
            held = self._cache.get(key, now_s) or cached
            if held is None:
                task.peer.send(Refused("the run outlived its time at once"))
            else:
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
        return self._cache.peek(key, self._now()) is not None

    def reserve(self, size_bytes: int) -> bool:
        """Make room for a run; False if there can be none."""
        fits, evicted = self._cache.reserve(size_bytes, self._now())
        self._free(evicted)
        self._peak_bytes = max(self._peak_bytes, self._cache.held_bytes)
        return fits

    def unreserve(self, size_bytes: int) -> None:
        """Give back what was reserved."""
        self._cache.unreserve(size_bytes)

    def ahead_bytes(self) -> int:
        """Return how far a task may be read ahead of."""
        share = self.config.max_bytes // (_AHEAD_SHARE * max(len(self._tasks), 1))
        return min(self.config.read_ahead_bytes, share)

    # The node

    def configure(self, config: CacheConfig) -> None:
        """Take over new settings."""
        if config == self.config:
            return
        _log.info("settings change: %s", config)
        self.config = config
        settings = cache_settings(config, self._max_runs)
        self._free(self._cache.configure(settings, self._now()))
        self._on_configure(config)

    def tick(self) -> None:
        """Time has passed: let go of what has outlived it."""
        self._free(self._cache.expire(self._now()))
        self.loads.proceed()

    def metrics(self) -> Metrics:
        """Return what was counted so far."""
        core = self._cache.counters
        return Metrics(
            **self._count,
            evicted_by_size=core.evicted,
            evicted_by_ttl=core.expired,
            evicted_unread=core.given_up,
            requeues=core.requeued_expired + core.requeued_evicted,
            runs=len(self._cache),
            held_bytes=self._cache.held_bytes,
            peak_bytes=self._peak_bytes,
        )

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._cache.check()
        self._plans.check()
        self.loads.check()

    def _settle(self, task: Task, message: Take | Finish) -> None:
        """Note what a task has read, and what it maps no longer."""
        assert task.token is not None
        for place in filter(task.reads, message.read):
            key, ordinal = task.key(place), task.ordinal(place)
            if self._plans.mark_read(task.plan_ids, task.token, ordinal, key):
                left = self._cache.mark_read(key, self._now())
                if left == 0 and self.config.drop_after_last_read:
                    self._drop(key, "evicted_by_last_read")
        for place in message.released:
            cached = task.pins.pop(place, None)
            if cached is not None:
                self._cache.unpin(cached)

    def _serve(self, task: Task, cached: CachedRun[int]) -> None:
        if task.cursor not in task.pins:
            self._cache.pin(cached)
            task.pins[task.cursor] = cached
        self._count["served_bytes"] += cached.size_bytes
        task.peer.send(Served(cached.size_bytes), cached.value)

    def _scout(self, task: Task) -> None:
        """Begin the next load of a task that none is made for, if it may go ahead."""
        if self.loads.is_made_for(task):
            return
        if sum(task.ahead.values()) >= self.ahead_bytes():
            return
        for place in task.scout(_SCOUTED_RUNS):
            key = task.key(place)
            if key not in self.loads and not self.is_held(key):
                self.loads.begin(task, place)
                return

    def _recount(self, plan: Plan, *, is_over: bool = False) -> None:
        """Set the expected reads of what is held of a plan's topics."""
        for topic in {consumer.topic for consumer in plan.consumers}:
            for key in self._cache.keys_of(topic):
                expected = self._plans.expected(key)
                if is_over and not expected:
                    self._drop(key, "evicted_by_plan_end")
                else:
                    self._cache.set_expected(key, expected, self._now())

    def _drop(self, key: RunKey, reason: str) -> None:
        removed = self._cache.remove(key)
        if removed is not None:
            self._count[reason] += 1
            self._free([removed])

    def _free(self, removed: Iterable[CachedRun[int]]) -> None:
        for cached in removed:
            self._close_fd(cached.value)
