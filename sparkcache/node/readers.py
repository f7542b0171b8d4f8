"""Who will read which runs: the open sessions, and the readers that come after them.

This is the node's view of demand. The scheduler and read-ahead ask it whether a run is
wanted and how near its next reader is; only the service changes it.

A task sends the first slices of the partitions that follow its own, since Spark begins
the partitions of a scan in order. If a batch of a stream ends within an extent, the
rest of that extent belongs to the next batch. The future reader of such a partition, or
of such a rest, is a `ReaderSession` as well, one that has no peer of its own yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from sparkcache.fetch.read_ahead_window import (
    ONE_RUN,
    EarlyExitTracker,
    ReadAheadWindow,
)
from sparkcache.homes import Place
from sparkcache.node.reader_session import ReaderSession
from sparkcache.node.scan_prefetch import PATIENCE_S, Follower, ScanPrefetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.cache import CachedRun
    from sparkcache.config import NodeConfig
    from sparkcache.demand import Consumer, Plan
    from sparkcache.model import RunKey
    from sparkcache.node.messages import Open
    from sparkcache.node.reader_session import RunSpan

    ScanId: TypeAlias = tuple[int, str, str]  # stage, scan, topic
    RestId: TypeAlias = tuple[str, Consumer]  # a stream's plan, the consumer of a batch

MAX_RUNS_AHEAD = 64
_LIMIT_DIVISOR = 4  # all tasks together are read ahead by 1/4 of the byte limit


class Held(Protocol):
    """The runs that a node holds."""

    def peek(self, key: RunKey) -> CachedRun[int] | None:
        """Return a run if it is held, without any effect."""


class _Rest(NamedTuple):
    """The first slice of a stream's next batch, and the scan that ends before it."""

    scan: ScanPrefetch
    session: ReaderSession
    batch: int


class Readers:
    """The scans being read, with their sessions and future readers.

    Args:
        config: The initial settings.
        held: The runs that the node holds.

    """

    def __init__(self, config: NodeConfig, held: Held) -> None:
        self._config = config
        self._held = held
        self._scans: dict[ScanId, ScanPrefetch] = {}
        self._scan_of: dict[ReaderSession, ScanPrefetch] = {}
        self._rests: dict[RestId, _Rest] = {}
        self._early_exits = EarlyExitTracker()

    def __repr__(self) -> str:
        return f"Readers({len(self._scan_of)} sessions, {len(self._scans)} scans)"

    # Changes of demand

    def configure(self, config: NodeConfig) -> None:
        """Apply new settings."""
        self._config = config

    def open(self, session: ReaderSession, message: Open, now_s: float) -> None:
        """Add a session that begins to read its partition."""
        scan = self._scan(message)
        scan.end = message.reader.end
        scan.begin(session, message.reader.token.part, now_s)
        self._scan_of[session] = scan
        following = message.following if session.place.reads_ahead else ()
        for partition, run_slice in following:
            if (
                partition > scan.frontier
                and partition not in scan.upcoming
                and run_slice.is_valid()
            ):
                follower = ReaderSession(session.peer)
                follower.begin(replace(message.scan, slices=(run_slice,)))
                scan.upcoming[partition] = Follower(follower)
        for plan in message.plans:
            if plan.is_stream:
                self._register_rest(scan, session, message, plan)

    def close(self, session: ReaderSession, now_s: float) -> None:
        """Remove a session, if it was opened."""
        scan = self._scan_of.pop(session, None)
        if scan is None:
            return
        scan.sessions.discard(session)
        scan.idle_since_s = now_s
        if any(session.upcoming(1)):
            scan.window.leave()

    def expire(self, now_s: float) -> list[ReaderSession]:
        """Remove the scans and future readers that had no task for a while.

        Return the future readers that runs may have been loaded for in vain.
        """
        given_up = []
        for scan_id, scan in list(self._scans.items()):
            given_up += scan.overdue(now_s)
            if not scan.sessions and now_s - scan.idle_since_s >= PATIENCE_S:
                del self._scans[scan_id]
                given_up += scan.followers()
                self._remove_rests(scan)
        return given_up

    # The view of demand

    def scan_of(self, session: ReaderSession) -> ScanPrefetch:
        """Return the scan of an open session."""
        return self._scan_of[session]

    def is_wanted(self, span: RunSpan) -> bool:
        """Return whether any session waits for a run of a span, or will come to one."""
        return any(session.wants(span) for _, session in self._readers())

    def is_wanted_beside(self, reader: ReaderSession, span: RunSpan) -> bool:
        """Return whether a session other than `reader` wants a run of a span."""
        return any(
            session is not reader and session.wants(span)
            for _, session in self._readers()
        )

    def is_kept(self, span: RunSpan) -> bool:
        """Return whether a run of a span is wanted by a session that it is kept for."""
        return any(
            session.wants(span) and session.place is not Place.AWAY
            for _, session in self._readers()
        )

    def is_near(self, key: RunKey, span: RunSpan, size_bytes: int) -> bool:
        """Return whether a run is in the read-ahead window of any of its readers."""
        return any(
            self._is_near(session, key, self.window_bytes(scan, size_bytes))
            for scan, session in self._readers()
            if session.wants(span)
        )

    def window_for(self, span: RunSpan) -> ReadAheadWindow | None:
        """Return the window of the first reader that wants a run of a span, if any."""
        wanting = (scan.window for scan, other in self._readers() if other.wants(span))
        return next(wanting, None)

    def window_bytes(self, scan: ScanPrefetch, size_bytes: int) -> int:
        """Return a scan's window, reduced so that a run of that size still fits."""
        share = self._config.max_bytes // (_LIMIT_DIVISOR * max(len(self._scan_of), 1))
        limit_bytes = min(self._config.read_ahead_bytes, share)
        return min(scan.window.bytes, limit_bytes - size_bytes + 1)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._early_exits.check()
        for scan in self._scans.values():
            for partition, follower in scan.upcoming.items():
                assert (partition < scan.frontier) == (follower.passed_s is not None)
                assert follower.passed_s is None or follower.owner is not None
            assert all(self._scan_of[session] is scan for session in scan.sessions)
        for session in self._scan_of:
            assert not session.direct or session.direct[-1] == session.assigned
            assert not session.direct or not session.waiting
        assert all(rest.scan in self._scans.values() for rest in self._rests.values())
        assert set(self._scan_of) == {
            session for scan in self._scans.values() for session in scan.sessions
        }

    def _readers(self) -> Iterator[tuple[ScanPrefetch, ReaderSession]]:
        for session, scan in self._scan_of.items():
            yield scan, session
        for scan in self._scans.values():
            for session in scan.followers():
                yield scan, session
        for rest in self._rests.values():
            yield rest.scan, rest.session

    def _is_near(self, session: ReaderSession, key: RunKey, window_bytes: int) -> bool:
        """Return whether fewer than `window_bytes` are between a session and a run."""
        for run_index in session.upcoming(MAX_RUNS_AHEAD):
            if window_bytes <= 0 or session.key(run_index) == key:
                return window_bytes > 0
            run = self._held.peek(session.key(run_index))
            window_bytes -= 0 if run is None else run.size_bytes
        return False

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
            next_session.begin(replace(message.scan, slices=(rest,)))
            self._rests[plan.id, consumer] = _Rest(scan, next_session, plan.batch)

    def _remove_rests(self, scan: ScanPrefetch) -> None:
        for rest_id, rest in list(self._rests.items()):
            if rest.scan is scan:
                del self._rests[rest_id]
