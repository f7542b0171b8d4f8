"""The run that its next planned reader comes to last goes first."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from math import inf

import pytest

from sparkcache.cache import Policy, RunCache, Settings
from sparkcache.model import RunKey, Slot
from tests.unit.cache.cache_cases import PULSAR, key, keys
from tests.unit.cache.exact_forecast import ExactForecast

ENDLESS = replace(PULSAR, create_s=1e9, expected_s=1e9)


@dataclass
class GivenForecast:
    """When each run is read next, as the test says; with breakpoints between all."""

    ticks: dict[RunKey, float]
    borders: dict[str, list[float]] = field(default_factory=dict)
    tick: int = 0

    def offset_of(self, key: RunKey) -> float:
        return float(key.run.first)

    def next_breakpoint(self, topic: str, offset: float) -> float:
        return min((at for at in self._borders(topic) if at > offset), default=inf)

    def _borders(self, topic: str) -> list[float]:
        places = [key.run.first for key in self.ticks if key.ledger.topic == topic]
        return self.borders.get(topic, [float(first) for first in sorted(places)])

    def ticks_until_read(self, topic: str, offset: float) -> float:
        return next(
            ticks
            for found, ticks in self.ticks.items()
            if found.ledger.topic == topic and found.run.first == offset
        )


def cache_of(
    forecast: GivenForecast,
    max_bytes: int,
    sizes: dict[RunKey, int] | None = None,
    get_cost_bytes: int = 0,
) -> RunCache[str]:
    """A cache that holds all runs of a forecast."""
    settings = Settings(
        max_bytes, 100, ENDLESS, Policy.NEXT_READ, get_cost_bytes=get_cost_bytes
    )
    cache: RunCache[str] = RunCache(settings, forecast)
    for where, ticks in forecast.ticks.items():
        size_bytes = 1 if sizes is None else sizes.get(where, 0)
        if size_bytes:
            fits, _ = cache.reserve(size_bytes, 0.0, where)
            assert fits
            cache.insert(
                where,
                "",
                slot=Slot(size_bytes),
                expected_reads=int(ticks < inf),
                now_s=0.0,
            )
    cache.check()
    return cache


A = [key(index, topic="a") for index in range(6)]
B = [key(index, topic="b") for index in range(6)]


def test_the_farthest_of_all_topics_goes() -> None:
    forecast = GivenForecast({A[0]: 1, A[1]: 5, B[0]: 2, B[1]: 9, A[2]: 0})
    cache = cache_of(forecast, 5)
    assert keys(cache.evict(1, 0)) == [B[1]]
    assert keys(cache.evict(2, 0)) == [A[1], B[0]]
    cache.check()


def test_between_cuts_the_last_one_is_the_candidate() -> None:
    # One reader stands before run 3, another before run 0.
    forecast = GivenForecast(
        {A[0]: 10, A[1]: 11, A[2]: 12, A[3]: 1, A[4]: 2, A[5]: 3}, {"a": [30.0]}
    )
    cache = cache_of(forecast, 6)
    assert keys(cache.evict(4, 0)) == [A[2], A[1], A[0], A[5]]


def test_a_new_run_that_is_read_last_of_all_is_not_admitted() -> None:
    forecast = GivenForecast({A[0]: 1, A[1]: 5})
    cache = cache_of(forecast, 2)
    forecast.ticks[B[0]] = 5
    assert cache.reserve(1, 0, B[0]) == (None, [])
    assert cache.counters.declined == 1
    forecast.ticks[B[0]] = 4
    fits, evicted = cache.reserve(1, 0, B[0])
    assert fits
    assert keys(evicted) == [A[1]]
    cache.check()


def test_nothing_is_evicted_unless_enough_is() -> None:
    forecast = GivenForecast({A[0]: 2, A[1]: 9, A[2]: 8})
    cache = cache_of(forecast, 30, {A[0]: 20, A[1]: 5, A[2]: 5})
    forecast.ticks[B[0]] = 5
    assert cache.reserve(11, 0, B[0]) == (None, [])
    assert set(keys(cache.runs())) == {A[0], A[1], A[2]}
    cache.check()
    fits, evicted = cache.reserve(10, 0, B[0])
    assert fits
    assert keys(evicted) == [A[1], A[2]]


def test_runs_without_expected_reads_are_not_evicted_in_vain() -> None:
    forecast = GivenForecast(
        {A[0]: 1, A[1]: 2, B[0]: inf, B[1]: inf, B[2]: inf, B[3]: inf}
    )
    cache = cache_of(forecast, 30, {A[0]: 12, A[1]: 12, B[0]: 1, B[1]: 2, B[2]: 3})
    before = cache.runs()
    [mapped] = [run for run in before if run.key == B[1]]
    cache.pin(mapped)
    assert cache.reserve(10, 0, B[3]) == (None, [])
    assert set(cache.runs()) == set(before)
    assert cache.counters.evicted_by_size == 0
    cache.check()
    cache.unpin(mapped)
    fits, evicted = cache.reserve(4, 0, B[3])
    assert fits
    assert keys(evicted) == [B[0], B[2]]
    cache.check()


def test_runs_without_expected_reads_are_evicted_first() -> None:
    forecast = GivenForecast({A[0]: 100, B[0]: inf, B[1]: inf, A[1]: 3})
    cache = cache_of(forecast, 4)
    assert keys(cache.evict(3, 0)) == [B[0], B[1], A[0]]


def test_a_run_without_expected_reads_displaces_only_its_equals() -> None:
    forecast = GivenForecast({A[0]: 100, A[1]: 3, B[0]: inf})
    cache = cache_of(forecast, 3)
    forecast.ticks[B[1]] = forecast.ticks[B[2]] = inf
    fits, evicted = cache.reserve(1, 0, B[1])
    assert fits
    assert keys(evicted) == [B[0]]  # but at the cost of its equals
    assert cache.reserve(1, 0, B[2]) == (None, [])


def test_a_reservation_without_a_run_always_gets_room() -> None:
    cache = cache_of(GivenForecast({A[0]: 0, A[1]: 0}), 2)
    fits, evicted = cache.reserve(1, 0)
    assert fits
    assert len(evicted) == 1


def test_what_readers_map_is_passed_over() -> None:
    forecast = GivenForecast({A[0]: 1, A[1]: 5, A[2]: 9})
    cache = cache_of(forecast, 3)
    [farthest] = [run for run in cache.runs() if run.key == A[2]]
    cache.pin(farthest)
    assert keys(cache.evict(1, 0)) == [A[1]]
    cache.unpin(farthest)
    assert keys(cache.evict(1, 0)) == [A[2]]
    cache.check()


def test_readers_that_moved_are_looked_at_again() -> None:
    forecast = GivenForecast({A[0]: 1, B[0]: 5})
    cache = cache_of(forecast, 2)
    forecast.ticks[C] = 3
    forecast.ticks[A[0]] = 9
    cache.readers_moved("a")
    _, evicted = cache.reserve(1, 0, C)
    assert keys(evicted) == [A[0]]


C = key(0, topic="c")


def test_topics_whose_readers_stand_still_are_looked_at_in_turns() -> None:
    """Nobody says that their estimates have changed: one more is found each time."""
    forecast = GivenForecast({key(0, topic=name): 10.0 for name in "abdef"} | {C: 15.0})
    cache = cache_of(forecast, 5, dict.fromkeys(set(forecast.ticks) - {C}, 1))
    assert not cache.reserve(1, 0, C)[0]  # all were looked at
    for name in "abdef":
        forecast.ticks[key(0, topic=name)] = 20.0
    found = []
    for _ in range(5):
        seen = cache.counters.examined
        fits, evicted = cache.reserve(1, 0, C)
        assert fits
        found += keys(evicted)
        assert cache.counters.examined - seen <= 2
    assert len(found) == 5


def test_the_policy_can_change_while_it_runs() -> None:
    forecast = GivenForecast({A[0]: 1, A[1]: 5, A[2]: 3})
    cache = cache_of(forecast, 3)
    by_age = replace(cache.settings, policy=Policy.LRU)
    cache.configure(by_age, 0)
    cache.check()
    cache.get(A[0], 0)
    assert keys(cache.runs()) == [A[1], A[2], A[0]]
    cache.configure(replace(by_age, policy=Policy.NEXT_READ), 0)
    cache.check()
    assert keys(cache.evict(1, 0)) == [A[1]]


def test_lru_lets_go_of_what_was_not_read_for_longest_planned_or_not() -> None:
    cache: RunCache[str] = RunCache(
        Settings(3, 100, ENDLESS, Policy.LRU, trigger=1.0, watermark=1.0)
    )
    for index in range(3):
        cache.reserve(1, 0)
        cache.insert(A[index], "", slot=Slot(1), expected_reads=index == 0, now_s=0)
    cache.get(A[1], 0)
    _, evicted = cache.reserve(1, 0)
    assert keys(evicted) == [A[0]]
    cache.unreserve(Slot(1))
    assert keys(cache.evict(1, 0)) == [A[2]]


def test_an_expected_run_outlives_its_time_as_often_as_with_any_policy() -> None:
    forecast = GivenForecast({A[0]: 5})
    cache = cache_of(forecast, 3)
    cache.configure(
        replace(cache.settings, ttl=replace(ENDLESS, expected_s=10.0), max_requeues=2),
        0,
    )
    assert cache.expire(10.0) == []
    assert cache.expire(20.0) == []
    assert keys(cache.expire(30.0)) == [A[0]]
    cache.check()


def test_a_run_that_was_read_for_the_last_time_goes_like_any_other() -> None:
    cache = cache_of(GivenForecast({A[0]: 1, A[1]: 5}), 2)
    assert cache.mark_read(A[0], 0) == 0
    cache.check()
    assert keys(cache.evict(1, 0)) == [A[0]]


def test_what_becomes_mapped_or_unmapped_is_known_to_the_next_decision() -> None:
    forecast = GivenForecast({A[0]: 9, B[0]: 8, C: 1})
    cache = cache_of(forecast, 2, {A[0]: 1, B[0]: 1})
    forecast.ticks[C] = 8.5
    [farthest] = [run for run in cache.runs() if run.key == A[0]]
    cache.pin(farthest)
    assert not cache.reserve(1, 0, C)[0]
    cache.unpin(farthest)
    assert keys(cache.reserve(1, 0, C)[1]) == [A[0]]


def examined(held: int) -> list[int]:
    """The work of each of some decisions in a cache that holds this number of runs.

    Readers stand before runs 60, 100, 140 and 190; the cache holds all from 200 on.
    """
    exact = ExactForecast({"a": [40, 0, -40, -90]}, runs=held + 200, tick=100)
    settings = Settings(held, held, ENDLESS, Policy.NEXT_READ)
    cache: RunCache[None] = RunCache(settings, exact)
    for index in range(200, held + 200):
        cache.reserve(1, 0, key(index))
        cache.insert(key(index), None, slot=Slot(1), expected_reads=4, now_s=0)
    work = []
    for index in range(10):
        before = cache.counters.examined
        fits, [evicted] = cache.reserve(1, 0, key(150 + index))
        assert fits
        assert evicted.key == key(held + 199 - index)
        work.append(cache.counters.examined - before)
        cache.insert(key(150 + index), None, slot=Slot(1), expected_reads=4, now_s=0)
    before = cache.counters.examined
    assert cache.reserve(1, 0, key(held + 199)) == (None, [])
    return [*work, cache.counters.examined - before]


def test_a_decision_costs_the_same_however_much_is_held() -> None:
    work = examined(100)
    assert examined(10_000) == examined(100_000) == work
    assert max(work) <= 3 * (4 + 1)  # topics, and a run for each breakpoint


def misses(cache: RunCache[None], exact: ExactForecast, takes: list[RunKey]) -> int:
    """Let the readers of `exact` read through a cache; count what is loaded."""
    loads = 0
    steps = iter(takes)
    reads_left: dict[RunKey, int] = {}
    for where in takes:
        reads_left[where] = reads_left.get(where, 0) + 1
    last = max(start for starts in exact.readers.values() for start in starts)
    for tick in range(last + exact.runs):
        exact.tick = tick
        exact.taken.clear()
        for topic, starts in exact.readers.items():
            for index, start in enumerate(starts):
                at = exact.tick - start
                if not 0 <= at < exact.runs:
                    continue
                where = next(steps)
                assert where == key(at, topic=topic)
                exact.taken.add((topic, index, at))
                reads_left[where] -= 1
                for name in exact.readers:  # time has passed for all
                    cache.readers_moved(name)
                if cache.get(where, 0.0) is None:
                    loads += 1
                    fits, _ = cache.reserve(1, 0.0, where)
                    if fits:
                        cache.insert(
                            where,
                            None,
                            slot=Slot(1),
                            expected_reads=reads_left[where],
                            now_s=0.0,
                        )
                elif not reads_left[where]:
                    cache.remove(where)
    return loads


def takes_of(exact: ExactForecast) -> list[RunKey]:
    last = max(start for starts in exact.readers.values() for start in starts)
    return [
        key(tick - start, topic=topic)
        for tick in range(last + exact.runs)
        for topic, starts in exact.readers.items()
        for start in starts
        if 0 <= tick - start < exact.runs
    ]


def least_misses(takes: list[RunKey], fit: int) -> int:
    """Belady's MIN, by searching."""
    held: set[RunKey] = set()
    loads = 0
    for index, where in enumerate(takes):
        loads += where not in held
        held.add(where)
        if len(held) > fit:
            rest = takes[index + 1 :]
            held.remove(
                max(held, key=lambda run: rest.index(run) if run in rest else inf)
            )
    return loads


