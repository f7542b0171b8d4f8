"""What is loaded before any task asks for it, and how far ahead.

A task's runs are loaded ahead of it, in as many parallel loads as its scan's window
allows, and never beyond the runs that the task will read. Near the end of its
partition, the first runs of the next partition that has not begun are loaded too: a
task sends the slices that follow its own, since Spark begins the partitions of a scan
in order. If those partitions begin on other executors, the node stops loading them.

If a batch of a stream ends within an extent, the load of its end has requested the rest
of the extent as well. So that load continues for the next batch, within the same
window, unless it would have to wait for long.

The future reader of such a partition, or of such a rest, is a `ReaderSession` as well,
one that has no peer of its own yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from sparkcache.fetch.read_ahead_window import (
    ONE_RUN,
    EarlyExitTracker,
    ReadAheadWindow,
)
from sparkcache.fetch.scan import Scan
from sparkcache.node.reader_session import ReaderSession
from sparkcache.node.scan_prefetch import PATIENCE_S, Follower, ScanPrefetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.cache import CachedRun
    from sparkcache.config import CacheConfig
    from sparkcache.demand import Consumer, Plan
    from sparkcache.model import RunKey
    from sparkcache.node.load_scheduler import LoadScheduler
    from sparkcache.node.messages import Open
    from sparkcache.node.reader_session import RunSpan

    ScanId: TypeAlias = tuple[int, str, str]  # stage, scan, topic
    RestId: TypeAlias = tuple[str, Consumer]  # a stream's plan, the consumer of a batch

_LIMIT_DIVISOR = 4  # all tasks together are read ahead by 1/4 of the byte limit
_MAX_RUNS = 64


class Held(Protocol):
    """The part of the store that read-ahead depends on."""

    def peek(self, key: RunKey) -> CachedRun[int] | None:
        """Return a run if it is held, without any effect."""

    def abandon(self, run: CachedRun[int]) -> None:
        """Record that no reader is expected for a run that was loaded ahead."""


class _Rest(NamedTuple):
    """The first slice of a stream's next batch, and the scan that ends before it."""

    scan: ScanPrefetch
    session: ReaderSession
    batch: int


