"""What is loaded before anybody asks for it, and how far.

A task's runs are loaded ahead of it, in as many loads at once as its scan's depth
allows, and never beyond what it said it will read. Where its partition comes to its
end, the first runs of the next partition follow that nobody has begun: a task brings
along what comes after it, since Spark begins the partitions of a scan in order. If
those are begun elsewhere, that is not tried again.

Who is going to read a partition is a `Task` as well, one that has no peer yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from sparkcache.fetch.depth import ONE_RUN, Depth, Openings
from sparkcache.fetch.stretch import Scan
from sparkcache.node.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkcache.cache import CachedRun
    from sparkcache.config import CacheConfig
    from sparkcache.model import RunKey
    from sparkcache.node.loads import Loads
    from sparkcache.node.messages import Open
    from sparkcache.node.task import Span

    ScanId: TypeAlias = tuple[int, str, str]  # stage, plan of partitions, topic

_SHARE = 4  # of the byte limit, all tasks together may be read ahead of
_MOST_RUNS = 64
_MOST_MISSED = 2
_PATIENCE_S = 2.0  # between the end of a task and the next one of its scan


class Held(Protocol):
    """What has to be known of the runs that are held."""

    def peek(self, key: RunKey) -> CachedRun[int] | None:
        """Look up a run without any effect."""

    def abandon(self, run: CachedRun[int]) -> None:
        """Note that nobody is coming to a run that was loaded ahead."""


@dataclass(eq=False, slots=True)
class _Follower:
    """Who is going to read a partition that was not begun.

    Attributes:
        task: The reader to come.
        owner: The task after whose partition it is loaded for, once it is.
        passed_s: When a later partition was begun, if one was.

    """

    task: Task
    owner: Task | None = None
    passed_s: float | None = None


@dataclass(eq=False, slots=True)
class _Scan:
    """What is known of a scan.

    Attributes:
        depth: How far ahead of it is loaded.
        frontier: The last of its partitions that was begun.
        tasks: Its tasks that are open.
        coming: Partitions that were not begun.
        missed: How many of them were loaded for and begun elsewhere, since one was not.
        idle_since_s: When its last task ended, unless one is open.

    """

    depth: Depth
    frontier: int = -1
    tasks: set[Task] = field(default_factory=set)
    coming: dict[int, _Follower] = field(default_factory=dict)
    missed: int = 0
    idle_since_s: float = 0.0

    def begin(self, task: Task, part: int, now_s: float) -> None:
        """Note that a partition was begun: those before it are, too, or never."""
        self.tasks.add(task)
        self.frontier = max(self.frontier, part)
        begun = self.coming.pop(part, None)
        if begun is not None and begun.owner is not None:
            self.missed = 0
        for at, follower in list(self.coming.items()):
            if at < part and follower.owner is None:
                del self.coming[at]
            elif at < part and follower.passed_s is None:
                follower.passed_s = now_s

    def follower(self, task: Task) -> Task | None:
        """Return who comes after a task's partition, each after one task."""
        owned = (it for it in self.coming.values() if it.owner is task)
        follower = next(owned, None)
        if follower is None and self.missed < _MOST_MISSED:
            free = [at for at, it in self.coming.items() if it.owner is None]
            if free:
                follower = self.coming[min(free)]
                follower.owner = task
        return None if follower is None else follower.task

    def followers(self) -> Iterator[Task]:
        """Yield those that runs are loaded for."""
        for follower in self.coming.values():
            if follower.owner is not None:
                yield follower.task

    def overdue(self, now_s: float) -> list[Task]:
        """Forget those passed for long; return for whom was loaded in vain."""
        passed = [
            at
            for at, follower in self.coming.items()
            if follower.passed_s is not None
            and now_s - follower.passed_s >= _PATIENCE_S
        ]
        self.missed += len(passed)
        return [self.coming.pop(at).task for at in passed]