@pytest.mark.parametrize("seed", range(40))
def test_with_an_exact_forecast_hardly_more_is_read_than_by_min(seed: int) -> None:
    rng = random.Random(seed)
    runs = rng.randint(5, 25)
    readers = {
        name: sorted(rng.randrange(0, 2 * runs) for _ in range(rng.randint(2, 5)))
        for name in "abcd"[: rng.randint(1, 4)]
    }
    takes = takes_of(ExactForecast(readers, runs))
    for fit in (2, len(set(takes)) // 4, len(set(takes)) // 2, len(set(takes))):
        settings = Settings(fit, 10_000, ENDLESS, Policy.NEXT_READ)
        exact = ExactForecast(readers, runs)
        loads = misses(RunCache(settings, exact), exact, takes)
        least = least_misses(takes, fit)
        assert least <= loads <= 1.1 * least


def priced(
    ticks: dict[RunKey, float], get_cost_bytes: int = 40
) -> tuple[GivenForecast, RunCache[str]]:
    """A cache full of runs of 100 bytes, in which a GET adds a tenth to their cost."""
    forecast = GivenForecast(ticks)
    sizes = dict.fromkeys(ticks, 100)
    return forecast, cache_of(forecast, 100 * len(ticks), sizes, get_cost_bytes)


@pytest.mark.parametrize(
    ("ticks", "first"),
    [
        pytest.param({0: 9, 1: 10.5, 2: 9.8}, 2, id="beside a gap, not between two"),
        pytest.param({0: 9, 1: 12, 2: 9.8}, 1, id="between two, if that is much later"),
        pytest.param({0: 10, 1: 9, 4: 9.5}, 4, id="alone, rather than beside another"),
        pytest.param({0: 11, 1: 9, 4: 9.5}, 0, id="alone, unless that is much sooner"),
    ],
)
def test_a_get_more_or_less_counts(ticks: dict[int, float], first: int) -> None:
    _, cache = priced({A[index]: at for index, at in ticks.items()})
    assert keys(cache.evict(1, 0)) == [A[first]]
    cache.check()


def test_neighbours_count_as_they_are_when_a_run_goes() -> None:
    _, cache = priced({A[0]: 10, A[1]: 10.5, A[2]: 10.4, A[3]: 9.6, A[5]: 9.1})
    # Run 5 is alone. Then 0 and 3 are beside gaps, and then 1 is in the place of 0.
    assert keys(cache.evict(401, 0)) == [A[5], A[0], A[1], A[2], A[3]]
    cache.check()


@pytest.mark.parametrize(
    ("new", "ticks", "is_admitted"),
    [
        pytest.param(1, 10.4, True, id="between two, though later"),
        pytest.param(3, 10.4, False, id="beside one, and later"),
        pytest.param(3, 9.4, True, id="beside one, and sooner"),
        pytest.param(4, 9.0, False, id="alone, though sooner"),
    ],
)
def test_a_get_more_or_less_counts_for_a_new_run(
    new: int, ticks: float, is_admitted: bool
) -> None:
    forecast, cache = priced({A[0]: 1, A[2]: 1, B[0]: 9.5, B[1]: 8})
    forecast.ticks[A[new]] = ticks  # while run 0 of the other ledger is evicted at 9.5
    slot, evicted = cache.reserve(100, 0, A[new])
    assert (slot is not None) == is_admitted
    assert keys(evicted) == [B[0]] * is_admitted
    cache.check()


def test_the_price_of_a_get_is_at_most_half_of_a_run() -> None:
    _, cache = priced({A[0]: 1, A[1]: 15.1, A[2]: 10}, get_cost_bytes=10**9)
    assert keys(cache.evict(1, 0)) == [A[1]]


def test_a_changed_price_counts() -> None:
    _, cache = priced({A[0]: 9, A[1]: 10.5, A[2]: 9.8})
    cache.configure(replace(cache.settings, get_cost_bytes=0), 0.0)
    assert keys(cache.evict(1, 0)) == [A[1]]
    cache.check()
