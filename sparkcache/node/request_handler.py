"""How the requests of tasks for runs are answered.

A run that is held is served at once, together with small runs after it. For any other
run the session waits: the run is being loaded already, or a load is begun.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparkcache.node.messages import Outcome, RunAt
from sparkcache.node.opening import PathPeer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache.cache import CachedRun
    from sparkcache.filters import RunStatistics
    from sparkcache.node.counts import Counts
    from sparkcache.node.load_scheduler import LoadedRun, LoadScheduler
    from sparkcache.node.messages import Finish, Take
    from sparkcache.node.read_ahead import ReadAhead
    from sparkcache.node.reader_session import ReaderSession
    from sparkcache.node.recorder import Recorder
    from sparkcache.node.run_store import RunStore

_MAX_RUNS_AT_ONCE = 64

_log = logging.getLogger(__name__)


class RequestHandler:
    """Serves runs to sessions, and records what they have read."""

    def __init__(
        self,
        *,
        store: RunStore,
        loads: LoadScheduler,
        ahead: ReadAhead,
        counts: Counts,
        recorder: Recorder,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._loads = loads
        self._ahead = ahead
        self._counts = counts
        self._recorder = recorder
        self._now = now

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
            runs = {run_index: run} | self._following(session, run, now_s)
            self._serve(session, runs)
            self._counts.times.served(now_s, self._now(), len(runs))
        else:
            if self._loads.wait(session, run_index):
                self._charge(session, run_index)
            self._ahead.advance(session)

    def finish(self, session: ReaderSession, message: Finish) -> None:
        """Handle the last message of a task."""
        self._settle(session, message)
        if not session.waiting:
            session.finish()

    def close(self, session: ReaderSession) -> None:
        """Unpin the runs of a closed session; what it has not read stays expected."""
        for cached in session.pins.values():
            self._store.unpin(cached)
        session.pins.clear()
        if session.partition_read is not None:
            self._store.close_read(session.partition_read)
            self._recorder.leave(session.partition_read)
            session.partition_read = None
        self._loads.leave(session)

    def deliver(self, run: LoadedRun, cached: CachedRun[int] | None) -> None:
        """Serve a loaded run to the sessions that wait for it."""
        for session in run.waiters:
            held = self._store.get(run.key) or cached
            assert held is not None, "held, or inserted just now"
            self._lend(session, held)
            self._serve(session, {session.cursor: held})

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
                self._store.unpin(cached)

    def _take(
        self, session: ReaderSession, run_index: tuple[int, int], now_s: float
    ) -> CachedRun[int] | None:
        """Record that a session asks for a run; return it, pinned, if it is held."""
        assert session.partition_read is not None, "it has a run to read"
        session.ask(run_index)
        self._ahead.requested(session)
        self._recorder.take(
            session.partition_read, session.slices[run_index[0]], run_index[1]
        )
        key = session.key(run_index)
        count = self._counts.topics.ask(key.ledger.topic, session, run_index)
        run = self._store.take(session.partition_read, key, now_s)
        if run is not None:
            if run.is_first_of_prefetched:
                count.prefetch_hits += 1
                self._charge(session, run_index)
            else:
                count.hits += 1
            session.outcome = Outcome.HIT
            self._lend(session, run)
        elif key in self._loads:
            session.outcome = Outcome.WAIT
            count.waits += 1
        else:
            session.outcome = Outcome.MISS
            count.misses += 1
        return run

    def _charge(self, session: ReaderSession, run_index: tuple[int, int]) -> None:
        """Record that a session is the first to read a run since it was loaded."""
        if isinstance(session.peer, PathPeer):
            run_slice = session.slices[run_index[0]]
            session.peer.charge(run_slice.stored_bytes(run_index[1]))

    def _following(
        self, session: ReaderSession, run: CachedRun[int], now_s: float
    ) -> dict[tuple[int, int], CachedRun[int]]:
        """Take the held runs after a run that can be sent together with it."""
        following: dict[tuple[int, int], CachedRun[int]] = {}
        if not self._store.has_followers(run, session.peer):
            return following
        size_bytes = run.size_bytes
        max_bytes = self._store.max_bytes_together(session.peer)
        for run_index in session.upcoming(_MAX_RUNS_AT_ONCE):
            held = self._store.peek(session.key(run_index), now_s)
            if held is None or not self._store.can_follow(held, run.slot, session.peer):
                break
            size_bytes += 0 if self._sufficient(session, held) else held.size_bytes
            if size_bytes > max_bytes:
                break
            self._take(session, run_index, now_s)
            following[run_index] = held
        return following

    def _sufficient(
        self, session: ReaderSession, run: CachedRun[int]
    ) -> RunStatistics | None:
        """Return the statistics of a run if a session needs no more of it."""
        if not session.is_selective:
            return None
        known = self._store.statistics(run.key)
        return None if session.maps(known) else known

    def _lend(self, session: ReaderSession, run: CachedRun[int]) -> None:
        """Give the run that a session asks for to it, or only its statistics."""
        known = self._sufficient(session, run)
        if known is None:
            self._pin(session, run)
        else:
            matches = known.may_match(session.filters)
            unmapped = RunAt(*session.cursor, 0, -1, known.rows, matches)
            session.unmapped[session.cursor] = unmapped

    def _pin(self, session: ReaderSession, run: CachedRun[int]) -> None:
        self._store.pin(run)
        session.pins[session.cursor] = run
        count = self._counts.topics.for_topic(run.key.ledger.topic)
        count.served_bytes += run.size_bytes
        self._ahead.served(session, run)

    def _serve(
        self, session: ReaderSession, runs: dict[tuple[int, int], CachedRun[int]]
    ) -> None:
        session.waiting = False
        self._store.send_runs(runs, session)
        session.unmapped.clear()
        self._ahead.advance(session)