class ReadAhead:
    """The scans that are read, and how far ahead of each is loaded."""

    def __init__(self, held: Held, loads: Loads) -> None:
        self._held = held
        self._loads = loads
        self._scans: dict[ScanId, _Scan] = {}
        self._scan_of: dict[Task, _Scan] = {}
        self._unread: dict[RunKey, Depth] = {}
        self._openings = Openings()

    def __repr__(self) -> str:
        return f"ReadAhead({len(self._scan_of)} tasks, {len(self._unread)} runs unread)"

    def open(self, task: Task, message: Open, now_s: float) -> None:
        """A task has begun to read its partition."""
        scan = self._scan(message)
        scan.begin(task, message.reader.token.part, now_s)
        self._scan_of[task] = scan
        for part, stretch in message.following:
            if part > scan.frontier and part not in scan.coming and stretch.is_valid():
                follower = Task(task.peer)
                follower.begin(Scan(message.scan.root, message.scan.config, (stretch,)))
                scan.coming[part] = _Follower(follower)

    def close(self, task: Task, now_s: float) -> None:
        """A task is gone. What was loaded for it alone is no better than any other."""
        scan = self._scan_of.pop(task, None)
        if scan is None:
            return
        scan.tasks.discard(task)
        scan.idle_since_s = now_s
        if any(task.coming(1)):
            scan.depth.leave()
        self._abandon(task)

    def tick(self, now_s: float) -> None:
        """Time has passed: forget the scans that no task was at for long."""
        for scan_id, scan in list(self._scans.items()):
            gone = scan.overdue(now_s)
            if not scan.tasks and now_s - scan.idle_since_s >= _PATIENCE_S:
                del self._scans[scan_id]
                gone += scan.followers()
            for task in gone:
                self._abandon(task)

    def taken(self, task: Task) -> None:
        """A task asks for a run."""
        if not task.is_in_order:
            self._scan_of[task].depth.jump()

    def served(self, task: Task, run: CachedRun[int]) -> None:
        """A task got a run."""
        self._unread.pop(run.key, None)
        if task.is_in_order:
            self._scan_of[task].depth.read(run.size_bytes)

    def loaded(self, key: RunKey, span: Span) -> None:
        """A run was loaded that nobody waits for yet."""
        for scan, task in self._readers():
            if task.wants(span):
                self._unread[key] = scan.depth
                return

    def removed(self, run: CachedRun[int]) -> None:
        """A run is held no longer."""
        depth = self._unread.pop(run.key, None)
        if depth is not None:
            depth.waste()

    def is_wanted(self, span: Span) -> bool:
        """Tell whether anybody waits for a run of a span, or will come to one."""
        return any(task.wants(span) for _, task in self._readers())

    def is_near(
        self, key: RunKey, span: Span, size_bytes: int, config: CacheConfig
    ) -> bool:
        """Tell whether one of a run's readers may be read ahead of so far."""
        return any(
            self._is_near(task, key, self._most_bytes(scan, size_bytes, config))
            for scan, task in self._readers()
            if task.wants(span)
        )

    def proceed(self, task: Task, config: CacheConfig) -> None:
        """Begin the loads that a task may be read ahead of by."""
        scan = self._scan_of[task]
        run_bytes = scan.depth.run_bytes or config.run_bytes
        most_bytes = self._most_bytes(scan, run_bytes, config)
        left_bytes = self._begin_loads(task, run_bytes, most_bytes)
        if left_bytes > 0:
            follower = scan.follower(task)
            if follower is not None:
                self._begin_loads(follower, run_bytes, left_bytes)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._openings.check()
        for scan in self._scans.values():
            for part, follower in scan.coming.items():
                assert (part < scan.frontier) == (follower.passed_s is not None)
                assert follower.passed_s is None or follower.owner is not None
            assert all(self._scan_of[task] is scan for task in scan.tasks)
        for key in self._unread:
            run = self._held.peek(key)
            assert run is None or run.unread
        assert set(self._scan_of) == {t for s in self._scans.values() for t in s.tasks}

    def _begin_loads(self, task: Task, run_bytes: int, left_bytes: int) -> int:
        """Begin loads of what a task comes to; return what is left at its end.

        What is not held yet is taken to have `run_bytes`.
        """
        count = 0
        for place in task.coming(_MOST_RUNS):
            if left_bytes <= 0:
                return 0
            key = task.key(place)
            run = self._held.peek(key)
            if run is None and key not in self._loads:
                self._loads.begin(task, place)
            left_bytes -= run_bytes if run is None else run.size_bytes
            count += 1
        return left_bytes if count < _MOST_RUNS else 0

    def _is_near(self, task: Task, key: RunKey, most_bytes: int) -> bool:
        """Tell whether fewer bytes than that lie between a task and a run."""
        for place in task.coming(_MOST_RUNS):
            if most_bytes <= 0 or task.key(place) == key:
                return most_bytes > 0
            run = self._held.peek(task.key(place))
            most_bytes -= 0 if run is None else run.size_bytes
        return False

    def _most_bytes(self, scan: _Scan, size_bytes: int, config: CacheConfig) -> int:
        """Return how many bytes less than may lie between a task and such a run."""
        share = config.max_bytes // (_SHARE * max(len(self._scan_of), 1))
        limit_bytes = min(config.read_ahead_bytes, share)
        return min(scan.depth.bytes, limit_bytes - size_bytes + 1)

    def _readers(self) -> Iterator[tuple[_Scan, Task]]:
        for task, scan in self._scan_of.items():
            yield scan, task
        for scan in self._scans.values():
            for task in scan.followers():
                yield scan, task

    def _scan(self, message: Open) -> _Scan:
        reader = message.reader
        scan_id = (reader.token.stage, reader.scan, reader.consumer.topic)
        if scan_id not in self._scans:
            is_planned = any(
                plan.is_stream or reader.consumer in plan.consumers
                for plan in message.plans
            )
            self._scans[scan_id] = _Scan(
                Depth(message.settings.read_ahead_bytes)
                if is_planned
                else Depth(ONE_RUN, self._openings)
            )
        return self._scans[scan_id]

    def _abandon(self, task: Task) -> None:
        """What was loaded for a task that nobody else comes to may go first."""
        for place in task.coming(_MOST_RUNS):
            run = self._held.peek(task.key(place))
            if run is not None and run.ahead and not self.is_wanted(task.span(place)):
                self._held.abandon(run)
