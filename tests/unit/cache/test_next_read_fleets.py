"""Many readers of one topic: the run that goes is hardly read sooner than any other."""

from __future__ import annotations

import random
from math import inf
from statistics import mean

import pytest

from sparkcache.cache import CachedRun, PlannedCache, Policy, Settings, Ttl
from sparkcache.demand import Consumer, PartitionRead, Plan
from sparkcache.model import Position, RunKey, Slot
from tests.unit.demand.forecast_cases import RUNS, TOPIC, extents, key, reader

PART = 25
ENDLESS = Ttl(create_s=1e9, after_read_s=None, expected_s=1e9)


class Fleet:
    """Planned readers that begin anywhere and go on at speeds of their own.

    Attributes:
        sooner: Of each run that was evicted, by which share of the wait for the run
            that is read last it is read sooner than that.

    """

    def __init__(self, readers: int, held: int, seed: int) -> None:
        self.sooner: list[float] = []
        self._rng = random.Random(seed)
        self._at = [self._rng.randrange(RUNS) for _ in range(readers)]
        self._speeds = [self._rng.uniform(0.3, 6.0) for _ in range(readers)]
        self._stages = list(range(readers))
        self._reads: dict[int, PartitionRead] = {}
        settings = Settings(held, held, ENDLESS, Policy.NEXT_READ)
        self._cache: PlannedCache[None] = PlannedCache(settings)
        self._cache.begin([Plan("p", (Consumer(TOPIC),) * 1000)], 0.0)
        for index in range(readers):
            self._open(index)

    def step(self) -> None:
        """Let one of them read a run."""
        [index] = self._rng.choices(range(len(self._at)), self._speeds)
        at, partition_read = self._at[index], self._reads[index]
        if self._cache.take(partition_read, key(at), 0.0) is None:
            self._load(key(at))
        self._cache.finish(partition_read, at % PART, key(at), 0.0)
        self._at[index] = (at + 1) % RUNS
        if not self._at[index]:
            self._stages[index] += len(self._at)
        if not self._at[index] % PART:
            self._cache.close(self._reads.pop(index))
            self._open(index)
            self._cache.check(0.0)

    def _load(self, where: RunKey) -> None:
        waits = [self._wait(run) for run in self._cache.runs.runs()]
        slot, evicted = self._cache.reserve(where, 1, 0.0)
        for run in evicted:
            longest = max(waits)
            sooner = 0.0 if longest == inf else 1 - self._wait(run) / longest
            self.sooner.append(1.0 if longest == inf > self._wait(run) else sooner)
        if slot is not None:
            self._cache.insert(where, None, slot=Slot(1), now_s=0.0)

    def _wait(self, run: CachedRun[None]) -> float:
        forecast = self._cache._forecast
        return forecast.ticks_until_read(TOPIC, forecast.offset_of(run.key))

    def _open(self, index: int) -> None:
        part = self._at[index] // PART
        first, stop = part * PART, part * PART + PART
        self._reads[index] = self._cache.open(
            reader(self._stages[index], part, scan=f"{index}"),
            ("p",),
            extents(first, stop),
            Position(0, first),
            Position(0, stop),
        )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("readers", "share"), [(2, 0.01), (4, 0.01), (12, 0.05), (40, 0.1)]
)
def test_the_run_that_goes_is_hardly_read_sooner_than_any_other(
    readers: int, share: float, seed: int
) -> None:
    fleet = Fleet(readers, held=30, seed=seed)
    while len(fleet.sooner) < 100:
        fleet.step()
    assert mean(fleet.sooner) <= share
