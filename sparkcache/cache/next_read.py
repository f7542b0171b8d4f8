"""Which run goes next, where it is known when each will be read.

The run that goes is the one whose next planned read is farthest; a newcomer that is
farther than all that is held is not taken in. Runs that nobody is planned to read go
before all others, in the order of `RemovalQueue`, and make no room for themselves at
the cost of one that is expected.

Nothing is searched. Between two cuts of a topic (see `Forecast.cuts`) a run is read the
later the farther on it lies, so only the last one before each cut can be the farthest
of its topic. And the time at which a run will be read does not change while readers
move as they were expected to, so each topic's farthest is kept in a heap, and looked
for again when one of its runs came or went or one of its readers moved. A topic whose
readers stand still falls behind without saying so: therefore each decision also looks
again at the topic that it has not looked at for longest.

So a decision costs O(c log n) for the c cuts of a topic with n runs, plus O(log t) for
t topics.

Source: Belady's MIN (1966), which evicts what is needed last and knows it from the
trace. Different here: it is known from plans and cursors, so roughly.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sortedcontainers import SortedDict

if TYPE_CHECKING:
    from sparkcache.cache.cached_run import CachedRun
    from sparkcache.cache.counters import Counters
    from sparkcache.model import RunKey

V = TypeVar("V")

_STALE = 4  # entries of the heap for each topic, before it is made anew


class ReadForecast(Protocol):
    """What has to be known of the readers to come."""

    @property
    def tick(self) -> int:
        """The time now."""

    def place(self, key: RunKey) -> float:
        """Return where in its topic a run lies."""

    def cuts(self, topic: str) -> list[float]:
        """Return the places where who reads next changes, ascending."""

    def ticks_until_read(self, topic: str, place: float) -> float:
        """Estimate when a place is read next; infinite if it is not."""


class _TopicRuns(Generic[V]):
    """The runs of a topic by place, and which of them is read last."""

    __slots__ = ("farthest", "look", "runs")

    def __init__(self) -> None:
        self.runs: SortedDict[tuple[float, int], CachedRun[V]] = SortedDict()
        self.farthest: CachedRun[V] | None = None
        self.look = 0

    def last_before(self, cut: float) -> tuple[int, CachedRun[V] | None]:
        """Find the last run before a place that nobody maps, and its index."""
        for index in range(self.runs.bisect_left((cut,)) - 1, -1, -1):
            run: CachedRun[V] = self.runs.peekitem(index)[1]
            if not run.pins:
                return index, run
        return -1, None


class NextRead(Generic[V]):
    """The runs that are expected to be read, in the order of when."""

    def __init__(self, foreseen: ReadForecast, counters: Counters) -> None:
        self._foreseen = foreseen
        self._counters = counters
        self._topics: dict[str, _TopicRuns[V]] = {}
        self._places: dict[CachedRun[V], tuple[float, int]] = {}
        self._serial = 0
        self._moved: dict[str, None] = {}  # in order: the same calls decide the same
        self._looked_at: OrderedDict[str, None] = OrderedDict()
        self._heap: list[tuple[float, int, str]] = []  # -when, look, topic

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, run: CachedRun[V]) -> bool:
        return run in self._places

    def __repr__(self) -> str:
        return f"<{len(self)} runs of {len(self._topics)} topics>"

    def add(self, run: CachedRun[V]) -> None:
        """Take in a run that is not here."""
        name = run.key.ledger.topic
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _TopicRuns()
        self._serial += 1
        place = (self._foreseen.place(run.key), self._serial)
        topic.runs[place] = run
        self._places[run] = place
        self._moved[name] = None

    def remove(self, run: CachedRun[V]) -> None:
        """Take out a run that is here."""
        name = run.key.ledger.topic
        topic = self._topics[name]
        del topic.runs[self._places.pop(run)]
        self._moved[name] = None
        if not topic.runs:
            del self._topics[name]
            self._looked_at.pop(name, None)

    def moved(self, topic: str) -> None:
        """Note that one of a topic's readers did something."""
        if topic in self._topics:
            self._moved[topic] = None

    def shrink(self, size_bytes: int, runs: int) -> list[CachedRun[V]]:
        """Remove until so much is freed, or nothing is left that could go."""
        return self._remove_farthest(size_bytes, runs, later_than=-1.0)

    def evict_for(
        self, size_bytes: int, runs: int, ticks: float
    ) -> list[CachedRun[V]] | None:
        """Remove until so much is freed, but nothing read within so many ticks.

        None, and nothing is removed, if that cannot be.
        """
        removed = self._remove_farthest(size_bytes, runs, later_than=ticks)
        freed_bytes = sum(run.size_bytes for run in removed)
        if freed_bytes >= size_bytes and len(removed) >= runs:
            return removed
        for run in removed:
            self.add(run)
        return None

    def all(self) -> list[CachedRun[V]]:
        """List every run, the next to go first. For tests: O(n)."""
        by_time = [(self._when(run), place) for run, place in self._places.items()]
        order = sorted(zip(by_time, self._places, strict=True), key=lambda it: it[0])
        return [run for _, run in reversed(order)]

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        assert sum(len(topic.runs) for topic in self._topics.values()) == len(self)
        for name, topic in self._topics.items():
            assert topic.runs
            for place, run in topic.runs.items():
                assert run.key.ledger.topic == name
                assert self._places[run] == place
                assert run.expected_reads > 0
        assert self._looked_at.keys() <= self._topics.keys()
        assert self._topics.keys() <= self._looked_at.keys() | self._moved.keys()
        assert len(self._heap) <= _STALE * max(len(self._topics), _STALE)

    def _remove_farthest(
        self, size_bytes: int, runs: int, later_than: float
    ) -> list[CachedRun[V]]:
        self._look_again()
        removed: list[CachedRun[V]] = []
        while size_bytes > 0 or runs > 0:
            run = self._farthest(later_than)
            if run is None:
                break
            self.remove(run)
            self._look_at(run.key.ledger.topic)
            removed.append(run)
            size_bytes -= run.size_bytes
            runs -= 1
        return removed

    def _look_again(self) -> None:
        """Find the farthest run of each topic where it may have changed."""
        for name in self._moved:
            self._look_at(name)
        self._moved.clear()
        if self._looked_at:
            self._look_at(next(iter(self._looked_at)))

    def _look_at(self, name: str) -> None:
        """Find a topic's farthest run, and when it is read."""
        topic = self._topics.get(name)
        if topic is None:
            return
        latest, topic.farthest = -inf, None
        before = -1
        for cut in (*self._foreseen.cuts(name), inf):
            index, run = topic.last_before(cut)
            if run is None or index == before:
                continue
            before = index
            self._counters.looked_at += 1
            when = self._when(run)
            if when > latest:
                latest, topic.farthest = when, run
        self._serial += 1
        topic.look = self._serial
        self._looked_at[name] = None
        self._looked_at.move_to_end(name)
        if len(self._heap) >= _STALE * max(len(self._topics), _STALE):
            self._heap = [entry for entry in self._heap if self._is_fresh(entry)]
            heapify(self._heap)
        if topic.farthest is not None:
            heappush(self._heap, (-latest, topic.look, name))

    def _when(self, run: CachedRun[V]) -> float:
        place, _ = self._places[run]
        ticks = self._foreseen.ticks_until_read(run.key.ledger.topic, place)
        return self._foreseen.tick + ticks

    def _farthest(self, later_than: float) -> CachedRun[V] | None:
        """Find the run that is read last, if that is late enough."""
        while self._heap and not self._is_fresh(self._heap[0]):
            heappop(self._heap)
        if not self._heap:
            return None
        when, _, name = self._heap[0]
        if -when - self._foreseen.tick <= later_than:
            return None
        return self._topics[name].farthest

    def _is_fresh(self, entry: tuple[float, int, str]) -> bool:
        _, look, name = entry
        topic = self._topics.get(name)
        return topic is not None and topic.look == look
