"""A cache that knows what is planned: what a read does to both.

What the node and the simulator drive. A reader takes its runs one after another, and
says later that it has finished with each. From the first moment its cursor is past
the run, so that what is foreseen counts the readers behind it; from the second its
read is no longer expected, and with the last expected read the run is let go of.
Between the two the run may go to make room, since nothing depends on its being held.

Source: Pulsar counts a read when the entry is released by its dispatcher (PIP-430).
Different here: what is taken and never finished with was not read, and stays expected.
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
    """Runs, and the readers to come of each.

    Whatever returns runs says "these are no longer kept, free them".

    Attributes:
        runs: The runs: to look up without reading, pin, expire, configure.

    """

    def __init__(self, settings: Settings) -> None:
        self._forecast = Forecast()
        self._gone: dict[str, float] = {}  # streams, and until when they are foreseen
        self.runs: Engine[V] = self._engine(settings, Counters())

    def __repr__(self) -> str:
        return f"<{self.runs!r}, {self._forecast!r}>"

    def begin(
        self, plans: Iterable[Plan], now_s: float, *, late: bool = False
    ) -> list[Plan]:
        """Take up plans; return those that were neither known nor over already.

        A stream that is known moves on. With a new run of its query, the one before it
        is over, whether or not anybody has said so. Where a task comes late, the run
        that it tells of is the one before.
        """
        begun = []
        for plan in plans:
            before = self._forecast.move(plan)
            if before is not None:
                both = before.consumers + plan.consumers
                self._recount(replace(plan, consumers=both), now_s)
            elif late and self._forecast.other_runs(plan):
                continue
            elif self._forecast.begin(plan):
                begun.append(plan)
                self._recount(plan, now_s)
                over = self._forecast.other_runs(plan)
                if plan.is_stream:
                    over += self._forecast.awaited(plan)
                self.end(over, now_s)
        return begun

    def reach(
        self, query: str, reached: Mapping[str, Position], now_s: float
    ) -> list[Plan]:
        """Note how far a query has read topics, wherever; return plans that move on."""
        known = self._forecast.streams(query)
        moved = [after for plan in known if (after := plan.behind(reached)) != plan]
        self.begin(moved, now_s)
        return moved

    def end(self, plan_ids: Iterable[str], now_s: float) -> list[CachedRun[V]]:
        """Forget plans for good, and what nobody else waits for.

        What a stream waited for may be read by the next one that begins where it ended.
        """
        called_off = []
        for plan in self._forecast.end(plan_ids):
            uncounted = self._recount(plan, now_s)
            if not plan.is_stream:
                called_off += uncounted
            elif self.runs.settings.continue_s and self._forecast.go_on(plan):
                self._gone[plan.id] = now_s + self.runs.settings.continue_s
        removed = [run for key in called_off if (run := self.runs.remove(key))]
        self.runs.counters.called_off += len(removed)
        return removed

    def expire_ended_streams(self, now_s: float) -> None:
        """Foresee streams no longer that ended long ago."""
        for plan_id, until_s in list(self._gone.items()):
            if until_s <= now_s:
                del self._gone[plan_id]
                plan = self._forecast.forget(plan_id)
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

    def take(
        self, partition_read: PartitionRead, key: RunKey, now_s: float
    ) -> CachedRun[V] | None:
        """Look up the run that a reader comes to; None if it has to be loaded."""
        self._forecast.advance(partition_read, key)
        self.runs.readers_moved(key.ledger.topic)
        return self.runs.get(key, now_s)

    def finish(
        self, partition_read: PartitionRead, ordinal: int, key: RunKey, now_s: float
    ) -> list[CachedRun[V]]:
        """Note that a reader has finished with a run, which is its `ordinal`-th."""
        if not self._forecast.mark_read(partition_read, ordinal, key):
            return []
        left = self._forecast.expected(key)  # of several plans, maybe
        if self.runs.mark_read(key, now_s) is None:
            return []
        if (
            left
            or not self.runs.settings.drop_after_last_read
            or self._forecast.is_streamed(key.ledger.topic)
        ):
            self.runs.set_expected(key, left, now_s)
            return []
        removed = self.runs.remove(key)
        assert removed is not None, "it was marked just now"
        self.runs.counters.read_out += 1
        return [removed]

    def close(self, partition_read: PartitionRead) -> None:
        """End an attempt at a partition, at its end or before."""
        self._forecast.close(partition_read)
        self.runs.readers_moved(partition_read.cursor.topic)

    def reserve(
        self, key: RunKey, size_bytes: int, now_s: float
    ) -> tuple[Slot | None, list[CachedRun[V]]]:
        """Make room for a run, if nothing that is read sooner has to go for it."""
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
        """Keep a run in the room made for it: see `RunCache.insert`."""
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
        """Go on with an engine that holds nothing yet, where the present one is idle.

        What is planned and what was counted stays.
        """
        if not self.runs.is_idle:
            raise ValueError(f"{self.runs!r} cannot be changed: something is held")
        self.runs = self._engine(settings, self.runs.counters)

    def _engine(self, settings: Settings, counters: Counters) -> Engine[V]:
        if settings.ring is None:
            return RunCache(settings, self._forecast, counters)
        return RingCache(settings, counters)

    def _recount(self, plan: Plan, now_s: float) -> list[RunKey]:
        """Count the reads to come anew of what a plan reads; return what has none."""
        called_off = []
        topics = plan.topics
        reads = Consumers(plan.consumers).reads
        for key in filter(reads, self.runs.keys_of(topics)):
            expected = self._forecast.expected(key)
            is_held = self.runs.set_expected(key, expected, now_s)
            if is_held and not expected:
                called_off.append(key)
        for topic in topics:
            self.runs.readers_moved(topic)
        return called_off
