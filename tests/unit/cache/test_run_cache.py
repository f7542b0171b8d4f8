"""Which run goes next, and when its time is over: the numbers of PIP-430."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkcache.cache import Residency, RunCache
from sparkcache.model import Slot
from tests.unit.cache.cache_cases import (
    HOUR,
    PULSAR,
    ROOMY,
    cache_of,
    key,
    keys,
    put,
)


def three(max_requeues: int = 5) -> RunCache[str]:
    """0: 40 bytes, accessed; 1: 50 bytes, 3 reads expected; 2: 30 bytes, plain."""
    cache = cache_of(max_requeues=max_requeues, extend_recently_accessed=True, ttl=HOUR)
    put(cache, key(0), 40)
    put(cache, key(1), 50, expected_reads=3)
    put(cache, key(2), 30)
    assert cache.get(key(0), 0)
    return cache


# Eviction


@pytest.mark.parametrize(
    ("size_bytes", "evicted"),
    [
        pytest.param(20, [2], id="the easiest goes first: 30 bytes"),
        pytest.param(30, [2], id="30 bytes suffice for 30"),
        pytest.param(35, [2, 0], id="then the accessed one: 70 bytes"),
        pytest.param(71, [2, 0, 1], id="expected reads go last"),
        pytest.param(120, [2, 0, 1], id="everything goes if all is asked for"),
        pytest.param(999, [2, 0, 1], id="more than there is ends as well"),
    ],
)
def test_eviction_by_priority(size_bytes: int, evicted: list[int]) -> None:
    cache = three()
    assert keys(cache.evict(size_bytes, 0)) == [key(index) for index in evicted]
    assert cache.counters.evicted_by_size == len(evicted)
    assert cache.counters.evicted_unread == evicted.count(1)
    cache.check()


def test_eviction_in_order_of_insertion_stops_when_enough_is_freed() -> None:
    cache = cache_of(4, 3, 3, 5)
    removed = cache.evict(5, 0)
    assert keys(removed) == [key(0), key(1)]
    assert sum(run.size_bytes for run in removed) == 7
    assert cache.kept_bytes == 8


def test_sizes_are_positive() -> None:
    cache = cache_of(4)
    with pytest.raises(ValueError, match="size_bytes is -1: use 0 or more"):
        cache.reserve(-1, 0)
    with pytest.raises(ValueError, match="size_bytes is 0: use 1 or more"):
        cache.evict(0, 0)
    assert len(cache) == 1


@pytest.mark.parametrize(
    ("size_bytes", "takes"), [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)]
)
def test_a_run_takes_whole_granules_and_one_at_least(
    size_bytes: int, takes: int
) -> None:
    cache: RunCache[str] = RunCache(replace(ROOMY, granule_bytes=4096))
    assert cache.reserve(size_bytes, 0) == (Slot(takes), [])
    assert cache.held_bytes == takes


def test_order_is_that_of_insertion_whatever_topic_is_larger() -> None:
    cache: RunCache[str] = RunCache(ROOMY)
    order = [key(index, topic="abb"[index % 3]) for index in range(30)]
    for where in order:
        put(cache, where, 10)
    cache.get(order[0], 0)
    assert [run.key for _ in order for run in cache.evict(1, 0)] == order


def test_a_hundred_runs_go_by_tens() -> None:
    cache = cache_of(*[10] * 100)
    assert [len(cache.evict(100, 0)) for _ in range(10)] == [10] * 10
    assert (len(cache), cache.held_bytes) == (0, 0)


def test_accessing_spares_nothing_unless_asked_for() -> None:
    cache = cache_of(1, 1)
    cache.get(key(0), 0)
    assert keys(cache.evict(1, 0)) == [key(0)]


def test_the_time_of_a_spared_run_begins_again() -> None:
    cache = cache_of(ttl=PULSAR)
    put(cache, key(0), expected_reads=1)
    put(cache, key(1))
    assert keys(cache.evict(1, 0.7)) == [key(1)]
    assert cache.next_deadline_s() == 1.7
    run = cache.peek(key(0), 0.7)
    assert run is not None
    assert run.requeues == 1
    assert cache.counters.requeued_by_size == 1


def test_pressure_spends_the_requeues_of_expected_runs() -> None:
    cache = cache_of(ttl=PULSAR, max_requeues=5)
    put(cache, key(0), 10, expected_reads=1)
    put(cache, key(1), 10, expected_reads=1)
    assert keys(cache.evict(1, 0)) == [key(0)]
    left = cache.peek(key(1), 0)
    assert left is not None
    assert left.requeues == 5
    assert keys(cache.expire(1)) == [key(1)]
    assert cache.counters.evicted_unread == 2


@pytest.mark.parametrize("max_requeues", [0, 1, 5])
def test_work_is_bounded_though_all_are_accessed_and_expected(
    max_requeues: int,
) -> None:
    cache = cache_of(extend_recently_accessed=True, max_requeues=max_requeues, ttl=HOUR)
    for index in range(50):
        put(cache, key(index), expected_reads=9)
        cache.get(key(index), 0)
    assert len(cache.evict(50, 0)) == 50
    assert cache.counters.examined <= 50 * (max_requeues + 2)


# Time


def test_a_pass_looks_at_no_more_than_has_ended_and_the_next() -> None:
    cache: RunCache[str] = RunCache(replace(ROOMY, ttl=PULSAR))
    for index in range(10):
        put(cache, key(index), now_s=index / 10)
    assert keys(cache.expire(1.25)) == [key(0), key(1), key(2)]
    assert cache.counters.examined == 4


@pytest.mark.parametrize("max_requeues", [0, 1, 5])
def test_expected_runs_survive_as_many_passes_as_they_may(max_requeues: int) -> None:
    cache = cache_of(ttl=PULSAR, max_requeues=max_requeues)
    put(cache, key(0), expected_reads=1)
    for second in range(1, max_requeues + 1):
        assert cache.expire(second) == []
        assert cache.peek(key(0), second)
    assert keys(cache.expire(max_requeues + 1)) == [key(0)]
    assert cache.counters.requeued_by_ttl == max_requeues
    assert cache.counters.evicted_unread == 1


def test_an_expected_run_is_found_between_its_deadline_and_the_pass() -> None:
    cache = cache_of(ttl=PULSAR)
    put(cache, key(0), expected_reads=1)
    assert cache.get(key(0), 1.5)


def test_once_its_last_reader_is_done_a_run_goes_at_the_next_pass() -> None:
    cache = cache_of(ttl=PULSAR)
    put(cache, key(0), expected_reads=2)
    assert cache.mark_read(key(0), 0.5) == 1
    assert cache.expire(1) == []
    assert cache.mark_read(key(0), 1.5) == 0
    assert cache.mark_read(key(0), 1.6) == 0, "it stays at none"
    assert keys(cache.expire(2)) == [key(0)]
    assert cache.mark_read(key(0), 2) is None
    assert cache.counters.evicted_unread == 0


def test_a_recently_accessed_run_lives_once_more_for_each_time_it_is() -> None:
    cache = cache_of(1, ttl=PULSAR, extend_recently_accessed=True)
    assert cache.get(key(0), 0.5)
    assert cache.expire(1) == []
    assert cache.get(key(0), 1.1)
    assert cache.expire(2) == []
    assert keys(cache.expire(3)) == [key(0)]


def test_a_spared_run_goes_to_the_tail() -> None:
    cache = cache_of(ttl=PULSAR)
    put(cache, key(0), expected_reads=1)
    put(cache, key(1), now_s=0.5)
    cache.expire(1)
    assert keys(cache.runs()) == [key(1), key(0)]


def test_inserting_again_keeps_the_first() -> None:
    cache = cache_of(5, 5)
    first = cache.peek(key(0), 0)
    assert put(cache, key(0), 5, expected_reads=2) is None
    assert cache.peek(key(0), 0) is first
    assert (len(cache), cache.held_bytes, cache.kept_bytes) == (2, 10, 10)
    assert keys(cache.runs()) == [key(1), key(0)], "as if inserted just now"
    assert cache.counters.inserted == 2
    assert cache.mark_read(key(0), 0) == 1


def test_keys_are_equal_by_value() -> None:
    cache = cache_of(5)
    assert key(0) is not key(0)
    assert cache.get(key(0), 0)
    changed = replace(key(0).ledger, object=replace(key(0).ledger.object, version="v2"))
    assert cache.get(replace(key(0), ledger=changed), 0) is None


def test_negative_reads_are_refused() -> None:
    cache = cache_of(5)
    with pytest.raises(ValueError, match="expected_reads is -1: use 0 or more"):
        put(cache, key(1), expected_reads=-1)
    with pytest.raises(ValueError, match="expected_reads is -1: use 0 or more"):
        cache.set_expected(key(0), -1, 0)


def test_what_is_held_of_a_topic_is_listed() -> None:
    cache: RunCache[str] = RunCache(ROOMY)
    for index in (15, 5):
        put(cache, key(index))
    put(cache, key(20, number=1))
    put(cache, key(20, topic="b"))
    assert set(cache.keys_of("a")) == {key(15), key(5), key(20, number=1)}
    cache.remove(key(5))
    assert set(cache.keys_of("a")) == {key(15), key(20, number=1)}
    assert cache.keys_of("c") == []


def test_removal_takes_what_it_names_and_nothing_else() -> None:
    cache: RunCache[str] = RunCache(ROOMY)
    for topic in "ab":
        for number in (0, 1):
            for index in (1, 0):
                put(cache, key(index, number, topic))
    assert cache.remove(key(9)) is None
    run = cache.remove(key(0, 0, "a"))
    assert run is not None
    assert run.residency is Residency.GONE
    assert len(cache.invalidate_topic("b")) == 4
    assert cache.invalidate_topic("b") == []
    cache.check()
    left = [key(1, 0, "a"), key(1, 1, "a"), key(0, 1, "a")]
    assert keys(cache.clear()) == left
    assert (len(cache), cache.held_bytes) == (0, 0)
    assert cache.counters.invalidated == 8
    assert cache.counters.evicted_by_size == cache.counters.evicted_by_ttl == 0
    cache.check()


def test_removal_takes_expected_runs_too_and_reservations_stay() -> None:
    cache = cache_of()
    put(cache, key(0), 5, expected_reads=3)
    assert cache.reserve(7, 0)[0]
    assert keys(cache.clear()) == [key(0)]
    assert cache.held_bytes == 7
    assert cache.insert(key(1), "", slot=Slot(7), expected_reads=0, now_s=0)


def test_repr_shows_the_state_in_one_line() -> None:
    cache = cache_of(5, 6)
    run = cache.peek(key(0), 0)
    assert run is not None
    cache.pin(run)
    assert repr(cache) == (
        "<RunCache of 2 runs of 1 topics: 11 of 1000000 bytes held, 11 kept>"
    )
    assert repr(run) == "<a 0:0-9: 5 bytes kept, 0 reads expected, 1 pins>"
