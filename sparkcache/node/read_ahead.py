"""What is loaded before any task asks for it.

A task's runs are loaded ahead of it, in as many parallel loads as its scan's window
allows, and never beyond the runs that the task will read. Near the end of its
partition, the first runs of the next partition that has not begun are loaded too. If
those partitions begin on other executors, the node stops loading them.

If a batch of a stream ends within an extent, the load of its end has requested the rest
of the extent as well. So that load continues for the next batch, within the same
window, unless it would have to wait for long.

The window of a scan grows with what is read, and shrinks with what was loaded in vain;
see `sparkcache.fetch.read_ahead_window`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.homes import Place
from sparkcache.node.readers import MAX_RUNS_AHEAD

if TYPE_CHECKING:
    from sparkcache.cache import CachedRun
    from sparkcache.fetch.read_ahead_window import ReadAheadWindow
    from sparkcache.model import RunKey
    from sparkcache.node.load_scheduler import LoadScheduler
    from sparkcache.node.reader_session import ReaderSession, RunSpan
    from sparkcache.node.readers import Readers
    from sparkcache.node.run_store import RunStore


class ReadAhead:
    """Begins loads ahead of the readers, and learns from what became of the runs."""

    def __init__(self, readers: Readers, store: RunStore, loads: LoadScheduler) -> None:
        self._readers = readers
        self._store = store
        self._loads = loads
        self._unread: dict[RunKey, ReadAheadWindow] = {}
        self._removals = 0

    def __repr__(self) -> str:
        return f"ReadAhead({len(self._unread)} runs unread)"

    def advance(self, session: ReaderSession) -> None:
        """Begin the loads that a session's read-ahead window allows."""
        assert session.scan is not None, "it is open"
        if session.place is Place.AWAY:
            return
        scan = self._readers.scan_of(session)
        run_bytes = scan.window.run_bytes or session.scan.config.run_bytes
        window_bytes = self._readers.window_bytes(scan, run_bytes)
        remaining_bytes = self._begin_loads(session, run_bytes, window_bytes)
        if remaining_bytes > 0:
            follower = scan.follower(session)
            if follower is not None:
                self._begin_loads(follower, run_bytes, remaining_bytes)

    def abandon(self, session: ReaderSession) -> None:
        """Allow runs to be evicted first that were loaded for this session alone."""
        for run_index in session.upcoming(MAX_RUNS_AHEAD):
            run = self._store.peek(session.key(run_index))
            if (
                run is not None
                and run.ahead
                and not self._readers.is_wanted(session.span(run_index))
            ):
                self._store.abandon(run)

    def requested(self, session: ReaderSession) -> None:
        """Record that a session asks for a run."""
        if not session.is_in_order:
            self._readers.scan_of(session).window.jump()

    def served(self, session: ReaderSession, run: CachedRun[int]) -> None:
        """Record that a session was served a run."""
        if self._unread:
            self._unread.pop(run.key, None)
        if session.is_in_order:
            self._readers.scan_of(session).window.read(run.size_bytes)

    def loaded(self, key: RunKey, span: RunSpan) -> None:
        """Record a run that was loaded before any session waits for it."""
        window = self._readers.window_for(span)
        if window is not None:
            self._unread[key] = window

    def removed(self, key: RunKey) -> None:
        """Record that a run is no longer held."""
        self._removals += 1
        window = self._unread.pop(key, None)
        if window is not None:
            window.waste()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        for key in self._unread:
            run = self._store.peek(key)
            assert run is None or run.unread

    def _begin_loads(
        self, session: ReaderSession, run_bytes: int, remaining_bytes: int
    ) -> int:
        """Begin loads of a session's next runs; return how many bytes remain.

        Runs that are not held yet are assumed to have `run_bytes`. Runs that were held
        at the last look-up are not looked up again.
        """
        held = session.held_ahead
        held.move(session.next_ordinal, self._removals)
        remaining_bytes -= held.size_bytes
        count = len(held)
        for run_index in session.upcoming(MAX_RUNS_AHEAD, skip=count):
            if remaining_bytes <= 0:
                return 0
            key = session.key(run_index)
            run = self._store.peek(key)
            if run is None and key not in self._loads:
                self._loads.begin(session, run_index)
            if run is not None and len(held) == count:
                held.append(run.size_bytes)
            remaining_bytes -= run_bytes if run is None else run.size_bytes
            count += 1
        return remaining_bytes if count < MAX_RUNS_AHEAD else 0
