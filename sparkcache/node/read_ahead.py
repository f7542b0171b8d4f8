"""What is loaded before anybody asks for it, and how far.

A task's runs are loaded ahead of it, in as many loads at once as its scan's depth
allows, and never beyond what it said it will read. Where its partition comes to its
end, the first runs of the next partition follow that nobody has begun: a task brings
along what comes after it, since Spark begins the partitions of a scan in order. If
those are begun elsewhere, that is not tried again.

Where a batch of a stream ends within an extent, the load that brought its end has asked
for the rest as well. So it goes on for the next batch, as far ahead, if that does not
keep it waiting for long.

Who is going to read a partition, or such a rest, is a `ReaderSession` as well, one that
has no peer yet.
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

    ScanId: TypeAlias = tuple[int, str, str]  # stage, plan of partitions, topic
    RestId: TypeAlias = tuple[str, Consumer]  # a stream's plan, what a batch reads

_SHARE = 4  # of the byte limit, all tasks together may be read ahead of
_MOST_RUNS = 64


class Held(Protocol):
    """What has to be known of the runs that are held."""

    def peek(self, key: RunKey) -> CachedRun[int] | None:
        """Look up a run without any effect."""

    def abandon(self, run: CachedRun[int]) -> None:
        """Note that nobody is coming to a run that was loaded ahead."""


class _Rest(NamedTuple):
    """What the batch after a stream's begins with, and the scan that ends before it."""

    scan: ScanPrefetch
    session: ReaderSession
    batch: int


