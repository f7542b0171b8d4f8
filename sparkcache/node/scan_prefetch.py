"""A scan that tasks are at, and the partitions of it that nobody has begun."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.fetch.read_ahead_window import ReadAheadWindow
    from sparkcache.node.reader_session import ReaderSession

_MOST_MISSED = 2
PATIENCE_S = 2.0  # between the end of a task and the next one of its scan


@dataclass(eq=False, slots=True)
class Follower:
    """Who is going to read a partition that was not begun.

    Attributes:
        task: The reader to come.
        owner: The task after whose partition it is loaded for, once it is.
        passed_s: When a later partition was begun, if one was.

    """

    session: ReaderSession
    owner: ReaderSession | None = None
    passed_s: float | None = None


@dataclass(eq=False, slots=True)
class ScanPrefetch:
    """What is known of a scan.

    Attributes:
        depth: How far ahead of it is loaded.
        frontier: The last of its partitions that was begun.
        tasks: Its tasks that are open.
        coming: Partitions that were not begun.
        missed: How many of them were loaded for and begun elsewhere, since one was not.
        idle_since_s: When its last task ended, unless one is open.

    """

    depth: ReadAheadWindow
    frontier: int = -1
    sessions: set[ReaderSession] = field(default_factory=set)
    coming: dict[int, Follower] = field(default_factory=dict)
    missed: int = 0
    idle_since_s: float = 0.0

    def begin(self, session: ReaderSession, part: int, now_s: float) -> None:
        """Note that a partition was begun: those before it are, too, or never."""
        self.sessions.add(session)
        self.frontier = max(self.frontier, part)
        begun = self.coming.pop(part, None)
        if begun is not None and begun.owner is not None:
            self.missed = 0
        for at, follower in list(self.coming.items()):
            if at < part and follower.owner is None:
                del self.coming[at]
            elif at < part and follower.passed_s is None:
                follower.passed_s = now_s

    def follower(self, session: ReaderSession) -> ReaderSession | None:
        """Return who comes after a task's partition, each after one task."""
        owned = (it for it in self.coming.values() if it.owner is session)
        follower = next(owned, None)
        if follower is None and self.missed < _MOST_MISSED:
            free = [at for at, it in self.coming.items() if it.owner is None]
            if free:
                follower = self.coming[min(free)]
                follower.owner = session
        return None if follower is None else follower.session

    def followers(self) -> Iterator[ReaderSession]:
        """Yield those that runs are loaded for."""
        for follower in self.coming.values():
            if follower.owner is not None:
                yield follower.session

    def overdue(self, now_s: float) -> list[ReaderSession]:
        """Forget those passed for long; return for whom was loaded in vain."""
        passed = [
            at
            for at, follower in self.coming.items()
            if follower.passed_s is not None and now_s - follower.passed_s >= PATIENCE_S
        ]
        self.missed += len(passed)
        return [self.coming.pop(at).session for at in passed]