class ReadAhead:
    """The scans being read, and how far each is read ahead."""

    def __init__(self, held: Held, loads: LoadScheduler) -> None:
        self._held = held
        self._loads = loads
        self._scans: dict[ScanId, ScanPrefetch] = {}
        self._scan_of: dict[ReaderSession, ScanPrefetch] = {}
        self._rests: dict[RestId, _Rest] = {}
        self._unread: dict[RunKey, ReadAheadWindow] = {}
        self._early_exits = EarlyExitTracker()

    def __repr__(self) -> str:
        return (
            f"ReadAhead({len(self._scan_of)} sessions, {len(self._unread)} runs unread)"
        )

    def open(self, session: ReaderSession, message: Open, now_s: float) -> None:
        """Add a session that begins to read its partition."""
        scan = self._scan(message)
        scan.begin(session, message.reader.token.part, now_s)
        self._scan_of[session] = scan
        for partition, run_slice in message.following:
            if (
                partition > scan.frontier
                and partition not in scan.upcoming
                and run_slice.is_valid()
            ):
                follower = ReaderSession(session.peer)
                follower.begin(
                    Scan(message.scan.root, message.scan.config, (run_slice,))
                )
                scan.upcoming[partition] = Follower(follower)
        for plan in message.plans:
            if plan.is_stream:
                self._register_rest(scan, session, message, plan)

    def close(self, session: ReaderSession, now_s: float) -> None:
        """Remove a session; runs loaded ahead for it alone lose their protection."""
        scan = self._scan_of.pop(session, None)
        if scan is None:
            return
        scan.sessions.discard(session)
        scan.idle_since_s = now_s
        if any(session.upcoming(1)):
            scan.window.leave()
        self._abandon(session)

    def tick(self, now_s: float) -> None:
        """Forget the scans and followers that had no task for a while."""
        for scan_id, scan in list(self._scans.items()):
            overdue = scan.overdue(now_s)
            if not scan.sessions and now_s - scan.idle_since_s >= PATIENCE_S:
                del self._scans[scan_id]
                overdue += scan.followers()
                self._forget_rests(scan)
            for session in overdue:
                self._abandon(session)

    def taken(self, session: ReaderSession) -> None:
        """Record that a session asks for a run."""
        if not session.is_in_order:
            self._scan_of[session].window.jump()

    def served(self, session: ReaderSession, run: CachedRun[int]) -> None:
        """Record that a session was served a run."""
        self._unread.pop(run.key, None)
        if session.is_in_order:
            self._scan_of[session].window.read(run.size_bytes)

    def loaded(self, key: RunKey, span: RunSpan) -> None:
        """Record a run that was loaded before any session waits for it."""
        for scan, session in self._readers():
            if session.wants(span):
                self._unread[key] = scan.window
                return

    def removed(self, run: CachedRun[int]) -> None:
        """Record that a run is no longer held."""
        window = self._unread.pop(run.key, None)
        if window is not None:
            window.waste()

    def is_wanted(self, span: RunSpan) -> bool:
        """Return whether any session waits for a run of a span, or will come to one."""
        return any(session.wants(span) for _, session in self._readers())

    def is_near(
        self, key: RunKey, span: RunSpan, size_bytes: int, config: CacheConfig
    ) -> bool:
        """Return whether a run is in the read-ahead window of any of its readers."""
        return any(
            self._is_near(session, key, self._most_bytes(scan, size_bytes, config))
            for scan, session in self._readers()
            if session.wants(span)
        )

    def advance(self, session: ReaderSession, config: CacheConfig) -> None:
        """Begin the loads that a session's read-ahead window allows."""
        scan = self._scan_of[session]
        run_bytes = scan.window.run_bytes or config.run_bytes
        most_bytes = self._most_bytes(scan, run_bytes, config)
        remaining_bytes = self._begin_loads(session, run_bytes, most_bytes)
        if remaining_bytes > 0:
            follower = scan.follower(session)
            if follower is not None:
                self._begin_loads(follower, run_bytes, remaining_bytes)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._early_exits.check()
        for scan in self._scans.values():
            for partition, follower in scan.upcoming.items():
                assert (partition < scan.frontier) == (follower.passed_s is not None)
                assert follower.passed_s is None or follower.owner is not None
            assert all(self._scan_of[session] is scan for session in scan.sessions)
        assert all(rest.scan in self._scans.values() for rest in self._rests.values())
        for key in self._unread:
            run = self._held.peek(key)
            assert run is None or run.unread
        assert set(self._scan_of) == {
            session for scan in self._scans.values() for session in scan.sessions
        }

    def _begin_loads(
        self, session: ReaderSession, run_bytes: int, remaining_bytes: int
    ) -> int:
        """Begin loads of a session's next runs; return how many bytes remain.

        Runs that are not held yet are assumed to have `run_bytes`.
        """
        count = 0
        for run_index in session.upcoming(_MAX_RUNS):
            if remaining_bytes <= 0:
                return 0
            key = session.key(run_index)
            run = self._held.peek(key)
            if run is None and key not in self._loads:
                self._loads.begin(session, run_index)
            remaining_bytes -= run_bytes if run is None else run.size_bytes
            count += 1
        return remaining_bytes if count < _MAX_RUNS else 0

    def _is_near(self, session: ReaderSession, key: RunKey, most_bytes: int) -> bool:
        """Return whether fewer than `most_bytes` are between a session and a run."""
        for run_index in session.upcoming(_MAX_RUNS):
            if most_bytes <= 0 or session.key(run_index) == key:
                return most_bytes > 0
            run = self._held.peek(session.key(run_index))
            most_bytes -= 0 if run is None else run.size_bytes
        return False

    def _most_bytes(
        self, scan: ScanPrefetch, size_bytes: int, config: CacheConfig
    ) -> int:
        """Return a scan's window, reduced so that a run of that size still fits."""
        share = config.max_bytes // (_LIMIT_DIVISOR * max(len(self._scan_of), 1))
        limit_bytes = min(config.read_ahead_bytes, share)
        return min(scan.window.bytes, limit_bytes - size_bytes + 1)

    def _readers(self) -> Iterator[tuple[ScanPrefetch, ReaderSession]]:
        for session, scan in self._scan_of.items():
            yield scan, session
        for scan in self._scans.values():
            for session in scan.followers():
                yield scan, session
        for rest in self._rests.values():
            yield rest.scan, rest.session

    def _scan(self, message: Open) -> ScanPrefetch:
        reader = message.reader
        scan_id = (reader.token.stage, reader.scan, reader.consumer.topic)
        if scan_id not in self._scans:
            is_planned = any(
                plan.is_stream or reader.consumer in plan.consumers
                for plan in message.plans
            )
            self._scans[scan_id] = ScanPrefetch(
                ReadAheadWindow(message.settings.read_ahead_bytes)
                if is_planned
                else ReadAheadWindow(ONE_RUN, self._early_exits)
            )
        return self._scans[scan_id]

    def _register_rest(
        self, scan: ScanPrefetch, session: ReaderSession, message: Open, plan: Plan
    ) -> None:
        """Register the first slice of a stream's next batch.

        Slices registered by earlier batches are removed: the tasks of this batch read
        them.
        """
        consumer, last = message.reader.consumer, message.scan.slices[-1]
        for (stream, previous), earlier in list(self._rests.items()):
            is_earlier = stream == plan.id and earlier.batch < plan.batch
            if is_earlier and previous.topic == consumer.topic:
                del self._rests[stream, previous]
        rest = None if consumer.end is None else last.rest_after(consumer.end)
        if rest is not None and plan.reads(rest.key(rest.start)):
            next_session = ReaderSession(session.peer)
            next_session.begin(Scan(message.scan.root, message.scan.config, (rest,)))
            self._rests[plan.id, consumer] = _Rest(scan, next_session, plan.batch)

    def _forget_rests(self, scan: ScanPrefetch) -> None:
        for rest_id, rest in list(self._rests.items()):
            if rest.scan is scan:
                del self._rests[rest_id]

    def _abandon(self, session: ReaderSession) -> None:
        """Allow runs to be evicted first that were loaded for this session alone."""
        for run_index in session.upcoming(_MAX_RUNS):
            run = self._held.peek(session.key(run_index))
            if (
                run is not None
                and run.ahead
                and not self.is_wanted(session.span(run_index))
            ):
                self._held.abandon(run)
