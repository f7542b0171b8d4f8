"""Read-ahead of one scan, and of its partitions that have not begun."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.fetch.read_ahead_window import ReadAheadWindow
    from sparkcache.node.reader_session import ReaderSession

_MAX_MISSED = 2
PATIENCE_S = 2.0  # between the end of a task and the next one of its scan


@dataclass(eq=False, slots=True)
class Follower:
    """The future reader of a partition that has not begun.

    Attributes:
        session: The future reader.
        owner: The session after whose partition this one is loaded, if any.
        passed_s: When a later partition began, if one did.

    """

    session: ReaderSession
    owner: ReaderSession | None = None
    passed_s: float | None = None


@dataclass(eq=False, slots=True)
class ScanPrefetch:
    """The read-ahead state of a scan.

    Attributes:
        window: How far the scan is read ahead.
        frontier: The last of its partitions that has begun.
        sessions: Its sessions that are open.
        upcoming: Followers by partition, for partitions that have not begun.
        end: Offset in the topic where the scan ends, in stored bytes.
        offset: The least offset in the topic of a partition that has begun.
        begun: Its partitions that have begun.
        missed: How many loaded partitions in a row began elsewhere.
        idle_since_s: When its last session ended, unless one is open.

    """

    window: ReadAheadWindow
    frontier: int = -1
    sessions: set[ReaderSession] = field(default_factory=set)
    upcoming: dict[int, Follower] = field(default_factory=dict)
    end: float = 0.0
    offset: float = inf
    begun: set[int] = field(default_factory=set)
    missed: int = 0
    idle_since_s: float = 0.0

    def begin(self, session: ReaderSession, partition: int, now_s: float) -> None:
        """Record that a partition began; earlier ones began elsewhere or never will."""
        self.sessions.add(session)
        self.begun.add(partition)
        self.offset = min(self.offset, session.slices[0].topic_offset)
        self.frontier = max(self.frontier, partition)
        begun = self.upcoming.pop(partition, None)
        if begun is not None and begun.owner is not None:
            self.missed = 0
        for other, follower in list(self.upcoming.items()):
            if other < partition and follower.owner is None:
                del self.upcoming[other]
            elif other < partition and follower.passed_s is None:
                follower.passed_s = now_s

    @property
    def stored_bytes_here(self) -> float:
        """Stored bytes that the scan reads on this node, by the partitions so far.

        0 if nobody knows where it ends.
        """
        if self.end == inf:
            return 0.0
        share = len(self.begun) / (self.frontier + 1)
        return max(self.end - self.offset, 0.0) * share

    def decoded(self, run_bytes: int) -> tuple[int, float]:
        """Return the size of a decoded run, and how often that is its stored size.

        Args:
            run_bytes: The usual size of a run as it is stored.

        """
        size_bytes = self.window.run_bytes or run_bytes
        return size_bytes, size_bytes / run_bytes

    def follower(self, session: ReaderSession) -> ReaderSession | None:
        """Return the future reader to load for after a session's partition, if any.

        Each follower is loaded for one session.
        """
        owned = (
            candidate
            for candidate in self.upcoming.values()
            if candidate.owner is session
        )
        follower = next(owned, None)
        if follower is None and self.missed < _MAX_MISSED:
            free = [
                partition
                for partition, candidate in self.upcoming.items()
                if candidate.owner is None
            ]
            if free:
                follower = self.upcoming[min(free)]
                follower.owner = session
        return None if follower is None else follower.session

    def followers(self) -> Iterator[ReaderSession]:
        """Yield the future readers that runs are loaded for."""
        for follower in self.upcoming.values():
            if follower.owner is not None:
                yield follower.session

    def overdue(self, now_s: float) -> list[ReaderSession]:
        """Remove followers passed long ago; return the sessions loaded for in vain."""
        passed = [
            partition
            for partition, follower in self.upcoming.items()
            if follower.passed_s is not None and now_s - follower.passed_s >= PATIENCE_S
        ]
        self.missed += len(passed)
        return [self.upcoming.pop(partition).session for partition in passed]