class ReadAhead:
    """The scans that are read, and how far ahead of each is loaded."""

    def __init__(self, held: Held, loads: LoadScheduler) -> None:
        self._held = held
        self._loads = loads
        self._scans: dict[ScanId, ScanPrefetch] = {}
        self._scan_of: dict[ReaderSession, ScanPrefetch] = {}
        self._rests: dict[RestId, _Rest] = {}
        self._unread: dict[RunKey, ReadAheadWindow] = {}
        self._early_exits = EarlyExitTracker()

    def __repr__(self) -> str:
        return f"ReadAhead({len(self._scan_of)} tasks, {len(self._unread)} runs unread)"

    def open(self, session: ReaderSession, message: Open, now_s: float) -> None:
        """A task has begun to read its partition."""
        scan = self._scan(message)
        scan.begin(session, message.reader.token.part, now_s)
        self._scan_of[session] = scan
        for part, run_slice in message.following:
            if (
                part > scan.frontier
                and part not in scan.coming
                and run_slice.is_valid()
            ):
                follower = ReaderSession(session.peer)
                follower.begin(
                    Scan(message.scan.root, message.scan.config, (run_slice,))
                )
                scan.coming[part] = Follower(follower)
        for plan in message.plans:
            if plan.is_stream:
                self._go_on(scan, session, message, plan)

    def close(self, session: ReaderSession, now_s: float) -> None:
        """A task is gone. What was loaded for it alone is no better than any other."""
        scan = self._scan_of.pop(session, None)
        if scan is None:
            return
        scan.sessions.discard(session)
        scan.idle_since_s = now_s
        if any(session.coming(1)):
            scan.depth.leave()
        self._abandon(session)

    def tick(self, now_s: float) -> None:
        """Time has passed: forget the scans that no task was at for long."""
        for scan_id, scan in list(self._scans.items()):
            gone = scan.overdue(now_s)
            if not scan.sessions and now_s - scan.idle_since_s >= PATIENCE_S:
                del self._scans[scan_id]
                gone += scan.followers()
                self._forget_rests(scan)
            for session in gone:
                self._abandon(session)

    def taken(self, session: ReaderSession) -> None:
        """A task asks for a run."""
        if not session.is_in_order:
            self._scan_of[session].depth.jump()

    def served(self, session: ReaderSession, run: CachedRun[int]) -> None:
        """A task got a run."""
        self._unread.pop(run.key, None)
        if session.is_in_order:
            self._scan_of[session].depth.read(run.size_bytes)

    def loaded(self, key: RunKey, span: RunSpan) -> None:
        """A run was loaded that nobody waits for yet."""
        for scan, session in self._readers():
            if session.wants(span):
                self._unread[key] = scan.depth
                return

    def removed(self, run: CachedRun[int]) -> None:
        """A run is held no longer."""
        depth = self._unread.pop(run.key, None)
        if depth is not None:
            depth.waste()

    def is_wanted(self, span: RunSpan) -> bool:
        """Tell whether anybody waits for a run of a span, or will come to one."""
        return any(session.wants(span) for _, session in self._readers())

    def is_near(
        self, key: RunKey, span: RunSpan, size_bytes: int, config: CacheConfig
    ) -> bool:
        """Tell whether one of a run's readers may be read ahead of so far."""
        return any(
            self._is_near(session, key, self._most_bytes(scan, size_bytes, config))
            for scan, session in self._readers()
            if session.wants(span)
        )

    def advance(self, session: ReaderSession, config: CacheConfig) -> None:
        """Begin the loads that a task may be read ahead of by."""
        scan = self._scan_of[session]
        run_bytes = scan.depth.run_bytes or config.run_bytes
        most_bytes = self._most_bytes(scan, run_bytes, config)
        left_bytes = self._begin_loads(session, run_bytes, most_bytes)
        if left_bytes > 0:
            follower = scan.follower(session)
            if follower is not None:
                self._begin_loads(follower, run_bytes, left_bytes)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._early_exits.check()
        for scan in self._scans.values():
            for part, follower in scan.coming.items():
                assert (part < scan.frontier) == (follower.passed_s is not None)
                assert follower.passed_s is None or follower.owner is not None
            assert all(self._scan_of[session] is scan for session in scan.sessions)
        assert all(rest.scan in self._scans.values() for rest in self._rests.values())
        for key in self._unread:
            run = self._held.peek(key)
            assert run is None or run.unread
        assert set(self._scan_of) == {
            t for s in self._scans.values() for t in s.sessions
        }

    def _begin_loads(
        self, session: ReaderSession, run_bytes: int, left_bytes: int
    ) -> int:
        """Begin loads of what a task comes to; return what is left at its end.

        What is not held yet is taken to have `run_bytes`.
        """
        count = 0
        for place in session.coming(_MOST_RUNS):
            if left_bytes <= 0:
                return 0
            key = session.key(place)
            run = self._held.peek(key)
            if run is None and key not in self._loads:
                self._loads.begin(session, place)
            left_bytes -= run_bytes if run is None else run.size_bytes
            count += 1
        return left_bytes if count < _MOST_RUNS else 0

    def _is_near(self, session: ReaderSession, key: RunKey, most_bytes: int) -> bool:
        """Tell whether fewer bytes than that lie between a task and a run."""
        for place in session.coming(_MOST_RUNS):
            if most_bytes <= 0 or session.key(place) == key:
                return most_bytes > 0
            run = self._held.peek(session.key(place))
            most_bytes -= 0 if run is None else run.size_bytes
        return False

    def _most_bytes(
        self, scan: ScanPrefetch, size_bytes: int, config: CacheConfig
    ) -> int:
        """Return how many bytes less than may lie between a task and such a run."""
        share = config.max_bytes // (_SHARE * max(len(self._scan_of), 1))
        limit_bytes = min(config.read_ahead_bytes, share)
        return min(scan.depth.bytes, limit_bytes - size_bytes + 1)

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

    def _go_on(
        self, scan: ScanPrefetch, session: ReaderSession, message: Open, plan: Plan
    ) -> None:
        """Note what the batch that comes after a stream's begins with.

        What was noted for this one, when it was to come, its own tasks read now.
        """
        consumer, last = message.reader.consumer, message.scan.slices[-1]
        for (stream, before), rest in list(self._rests.items()):
            is_earlier = stream == plan.id and rest.batch < plan.batch
            if is_earlier and before.topic == consumer.topic:
                del self._rests[stream, before]
        left = None if consumer.end is None else last.behind(consumer.end)
        if left is not None and plan.reads(left.key(left.start)):
            coming = ReaderSession(session.peer)
            coming.begin(Scan(message.scan.root, message.scan.config, (left,)))
            self._rests[plan.id, consumer] = _Rest(scan, coming, plan.batch)

    def _forget_rests(self, scan: ScanPrefetch) -> None:
        for rest_id, rest in list(self._rests.items()):
            if rest.scan is scan:
                del self._rests[rest_id]

    def _abandon(self, session: ReaderSession) -> None:
        """What was loaded for a task that nobody else comes to may go first."""
        for place in session.coming(_MOST_RUNS):
            run = self._held.peek(session.key(place))
            if (
                run is not None
                and run.ahead
                and not self.is_wanted(session.span(place))
            ):
                self._held.abandon(run)
