"""An oracle that knows what a plan can know: not when a consumer will begin.

Of the consumers that have begun it knows when each will read which run, as Belady's MIN
does. Of the others it knows what next-read knows: that they will come, and how often
one of their plan has begun so far. So what it reads more than MIN is due to beginnings
that nobody can know, and what next-read reads more than it, to places and speeds.

Each consumer reads all runs of its topic, once, and all runs have one size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sparkcache.demand.arrivals import Arrivals
from sparkcache.trace import Begin, Open, Take

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparkcache.demand import Plan
    from sparkcache.trace import Event, Trace

    Ticks: TypeAlias = NDArray[np.float64]


def plan_oracle(trace: Trace, max_bytes: int) -> int:
    """Return the bytes that the oracle reads from the storage."""
    run_bytes = trace.size_bytes(next(iter(trace.runs)))
    oracle = _Oracle(trace, max_bytes // run_bytes)
    for _, event in trace.events:
        oracle.happen(event)
    return oracle.loads * run_bytes


class _Oracle:
    """The runs that are held, and when each will be read next.

    Arrays are by run, the topics one after another.
    """

    def __init__(self, trace: Trace, capacity: int) -> None:
        self.loads = 0
        self._room = capacity
        sizes: dict[str, int] = {}
        for key in trace.runs:
            sizes[key.ledger.topic] = sizes.get(key.ledger.topic, 0) + 1
        self._topics = {topic: number for number, topic in enumerate(sizes)}
        self._first = np.cumsum([0, *sizes.values()])
        self._topic_of = np.repeat(np.arange(len(sizes)), list(sizes.values()))
        self._way = np.concatenate([np.arange(float(size)) for size in sizes.values()])
        self._is_held = np.zeros(len(trace.runs), dtype=bool)
        self._next = np.full(len(trace.runs), np.inf)  # of consumers that have begun
        self._left = np.zeros(len(trace.runs), dtype=int)
        self._waiting = np.zeros(len(sizes), dtype=int)
        self._reads = _reads(trace)
        self._begun: dict[int, str] = {}  # topics of scans
        self._arrivals = Arrivals(0)
        self._tick = 0

    def happen(self, event: Event) -> None:
        """Follow what consumers do, and load what they miss."""
        match event:
            case Begin(plan):
                self._plan(plan)
            case Open(reader=reader):
                if reader.token.stage not in self._begun:
                    self._begin(reader.token.stage, reader.consumer.topic)
            case Take(key=key):
                self._tick += 1
                self._take(key.ledger.topic, key.run.first)

    def _plan(self, plan: Plan) -> None:
        for consumer in plan.consumers:
            self._waiting[self._topics[consumer.topic]] += 1
            self._left[self._runs(consumer.topic)] += 1
        self._arrivals.waiting = len(plan.consumers)

    def _begin(self, scan: int, topic: str) -> None:
        self._begun[scan] = topic
        self._waiting[self._topics[topic]] -= 1
        self._arrivals.begin(self._tick)
        runs = self._runs(topic)
        self._next[runs] = np.minimum(self._next[runs], self._reads[scan])

    def _take(self, topic: str, place: int) -> None:
        run = int(self._first[self._topics[topic]]) + place
        self._left[run] -= 1
        ticks = [
            self._reads[scan][place]
            for scan, its_topic in self._begun.items()
            if its_topic == topic
        ]
        self._next[run] = min((at for at in ticks if at > self._tick), default=np.inf)
        if not self._is_held[run]:
            self.loads += 1
            if not self._left[run] or not self._make_room(run):
                return
        self._is_held[run] = bool(self._left[run])
        self._room += not self._is_held[run]

    def _make_room(self, run: int) -> bool:
        """Take room for a run, if need be that of another that is read later."""
        if self._room:
            self._room -= 1
            return True
        ticks = self._ticks_until_read()
        farthest = int(np.argmax(np.where(self._is_held, ticks, -1.0)))
        if ticks[farthest] <= ticks[run]:
            return False
        self._is_held[farthest] = False
        return True

    def _ticks_until_read(self) -> Ticks:
        """Return the mean ticks until each run is read: see `soonest`."""
        begun = self._next - self._tick
        reading = sum(self._reads[scan].max() > self._tick for scan in self._begun)
        way = self._way * max(reading, 1)
        count = np.maximum(self._waiting, 1)
        delays = np.array([self._arrivals.delay(self._tick, int(n)) for n in count])
        delay = np.maximum(delays, 1e-9)[self._topic_of]
        late = way + delay * -np.expm1(np.minimum((way - begun) / delay, 0.0))
        is_awaited = (self._waiting > 0)[self._topic_of] & (begun > way)
        return np.where(is_awaited, late, begun)

    def _runs(self, topic: str) -> slice:
        number = self._topics[topic]
        return slice(int(self._first[number]), int(self._first[number + 1]))


def _reads(trace: Trace) -> dict[int, Ticks]:
    """Return by scan when it reads each run of its topic, in ticks."""
    reads: dict[int, list[float]] = {}
    scans: dict[int, int] = {}
    tick = 0
    for _, event in trace.events:
        if isinstance(event, Open):
            scans[event.task] = event.reader.token.stage
        elif isinstance(event, Take):
            tick += 1
            by_run = reads.setdefault(scans[event.task], [])
            by_run += [np.inf] * (event.key.run.first + 1 - len(by_run))
            by_run[event.key.run.first] = tick
    return {scan: np.array(by_run) for scan, by_run in reads.items()}
