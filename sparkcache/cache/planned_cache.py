"""A cache engine combined with the forecast of planned reads.

The node and the simulator drive this class. A reader takes its runs one after another
and later reports each run as finished. Taking a run moves the reader's cursor past it,
so the forecast then counts only the readers that have not reached the run. Finishing
it ends the expectation of that read, and the last expected read removes the run.
Between the two the run may be evicted, since nothing depends on the cache holding it.

Source: Pulsar counts a read when the entry is released by its dispatcher (PIP-430).
Different here: a run that is taken but never finished was not read, and stays expected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkcache.cache.counters import Counters
from sparkcache.cache.ring_cache import RingCache
from sparkcache.cache.run_cache import RunCache
from sparkcache.demand import Consumers, Forecast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkcache.cache.cached_run import CachedRun
    from sparkcache.cache.engine import Engine
    from sparkcache.cache.settings import Settings
    from sparkcache.demand import ExtentOffset, PartitionRead, Plan, ReaderIdentity
    from sparkcache.model import Position, RunKey, Slot

V = TypeVar("V")


class PlannedCache(Generic[V]):
    """The runs of a node and the readers to come of each.

    A method that returns runs means "these are no longer kept, free them".

    Attributes:
        runs: The engine, used directly to peek, pin, expire and configure.

    """

    def __init__(self, settings: Settings) -> None:
        self._forecast = Forecast()
        self._forget_at_s: dict[str, float] = {}  # by plan of an ended stream
        self.runs: Engine[V] = self._engine(settings, Counters())

    def __repr__(self) -> str:
        return f"<{self.runs!r}, {self._forecast!r}>"

    def begin(
        self, plans: Iterable[Plan], now_s: float, *, late: bool = False
    ) -> list[Plan]:
        """Begin plans; return those that were neither known nor over already.

        A known stream moves on to its next batch. A new run of a query ends the plans
        of the run before, whether or not that end was reported. With `late`, plans of a
        query that already has another run are ignored: they belong to an old run.
        """
        begun = []
        for plan in plans:
            previous = self._forecast.move(plan)
            if previous is not None:
                both = previous.consumers + plan.consumers
                self._recount(replace(plan, consumers=both), now_s)
            elif late and self._forecast.other_runs(plan):
                continue
            elif self._forecast.begin(plan):
                begun.append(plan)
                self._recount(plan, now_s)
                over = self._forecast.other_runs(plan)
                if plan.is_stream:
                    over += self._forecast.placeholders_for(plan)
                self.end(over, now_s)
        return begun

    def reach(
        self, query: str, reached: Mapping[str, Position], now_s: float
    ) -> list[Plan]:
        """Note how far a query has read topics on any node; return changed plans."""
        known = self._forecast.streams(query)
        moved = [
            later for plan in known if (later := plan.remaining_after(reached)) != plan
        ]
        self.begin(moved, now_s)
        return moved

    def end(self, plan_ids: Iterable[str], now_s: float) -> list[CachedRun[V]]:
        """End plans for good; remove and return runs that nobody else will read.

        Runs that a stream expected stay: the next stream may begin where it ended.
        """
        no_longer_expected = []
        for plan in self._forecast.end(plan_ids):
            unexpected = self._recount(plan, now_s)
            if not plan.is_stream:
                no_longer_expected += unexpected
            elif self.runs.settings.continue_s and self._forecast.foresee_ended(plan):
                self._forget_at_s[plan.id] = now_s + self.runs.settings.continue_s
        removed = [run for key in no_longer_expected if (run := self.runs.remove(key))]
        self.runs.counters.evicted_by_plan_end += len(removed)
        return removed

    def expire_ended_streams(self, now_s: float) -> None:
        """Drop the forecast of streams that ended longer ago than `continue_s`."""
        for plan_id, until_s in list(self._forget_at_s.items()):
            if until_s <= now_s:
                del self._forget_at_s[plan_id]
                plan = self._forecast.forget_ended(plan_id)
                for consumer in () if plan is None else plan.consumers:
                    self.runs.readers_moved(consumer.topic)

    def open(
        self,
        reader: ReaderIdentity,
        plan_ids: Iterable[str],
        extents: Sequence[ExtentOffset],
        first: Position,
        stop: Position,
    ) -> PartitionRead:
        """Begin to read a partition: see `Forecast.open`."""
        partition_read = self._forecast.open(reader, plan_ids, extents, first, stop)
        self.runs.readers_moved(reader.consumer.topic)
        return partition_read

    def catch_up(
        self, plan_ids: Iterable[str], key: RunKey, reads: int, now_s: float
    ) -> None:
        """Note that so many planned reads of a run are done, wherever that was."""
        self._forecast.catch_up(plan_ids, key, reads)
        self.runs.set_expected(key, self._forecast.expected(key), now_s)
        self.runs.readers_moved(key.ledger.topic)

    def take(
        self, partition_read: PartitionRead, key: RunKey, now_s: float
    ) -> CachedRun[V] | None:
        """Look up the next run of a reader; return None if it must be loaded."""
        self._forecast.advance(partition_read, key)
        return self.runs.get(key, now_s)

    def finish(
        self, partition_read: PartitionRead, ordinal: int, key: RunKey, now_s: float
    ) -> list[CachedRun[V]]:
        """Note that a reader has finished its `ordinal`-th run; return removed runs."""
        if not self._forecast.mark_read(partition_read, ordinal, key):
            return []
        remaining = self._forecast.expected(key)  # perhaps of several plans
        known = self.runs.mark_read(key, now_s)
        if known is None:
            return []
        if (
            remaining
            or not self.runs.settings.drop_after_last_read
            or self._forecast.is_streamed(key.ledger.topic)
        ):
            if known != remaining:
                self.runs.set_expected(key, remaining, now_s)
            return []
        removed = self.runs.remove(key)
        assert removed is not None, "it was marked just now"
        self.runs.counters.evicted_by_last_read += 1
        return [removed]

    def close(self, partition_read: PartitionRead) -> None:
        """End an attempt at a partition, complete or not."""
        self._forecast.close(partition_read)
        self.runs.readers_moved(partition_read.cursor.topic)

    def reserve(
        self, key: RunKey, size_bytes: int, now_s: float
    ) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Reserve memory for a run unless a run that is read sooner must be evicted."""
        return self.runs.reserve(size_bytes, now_s, key)

    def insert(
        self,
        key: RunKey,
        value: V,
        *,
        slot: Slot,
        now_s: float,
        ahead: bool = False,
    ) -> CachedRun[V] | None:
        """Keep a run in its reserved slot: see `RunCache.insert`."""
        return self.runs.insert(
            key,
            value,
            slot=slot,
            expected_reads=self._forecast.expected(key),
            now_s=now_s,
            ahead=ahead,
        )

    def check(self, now_s: float) -> None:
        """Assert the invariants. For tests: O(n)."""
        self.runs.check()
        self._forecast.check()
        for run in self.runs.runs():
            if self.runs.peek(run.key, now_s) is run:
                assert run.expected_reads == self._forecast.expected(run.key)

    def change_engine(self, settings: Settings) -> None:
        """Replace the engine, which must be idle, by an empty one.

        Plans and counters stay.
        """
        if not self.runs.is_idle:
            raise ValueError(f"{self.runs!r} cannot be replaced: it still holds runs")
        self.runs = self._engine(settings, self.runs.counters)

    def _engine(self, settings: Settings, counters: Counters) -> Engine[V]:
        if settings.ring is None:
            return RunCache(settings, self._forecast, counters)
        return RingCache(settings, counters)

    def _recount(self, plan: Plan, now_s: float) -> list[RunKey]:
        """Recount the expected reads of a plan's runs; return runs that have none."""
        no_longer_expected = []
        topics = plan.topics
        reads = Consumers(plan.consumers).reads
        for key in filter(reads, self.runs.keys_of(topics)):
            expected = self._forecast.expected(key)
            is_held = self.runs.set_expected(key, expected, now_s)
            if is_held and not expected:
                no_longer_expected.append(key)
        for topic in topics:
            self.runs.readers_moved(topic)
        return no_longer_expected
