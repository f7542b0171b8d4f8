"""The eviction order of runs whose next read is forecast.

The run whose next planned read is farthest in the future is evicted first. A new run
that is read later than all runs held is not admitted. Runs without a planned read are
evicted before all others, in the order of `RemovalQueue`, and never evict an expected
run.

Nothing is searched. Between two breakpoints of a topic (see `Forecast.breakpoints`) a
larger offset is read later, so only the last run before each breakpoint can be the
farthest of its topic. The time at which a run will be read does not change while
readers move as expected, so a heap keeps the farthest run of each topic, which is
determined again when a run of the topic is added or removed or one of its readers
moves. Readers that stand still fall back without any such signal: therefore each
decision also examines the topic that was examined least recently.

So a decision costs O(b log n) for the b breakpoints of a topic with n runs, plus
O(log t) for t topics.

Source: Belady's MIN (1966), which evicts the run that is needed last and knows it from
the trace. Different here: it is estimated from plans and cursors.
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

_STALE = 4  # heap entries per topic at which the heap is rebuilt


class ReadForecast(Protocol):
    """Estimates of when runs will be read next."""

    @property
    def tick(self) -> int:
        """The current time, in ticks."""

    def offset_of(self, key: RunKey) -> float:
        """Return the offset of a run in its topic, in stored bytes."""

    def breakpoints(self, topic: str) -> list[float]:
        """Return the offsets at which the next reader changes, ascending."""

    def ticks_until_read(self, topic: str, offset: float) -> float:
        """Estimate the ticks until an offset is read next; infinite if it is not."""


class _TopicRuns(Generic[V]):
    """The runs of a topic by offset, and the run that is read last."""

    __slots__ = ("farthest", "runs", "version")

    def __init__(self) -> None:
        self.runs: SortedDict[tuple[float, int], CachedRun[V]] = SortedDict()
        self.farthest: CachedRun[V] | None = None
        self.version = 0

    def last_before(self, offset: float) -> tuple[int, CachedRun[V] | None]:
        """Return the index and the run of the last unpinned run before an offset."""
        for index in range(self.runs.bisect_left((offset,)) - 1, -1, -1):
            run: CachedRun[V] = self.runs.peekitem(index)[1]
            if not run.pins:
                return index, run
        return -1, None


class NextRead(Generic[V]):
    """Expected runs in the order of their next read."""

    def __init__(self, forecast: ReadForecast, counters: Counters) -> None:
        self._forecast = forecast
        self._counters = counters
        self._topics: dict[str, _TopicRuns[V]] = {}
        self._order_keys: dict[CachedRun[V], tuple[float, int]] = {}
        self._serial = 0
        self._moved: dict[str, None] = {}  # ordered, so that equal calls decide equally
        self._examined: OrderedDict[str, None] = OrderedDict()
        self._heap: list[tuple[float, int, str]] = []  # -tick, version, topic

    def __len__(self) -> int:
        return len(self._order_keys)

    def __contains__(self, run: CachedRun[V]) -> bool:
        return run in self._order_keys

    def __repr__(self) -> str:
        return f"<{len(self)} runs of {len(self._topics)} topics>"

    def add(self, run: CachedRun[V]) -> None:
        """Add a run that is not in this order."""
        name = run.key.ledger.topic
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _TopicRuns()
        self._serial += 1
        order_key = (self._forecast.offset_of(run.key), self._serial)
        topic.runs[order_key] = run
        self._order_keys[run] = order_key
        self._moved[name] = None

    def remove(self, run: CachedRun[V]) -> None:
        """Remove a run that is in this order."""
        name = run.key.ledger.topic
        topic = self._topics[name]
        del topic.runs[self._order_keys.pop(run)]
        self._moved[name] = None
        if not topic.runs:
            del self._topics[name]
            self._examined.pop(name, None)

    def readers_moved(self, topic: str) -> None:
        """Note that a reader of a topic moved, or that the pins of its runs changed."""
        if topic in self._topics:
            self._moved[topic] = None

    def shrink(self, size_bytes: int, runs: int) -> list[CachedRun[V]]:
        """Remove runs until this much is freed or no run can be removed."""
        return self._remove_farthest(size_bytes, runs, later_than=-1.0)

    def evict_for(
        self, size_bytes: int, runs: int, ticks: float
    ) -> list[CachedRun[V]] | None:
        """Remove runs that are not read within this many ticks, to free this much.

        Returns None, and removes no run, if that is not possible.
        """
        removed = self._remove_farthest(size_bytes, runs, later_than=ticks)
        freed_bytes = sum(run.size_bytes for run in removed)
        if freed_bytes >= size_bytes and len(removed) >= runs:
            return removed
        for run in removed:
            self.add(run)
        return None

    def is_any_read_after(self, ticks: float) -> bool:
        """Return whether any run that is not pinned is read later than in so long."""
        self._refresh()
        return self._farthest(ticks) is not None

    def all(self) -> list[CachedRun[V]]:
        """List all runs, the next to be evicted first. For tests: O(n)."""
        by_time = [
            (self._next_read_tick(run), order_key)
            for run, order_key in self._order_keys.items()
        ]
        order = sorted(
            zip(by_time, self._order_keys, strict=True), key=lambda item: item[0]
        )
        return [run for _, run in reversed(order)]

    def check(self) -> None:
        """Assert the invariants. For tests: O(n)."""
        assert sum(len(topic.runs) for topic in self._topics.values()) == len(self)
        for name, topic in self._topics.items():
            assert topic.runs
            for order_key, run in topic.runs.items():
                assert run.key.ledger.topic == name
                assert self._order_keys[run] == order_key
                assert run.expected_reads > 0
        assert self._examined.keys() <= self._topics.keys()
        assert self._topics.keys() <= self._examined.keys() | self._moved.keys()
        assert len(self._heap) <= _STALE * max(len(self._topics), _STALE)

    def _remove_farthest(
        self, size_bytes: int, runs: int, later_than: float
    ) -> list[CachedRun[V]]:
        self._refresh()
        removed: list[CachedRun[V]] = []
        while size_bytes > 0 or runs > 0:
            run = self._farthest(later_than)
            if run is None:
                break
            self.remove(run)
            self._refresh_topic(run.key.ledger.topic)
            removed.append(run)
            size_bytes -= run.size_bytes
            runs -= 1
        return removed

    def _refresh(self) -> None:
        """Determine the farthest run again for each topic where it may have changed."""
        for name in self._moved:
            self._refresh_topic(name)
        self._moved.clear()
        if self._examined:
            self._refresh_topic(next(iter(self._examined)))

    def _refresh_topic(self, name: str) -> None:
        """Determine the farthest run of a topic, and when it is read."""
        topic = self._topics.get(name)
        if topic is None:
            return
        latest, topic.farthest = -inf, None
        last_index = -1
        for offset in (*self._forecast.breakpoints(name), inf):
            index, run = topic.last_before(offset)
            if run is None or index == last_index:
                continue
            last_index = index
            self._counters.examined += 1
            tick = self._next_read_tick(run)
            if tick > latest:
                latest, topic.farthest = tick, run
        self._serial += 1
        topic.version = self._serial
        self._examined[name] = None
        self._examined.move_to_end(name)
        if len(self._heap) >= _STALE * max(len(self._topics), _STALE):
            self._heap = [entry for entry in self._heap if self._is_fresh(entry)]
            heapify(self._heap)
        if topic.farthest is not None:
            heappush(self._heap, (-latest, topic.version, name))

    def _next_read_tick(self, run: CachedRun[V]) -> float:
        offset, _ = self._order_keys[run]
        ticks = self._forecast.ticks_until_read(run.key.ledger.topic, offset)
        return self._forecast.tick + ticks

    def _farthest(self, later_than: float) -> CachedRun[V] | None:
        """Return the run that is read last if it is read late enough, else None."""
        while self._heap and not self._is_fresh(self._heap[0]):
            heappop(self._heap)
        if not self._heap:
            return None
        negative_tick, _, name = self._heap[0]
        if -negative_tick - self._forecast.tick <= later_than:
            return None
        return self._topics[name].farthest

    def _is_fresh(self, entry: tuple[float, int, str]) -> bool:
        _, version, name = entry
        topic = self._topics.get(name)
        return topic is not None and topic.version == version
