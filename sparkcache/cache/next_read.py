"""The eviction order of runs whose next read is forecast.

The run whose next planned read is farthest in the future is evicted first. A new run
that is read later than all runs held is not admitted. Runs without a planned read are
evicted before all others, in the order of `RemovalQueue`, and never evict an expected
run.

Nothing is searched. Between two breakpoints of a topic (see `Forecast.next_breakpoint`)
a larger offset is read later, so only the last run of each such piece can be the
farthest of its topic. When it will be read does not change while readers move as
expected. So a heap keeps claims: that a run is the last of its piece, and is read at
some tick. A decision examines again

    the pieces in which a run was added, removed, looked up, mapped or unmapped
    `_PIECES` of each topic whose readers came or went, in turns: unless there are many,
    all of them
    one piece of the topic that was examined least recently: readers that stand still
    fall back without any signal
    the piece of the run that it is about to evict, in case that run is read sooner now

So a decision costs O(log n) for n runs, and the same for any number of pieces. Where
there are more than `_PIECES`, it may miss that an estimate has become later until it is
the piece's turn.

A request to the storage has a price, too, in bytes. A load reads the runs of an extent
up to the first that is held. So if a run is evicted between two that are held, its next
reader makes one more request; if its neighbours are not held, one less. What evicting
costs is the size of the run, and more or less by a share of the price: a quarter, since
others of the extent go with the run, and at most half of its size. (More saves requests
at the cost of bytes, and of both together.) The run goes that has the most ticks until
it is read for what it costs.

Source: Belady's MIN (1966), which evicts the run that is needed last and knows it from
the trace. Different here: it is estimated from plans and cursors.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sortedcontainers import SortedDict

from sparkcache.cache.claims import Claim, Claims

if TYPE_CHECKING:
    from sparkcache.cache.cached_run import CachedRun
    from sparkcache.cache.counters import Counters
    from sparkcache.model import RunKey

V = TypeVar("V")

_PIECES = 8  # of a topic that are examined in turn after a change
_PRICE_SHARE = 0.25  # of the price of a request, that one run bears
_MAX_SHARE = 0.5  # of the size of a run, that a request may add to its cost or take


class ReadForecast(Protocol):
    """Estimates of when runs will be read next."""

    @property
    def tick(self) -> int:
        """The current time, in ticks."""

    def offset_of(self, key: RunKey) -> float:
        """Return the offset of a run in its topic, in stored bytes."""

    def next_breakpoint(self, topic: str, offset: float) -> float:
        """Return the first offset after this one where another reader may be next."""

    def ticks_until_read(self, topic: str, offset: float) -> float:
        """Estimate the ticks until an offset is read next; infinite if it is not."""


class _TopicRuns(Generic[V]):
    """The runs of a topic by offset, and what is to be examined again.

    Attributes:
        changed: Offsets in pieces that changed. Ordered, so that equal calls decide
            equally.
        turn: The piece with the first run from this offset on is the next in turn.
        owed: How many pieces the next decision examines in turn.

    """

    __slots__ = ("changed", "name", "owed", "runs", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs: SortedDict[tuple[float, int], CachedRun[V]] = SortedDict()
        self.changed: dict[float, None] = {}
        self.turn = -inf
        self.owed = 0

    def first_from(self, offset: float) -> float | None:
        """Return the offset of the first run from an offset on."""
        index = self.runs.bisect_left((offset,))
        return self.runs.peekitem(index)[0][0] if index < len(self.runs) else None

    def requests(self, order_key: tuple[float, int]) -> int:
        """Return how many more requests loads make if the run at a place goes."""
        index = self.runs.index(order_key)
        return self._joins(index, self.runs[order_key].key, index + 1) - 1

    def requests_without(self, key: RunKey, offset: float) -> int:
        """Return how many more requests loads make if a new run is not held."""
        index = self.runs.bisect_left((offset,))
        return self._joins(index, key, index) - 1

    def _joins(self, index: int, key: RunKey, following: int) -> int:
        """Return how many neighbours of a run are held, before `index` or following."""
        joins = 0
        if index > 0:
            before: RunKey = self.runs.peekitem(index - 1)[1].key
            is_next = before.run.last + 1 == key.run.first
            joins += is_next and before.ledger == key.ledger
        if following < len(self.runs):
            after: RunKey = self.runs.peekitem(following)[1].key
            is_next = key.run.last + 1 == after.run.first
            joins += is_next and after.ledger == key.ledger
        return joins

    def last_before(self, offset: float) -> CachedRun[V] | None:
        """Return the last unpinned run before an offset."""
        for index in range(self.runs.bisect_left((offset,)) - 1, -1, -1):
            run: CachedRun[V] = self.runs.peekitem(index)[1]
            if not run.pins:
                return run
        return None


class NextRead(Generic[V]):
    """Expected runs in the order of their next read.

    Args:
        forecast: When runs are read next.
        counters: The counters to use.
        get_cost_bytes: The price of a request to the storage.

    """

    def __init__(
        self, forecast: ReadForecast, counters: Counters, get_cost_bytes: int = 0
    ) -> None:
        self.get_cost_bytes = get_cost_bytes
        self._forecast = forecast
        self._counters = counters
        self._topics: dict[str, _TopicRuns[V]] = {}
        self._order_keys: dict[CachedRun[V], tuple[float, int]] = {}
        self._serial = 0
        self._changed: dict[str, None] = {}  # ordered, too
        self._examined: OrderedDict[str, None] = OrderedDict()
        self._claims: Claims[V] = Claims()

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
            topic = self._topics[name] = _TopicRuns(name)
            self._examined[name] = None
        self._serial += 1
        order_key = (self._forecast.offset_of(run.key), self._serial)
        topic.runs[order_key] = run
        self._order_keys[run] = order_key
        self._change_around(topic, order_key[0])

    def remove(self, run: CachedRun[V]) -> None:
        """Remove a run that is in this order."""
        name = run.key.ledger.topic
        topic = self._topics[name]
        order_key = self._order_keys.pop(run)
        del topic.runs[order_key]
        self._claims.drop(run)
        if topic.runs:
            self._change_around(topic, order_key[0])
        else:
            del self._topics[name]
            del self._examined[name]
            self._changed.pop(name, None)

    def touch(self, run: CachedRun[V]) -> None:
        """Note that a reader has come to a run, or that its pins changed."""
        order_key = self._order_keys.get(run)
        if order_key is not None:
            self._change(self._topics[run.key.ledger.topic], order_key[0])

    def readers_moved(self, topic: str) -> None:
        """Note that readers of a topic came, went or moved."""
        found = self._topics.get(topic)
        if found is not None:
            found.owed = _PIECES
            self._changed[topic] = None

    def shrink(self, size_bytes: int, runs: int) -> list[CachedRun[V]]:
        """Remove runs until this much is freed or no run can be removed."""
        return self._remove_farthest(size_bytes, runs, later_than=-inf)

    def evict_for(
        self, size_bytes: int, runs: int, than: float
    ) -> list[CachedRun[V]] | None:
        """Remove runs that are read later, for what they cost, to free this much.

        `than` is a `lateness`. Returns None, and removes no run, if there are not
        enough.
        """
        removed = self._remove_farthest(size_bytes, runs, later_than=than)
        freed_bytes = sum(run.size_bytes for run in removed)
        if freed_bytes >= size_bytes and len(removed) >= runs:
            return removed
        for run in removed:
            self.add(run)
        return None

    def is_any_later(self, than: float) -> bool:
        """Return whether any run that is not pinned is read later, for what it costs.

        `than` is a `lateness`.
        """
        self._begin_decision()
        return self._farthest(than) is not None

    def lateness(self, key: RunKey, size_bytes: int) -> float:
        """Return the ticks until a new run is read, for what it costs."""
        name, offset = key.ledger.topic, self._forecast.offset_of(key)
        ticks = self._forecast.ticks_until_read(name, offset)
        topic = self._topics.get(name)
        if topic is None or not self.get_cost_bytes:
            return ticks
        return ticks / self._cost(size_bytes, topic.requests_without(key, offset))

    def all(self) -> list[CachedRun[V]]:
        """List all runs, the next to be evicted first. For tests: O(n)."""
        by_time = [
            (self._lateness(self._claim(run)), order_key)
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
        assert self._examined.keys() == self._topics.keys()
        assert self._changed.keys() <= self._topics.keys()
        self._claims.check(self._order_keys.keys())

    def _remove_farthest(
        self, size_bytes: int, runs: int, later_than: float
    ) -> list[CachedRun[V]]:
        self._begin_decision()
        removed: list[CachedRun[V]] = []
        while size_bytes > 0 or runs > 0:
            run = self._farthest(later_than)
            if run is None:
                break
            self.remove(run)
            self._examine_changed()
            removed.append(run)
            size_bytes -= run.size_bytes
            runs -= 1
        return removed

    def _begin_decision(self) -> None:
        self._claims.begin_decision()
        self._examine_changed()
        if self._examined:
            name = next(iter(self._examined))
            self._examine_in_turn(self._topics[name], 1)

    def _change(self, topic: _TopicRuns[V], offset: float) -> None:
        """Have the next decision examine the piece at an offset."""
        if offset not in topic.changed:
            topic.changed[offset] = None
            self._changed[topic.name] = None

    def _change_around(self, topic: _TopicRuns[V], offset: float) -> None:
        """Have the next decision examine an offset, and the runs next to it."""
        self._change(topic, offset)
        if self.get_cost_bytes:
            index = topic.runs.bisect_left((offset,))
            for other in range(max(index - 1, 0), min(index + 2, len(topic.runs))):
                self._change(topic, topic.runs.peekitem(other)[0][0])

    def _examine_changed(self) -> None:
        """Examine the pieces that changed, and some of those that may have."""
        for name in self._changed:
            topic = self._topics[name]
            end = -inf
            for offset in sorted(topic.changed):
                if offset >= end:
                    end = self._examine(topic, offset)
            topic.changed.clear()
            self._examine_in_turn(topic, topic.owed)
            topic.owed = 0
        self._changed.clear()

    def _examine_in_turn(self, topic: _TopicRuns[V], pieces: int) -> None:
        """Examine the next pieces of a topic, after its last the first."""
        begin, has_wrapped = topic.turn, False
        for _ in range(pieces):
            offset = topic.first_from(topic.turn)
            if offset is None:
                offset, has_wrapped = topic.first_from(-inf), True
                assert offset is not None, "it has runs"
            if has_wrapped and offset >= begin:
                break  # these were all
            topic.turn = self._examine(topic, offset)
        self._examined.move_to_end(topic.name)

    def _examine(self, topic: _TopicRuns[V], offset: float) -> float:
        """Claim the last run of the piece at an offset; return where the piece ends."""
        end = self._forecast.next_breakpoint(topic.name, offset)
        run = topic.last_before(end)
        if run is not None and not self._claims.is_made(run, self._requests(run)):
            self._counters.examined += 1
            self._claims.make(self._claim(run))
        return end

    def _claim(self, run: CachedRun[V]) -> Claim[V]:
        offset, _ = self._order_keys[run]
        ticks = self._forecast.ticks_until_read(run.key.ledger.topic, offset)
        return Claim(run, self._forecast.tick + ticks, self._requests(run))

    def _requests(self, run: CachedRun[V]) -> int:
        """Return how many more requests loads make if a run goes, if they matter."""
        if not self.get_cost_bytes:
            return 0
        topic = self._topics[run.key.ledger.topic]
        return topic.requests(self._order_keys[run])

    def _lateness(self, claim: Claim[V]) -> float:
        """Return the ticks until a run is read, for what it costs to evict it."""
        ticks = claim.tick - self._forecast.tick
        return ticks / self._cost(claim.run.size_bytes, claim.requests)

    def _cost(self, size_bytes: int, requests: int) -> float:
        """Return what evicting a run costs, for each of its bytes."""
        share = _PRICE_SHARE * self.get_cost_bytes / max(size_bytes, 1)
        return 1.0 + requests * min(share, _MAX_SHARE)

    def _farthest(self, later_than: float) -> CachedRun[V] | None:
        """Return the run that is read last if it is read late enough, else None."""
        while True:
            claim = max(self._claims.latest(), key=self._lateness, default=None)
            if claim is None or self._lateness(claim) <= later_than:
                return None
            if self._claims.is_made(claim.run, claim.requests):
                return claim.run
            # Claimed by an earlier decision.
            self._claims.drop(claim.run)
            topic = self._topics[claim.run.key.ledger.topic]
            self._examine(topic, self._order_keys[claim.run][0])
