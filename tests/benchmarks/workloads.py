"""Traces of pipelines: who reads which topic from when on, how fast, with what pauses.

Everything follows from a seed. A scan is cut into partitions of `PART_RUNS` runs, or of
as many as is said; it reads a few of them at once, in order, as Spark does. An extent
has `EXTENT_RUNS` runs.

The workloads named after lags are those on which policies were compared before, with
10 topics of 300 runs in the place of 20 of 4,000, and lags that keep their share of a
topic.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sparkcache.demand import Consumer, ExtentOffset, Plan, ReaderIdentity
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey
from sparkcache.trace import Begin, Close, Open, Over, Read, Sizes, Take, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PART_RUNS = 32
EXTENT_RUNS = 32
RUN_BYTES = 100
SCALE = 20 << 10  # makes of `RUN_BYTES` about what a run has by default


@dataclass(slots=True)
class Scan:
    """A scan of `topic` from its run `begin` to before `end`.

    Attributes:
        start_s: When it begins.
        speed: Runs a second.
        tasks: Partitions read at once.
        planned: Whether a plan knows of it.
        pauses: For how long it stops after this number of runs.
        changes: What its speed is multiplied by after this number of runs.
        dies: It ends, undone, after this number of runs.

    """

    topic: int
    begin: int
    end: int
    start_s: float
    speed: float = 1.0
    tasks: int = 1
    planned: bool = True
    pauses: dict[int, float] = field(default_factory=dict)
    changes: dict[int, float] = field(default_factory=dict)
    dies: int | None = None


@dataclass(slots=True)
class _Slot:
    """One of the tasks of a scan, one partition after another."""

    scan: int
    task: int = -1
    at: int = 0
    end: int = 0
    is_reading: bool = False


class Pipeline:
    """Lets scans run, and writes down what they do.

    Args:
        scans: In the order in which they are planned.
        never: Planned, and never begun.
        sizes: Bytes of the runs of each topic; all of one size if not given.
        jitter: By how much of a run's time each run differs.
        seed: Of what is random.
        part_runs: Runs of a partition.
        join: Where in its topic a scan begins, which goes on from the beginning when it
            has come to the end. It is given the places where others are that have
            begun, in runs. If None, at the beginning.

    """

    def __init__(
        self,
        scans: Sequence[Scan],
        *,
        never: Sequence[Scan] = (),
        sizes: Callable[[int, int], int] = lambda _topic, _run: RUN_BYTES,
        jitter: float = 0.3,
        seed: int = 1,
        part_runs: int = PART_RUNS,
        join: Callable[[list[int]], int] | None = None,
    ) -> None:
        self._scans = scans
        self._jitter = jitter
        self._part_runs = part_runs
        self._join = join
        self._rng = random.Random(seed)
        self.trace = Trace()
        self._keys: dict[int, list[RunKey]] = {}
        self._offsets: dict[int, list[int]] = {}  # of runs, and where the last ends
        self._extents: dict[int, list[ExtentOffset]] = {}
        ends: dict[int, int] = {}
        for scan in (*scans, *never):
            ends[scan.topic] = max(ends.get(scan.topic, 0), scan.end)
        for topic, end in ends.items():
            self._make_topic(topic, [sizes(topic, run) for run in range(end)])
        self._waiting = [
            deque(range(scan.begin, scan.end, part_runs)) for scan in scans
        ]
        self._read = [0] * len(scans)
        self._at: dict[int, int] = {}  # where each scan is that is under way
        self._tasks = 0
        self._due: list[tuple[float, int, _Slot]] = []
        self._run([_consumer(scan) for scan in (*scans, *never) if scan.planned])

    def _make_topic(self, topic: int, sizes: Sequence[int]) -> None:
        ledger = Ledger("", f"topic-{topic}", 0, ObjectId(f"trace:{topic}", 0, ""))
        self._keys[topic] = [RunKey(ledger, Run(n, n)) for n in range(len(sizes))]
        for key, size in zip(self._keys[topic], sizes, strict=True):
            self.trace.runs[key] = Sizes(size, size)
        self._offsets[topic] = offsets = [0, *accumulate(sizes)]
        self._extents[topic] = []
        for first in range(0, len(sizes), EXTENT_RUNS):
            stop = min(first + EXTENT_RUNS, len(sizes))
            size = offsets[stop] - offsets[first]
            self._extents[topic].append(
                ExtentOffset(0, first, stop - 1, float(offsets[first]), size)
            )

    def _run(self, consumers: Iterable[Consumer]) -> None:
        events = self.trace.events
        events.append((0.0, Begin(Plan("plan", tuple(consumers)))))
        for number, scan in enumerate(self._scans):
            for _ in range(scan.tasks):
                self._later(scan.start_s, _Slot(number))
        now_s = 0.0
        while self._due:
            now_s, _, slot = heappop(self._due)
            self._step(now_s, slot)
        events.append((now_s, Over(("plan",))))

    def _later(self, at_s: float, slot: _Slot) -> None:
        heappush(self._due, (at_s, self._rng.getrandbits(32), slot))

    def _step(self, now_s: float, slot: _Slot) -> None:
        scan, events = self._scans[slot.scan], self.trace.events
        keys = self._keys[scan.topic]
        if slot.is_reading:
            events.append((now_s, Read(slot.task, keys[slot.at])))
            slot.at += 1
            slot.is_reading = False
        is_dead = scan.dies is not None and self._read[slot.scan] >= scan.dies
        if slot.task >= 0 and (slot.at == slot.end or is_dead):
            events.append((now_s, Close(slot.task)))
            slot.task = -1
        if slot.task < 0:
            if is_dead or not self._waiting[slot.scan]:
                self._at.pop(slot.scan, None)
                return
            if not self._read[slot.scan] and self._join is not None:
                self._begin_beside(slot.scan)
            self._open(now_s, slot)
        events.append((now_s, Take(slot.task, keys[slot.at])))
        slot.is_reading = True
        self._at[slot.scan] = slot.at
        read = self._read[slot.scan] = self._read[slot.scan] + 1
        scan.speed *= scan.changes.get(read, 1.0)
        pace = 1.0 + self._jitter * self._rng.uniform(-1.0, 1.0)
        step_s = scan.tasks / scan.speed * pace + scan.pauses.get(read, 0.0)
        self._later(now_s + step_s, slot)

    def _begin_beside(self, number: int) -> None:
        """Let a scan begin where it wants to."""
        scan, parts = self._scans[number], self._waiting[number]
        others = [
            at
            for other, at in self._at.items()
            if self._scans[other].topic == scan.topic and scan.begin <= at < scan.end
        ]
        assert self._join is not None
        if others:
            parts.rotate(-((self._join(others) - scan.begin) // self._part_runs))

    def _open(self, now_s: float, slot: _Slot) -> None:
        scan = self._scans[slot.scan]
        slot.at = self._waiting[slot.scan].popleft()
        slot.end = min(slot.at + self._part_runs, scan.end)
        slot.task, self._tasks = self._tasks, self._tasks + 1
        first, last = slot.at // EXTENT_RUNS, (slot.end - 1) // EXTENT_RUNS
        part = (slot.at - scan.begin) // self._part_runs
        reader = ReaderIdentity(
            ReadToken(slot.scan, part, part),
            f"scan-{slot.scan}",
            _consumer(scan),
            float(self._offsets[scan.topic][scan.end]),
        )
        self.trace.events.append(
            (
                now_s,
                Open(
                    slot.task,
                    reader,
                    ("plan",) if scan.planned else (),
                    tuple(self._extents[scan.topic][first : last + 1]),
                    Position(0, slot.at),
                    Position(0, slot.end),
                ),
            )
        )


def _consumer(scan: Scan) -> Consumer:
    return Consumer(
        f"topic-{scan.topic}",
        Position(0, scan.begin) if scan.begin else None,
        Position(0, scan.end),
    )


def scaled(trace: Trace) -> Trace:
    """The same with runs of usual sizes, to which segments and alignment are small."""
    runs = {
        key: Sizes(sizes.stored_bytes * SCALE, trace.size_bytes(key) * SCALE)
        for key, sizes in trace.runs.items()
    }
    return Trace(runs, trace.events)


def lagging(lags: Sequence[int], noise: int = 0, **how: Any) -> Trace:
    """10 topics, each read by scans that trail by these shares of 1/4,000."""
    runs = 300
    scans = [
        Scan(topic, 0, runs, lag * runs / 4000 + topic / 1000)
        for topic in range(10)
        for lag in lags
    ]
    scans += [
        Scan(100 + number, 0, runs, 20.0 * number, planned=False)
        for number in range(noise)
    ]
    return Pipeline(scans, jitter=0.05, **how).trace


def sequential(topics: int, jobs: int, tasks: int = 1, **how: Any) -> Trace:
    """Jobs one after another; each reads all topics, side by side."""
    runs = 4000 // topics
    return Pipeline(
        [
            Scan(topic, 0, runs, job * runs * 1.05 + topic / 10, tasks=tasks)
            for job in range(jobs)
            for topic in range(topics)
        ],
        **how,
    ).trace


def staggered(tasks: int = 1, changes: bool = False, **how: Any) -> Trace:
    """Scans that begin when they like, at speeds from 0.3 to 2.3."""
    rng = random.Random(3)
    scans = []
    for topic in range(6):
        for _ in range(4):
            scan = Scan(topic, 0, 700, rng.random() * 1000, 0.3 + rng.random() * 2)
            scan.tasks = tasks
            if changes:
                scan.changes = {rng.randrange(700): rng.choice([0.2, 0.5, 2.0, 5.0])}
            scans.append(scan)
    return Pipeline(scans, **how).trace


def many_topics(**how: Any) -> Trace:
    """40 topics of 60 to 400 runs, each read by 1 to 6 scans."""
    rng = random.Random(4)
    scans = []
    for topic in range(40):
        runs = rng.randint(60, 400)
        scans += [
            Scan(topic, 0, runs, rng.random() * 400, 0.3 + rng.random() * 2)
            for _ in range(rng.randint(1, 6))
        ]
    return Pipeline(scans, **how).trace


def stalled(**how: Any) -> Trace:
    """4 scans of each of 5 topics closely after one another; two of all stand still."""
    scans = [Scan(topic, 0, 700, 15.0 * n) for topic in range(5) for n in range(4)]
    scans[1].pauses = {200: 1500.0}
    scans[6].pauses = {70: 1000.0}
    return Pipeline(scans, **how).trace


def replay(**how: Any) -> Trace:
    """3 scans of each of 5 topics; later some read a part of two topics once more."""
    scans = [Scan(topic, 0, 700, 40.0 * n) for topic in range(5) for n in range(3)]
    scans += [Scan(0, 150, 450, 850.0, 2.0), Scan(1, 0, 700, 1100.0, 3.0)]
    return Pipeline(scans, **how).trace


def unequal(tasks: int = 1, **how: Any) -> Trace:
    """Runs of log-normal sizes, 8 to 2,000 bytes in the main."""
    rng = random.Random(5)
    sizes = [max(round(rng.lognormvariate(4.6, 1.0)), 1) for _ in range(700 * 6)]
    scans = [
        Scan(topic, 0, 700, rng.random() * 600, 0.5 + rng.random(), tasks=tasks)
        for topic in range(6)
        for _ in range(4)
    ]
    return Pipeline(
        scans, sizes=lambda topic, run: sizes[topic * 700 + run], **how
    ).trace


def broken_off(**how: Any) -> Trace:
    """One scan of each topic dies half-way; another, also planned, never comes."""
    rng = random.Random(6)
    scans, never = [], []
    for topic in range(6):
        scans += [
            Scan(topic, 0, 700, rng.random() * 500, 0.5 + rng.random())
            for _ in range(3)
        ]
        scans[-1].dies = rng.randint(100, 600)
        never.append(Scan(topic, 0, 700, 0.0))
    return Pipeline(scans, never=never, **how).trace


WORKLOADS: dict[str, Callable[..., Trace]] = {
    "2 readers, lag 50": lambda **how: lagging([0, 50], **how),
    "3 readers": lambda **how: lagging([0, 800, 2000], **how),
    "8 readers": lambda **how: lagging(
        [0, 120, 320, 600, 1200, 1240, 2400, 3600], **how
    ),
    "3 readers and noise": lambda **how: lagging([0, 800, 2000], noise=10, **how),
    "4 jobs one after another": lambda **how: sequential(1, 4, **how),
    "3 jobs over 3 topics": lambda **how: sequential(3, 3, **how),
    "3 jobs, 8 tasks each": lambda **how: sequential(1, 3, tasks=8, **how),
    "staggered, uneven": lambda **how: staggered(**how),
    "staggered, 2 tasks each": lambda **how: staggered(tasks=2, **how),
    "staggered, changing speed": lambda **how: staggered(changes=True, **how),
    "40 topics, 1-6 readers": many_topics,
    "a stalled consumer": stalled,
    "a replay": replay,
    "unequal runs": unequal,
    "unequal runs, 4 tasks each": lambda **how: unequal(tasks=4, **how),
}

# What no plan can say. Apart, because no policy can be expected to know it.
BROKEN: dict[str, Callable[..., Trace]] = {"some die, some never come": broken_off}
