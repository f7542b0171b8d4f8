"""How much is held at the most, whatever is pinned or reserved, and changed limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sparkcache.cache import Residency, RunCache
from sparkcache.model import Slot
from tests.unit.cache.cache_cases import HOUR, KILO, PULSAR, cache_of, key, keys, put

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("kept", "size_bytes", "evicted"),
    [
        pytest.param(9, 80, 0, id="980 of 1000 is not over the trigger"),
        pytest.param(9, 81, 1, id="981 is: down to 881"),
        pytest.param(9, 100, 1, id="1000 is: down to 900"),
        pytest.param(8, 200, 1, id="1000 in larger pieces, likewise"),
        pytest.param(9, 101, 2, id="901 would be over the watermark: down to 801"),
        pytest.param(9, 1000, 9, id="a run as large as the cache takes all of it"),
        pytest.param(0, 1000, 0, id="and is welcome in an empty one"),
    ],
)
def test_making_room(kept: int, size_bytes: int, evicted: int) -> None:
    cache: RunCache[str] = RunCache(KILO)
    for index in range(kept):
        put(cache, key(index), 100)
    fits, removed = cache.reserve(size_bytes, 0)
    assert fits
    assert keys(removed) == [key(index) for index in range(evicted)]
    assert cache.held_bytes == 100 * (kept - evicted) + size_bytes
    cache.check()


def test_what_could_never_fit_evicts_nothing() -> None:
    cache: RunCache[str] = RunCache(KILO)
    put(cache, key(0), 900)
    assert cache.reserve(1001, 0) == (None, [])
    assert cache.held_bytes == 900
    assert cache.counters.refused == 1


@pytest.mark.parametrize("held_by", ["a reservation", "a loan", "a pin"])
def test_what_eviction_does_not_free_is_not_counted_on(held_by: str) -> None:
    cache: RunCache[str] = RunCache(KILO)
    put(cache, key(0), 300)
    match held_by:
        case "a reservation":
            assert cache.reserve(500, 0)[0]
        case "a loan":
            assert cache.reserve(500, 0)[0]
            run = cache.insert(key(1), "", slot=Slot(500), expected_reads=0, now_s=0)
            assert run is not None
            cache.pin(run)
            cache.remove(key(1))
        case "a pin":
            run = put(cache, key(1), 500)
            assert run is not None
            cache.pin(run)
    assert cache.reserve(501, 0) == (None, [])
    fits, removed = cache.reserve(500, 0)
    assert fits
    assert keys(removed) == [key(0)]
    cache.check()


def test_pinned_runs_are_passed_over_where_they_stand() -> None:
    cache = cache_of(*[1] * 4, ttl=HOUR)
    put(cache, key(4), expected_reads=1)
    pinned = [cache.peek(key(index), 0) for index in (0, 2)]
    for run in pinned:
        assert run is not None
        cache.pin(run)
    awaited = cache.peek(key(4), 0)
    assert awaited is not None
    cache.pin(awaited)
    assert keys(cache.evict(100, 0)) == [key(1), key(3)]
    assert keys(cache.runs()) == [key(0), key(2), key(4)]
    assert awaited.requeues == 0, "and do not spend their requeues"
    cache.unpin(awaited)
    assert keys(cache.evict(100, 0)) == [key(4)]
    cache.check()


def test_the_number_of_runs_is_limited_exactly() -> None:
    cache: RunCache[str] = RunCache(replace(KILO, max_runs=3))
    for index in range(5):
        assert cache.reserve(1, 0)[0]
        cache.insert(key(index), "", slot=Slot(1), expected_reads=0, now_s=0)
    assert keys(cache.runs()) == [key(2), key(3), key(4)]
    run = cache.peek(key(3), 0)
    assert run is not None
    cache.pin(run)
    assert cache.reserve(1, 0)[0]
    assert cache.reserve(1, 0)[0]
    assert cache.reserve(1, 0) == (None, [])
    cache.check()


def test_a_pin_is_counted_until_the_last_reader_lets_go() -> None:
    cache = cache_of(7)
    run = cache.get(key(0), 0)
    assert run is not None
    cache.pin(run)
    cache.pin(run)
    assert cache.remove(key(0)) is run, "at once: the caller can close its descriptor"
    assert (len(cache), cache.kept_bytes, cache.held_bytes) == (0, 0, 7)
    assert not cache.unpin(run)
    assert cache.held_bytes == 7
    assert cache.unpin(run)
    assert cache.held_bytes == 0
    with pytest.raises(ValueError, match="has no pin"):
        cache.unpin(run)
    with pytest.raises(ValueError, match="nothing holds its bytes"):
        cache.pin(run)


def test_a_pin_let_go_in_time_leaves_a_run_as_it_was() -> None:
    cache = cache_of(7)
    run = cache.get(key(0), 0)
    assert run is not None
    cache.pin(run)
    assert not cache.unpin(run)
    assert (run.residency, cache.kept_bytes) == (Residency.KEPT, 7)
    assert cache.evict(1, 0) == [run]


def test_reservations_are_needed_and_can_be_given_back() -> None:
    cache = cache_of()
    assert cache.reserve(7, 0)[0]
    assert cache.reserve(8, 0)[0]
    cache.unreserve(Slot(7))
    assert cache.held_bytes == 8
    calls: list[Callable[[], object]] = [
        lambda: cache.unreserve(Slot(7)),
        lambda: cache.insert(key(0), "", slot=Slot(7), expected_reads=0, now_s=0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="no reservation of 7 bytes"):
            call()
    assert cache.peek(key(0), 0) is None
    cache.check()


def test_a_lowered_limit_holds_at_once() -> None:
    cache: RunCache[str] = RunCache(KILO)
    for index in range(9):
        put(cache, key(index), 100)
    removed = cache.configure(replace(KILO, max_bytes=500), 0)
    assert keys(removed) == [key(index) for index in range(5)]
    assert cache.held_bytes == 400, "90 % of 500 would be 450"
    cache.check()


def test_what_a_lowered_limit_cannot_free_goes_at_the_first_pass_that_can() -> None:
    cache: RunCache[str] = RunCache(KILO)
    run = put(cache, key(0), 600)
    assert run is not None
    cache.pin(run)
    assert cache.configure(replace(KILO, max_bytes=500), 0) == []
    assert cache.reserve(1, 0) == (None, [])
    assert cache.expire(1) == []
    cache.unpin(run)
    assert cache.expire(2) == [run]
    assert cache.counters.evicted_by_size == 1


def test_a_limit_of_zero_passes_everything_through() -> None:
    cache: RunCache[str] = RunCache(KILO)
    put(cache, key(0), 100)
    assert keys(cache.configure(replace(KILO, max_bytes=0), 0)) == [key(0)]
    assert cache.reserve(1, 0) == (None, [])
    assert cache.configure(KILO, 0) == []
    assert cache.reserve(1, 0) == (Slot(1), [])


def test_a_lowered_number_of_runs_holds_at_once() -> None:
    cache: RunCache[str] = RunCache(KILO)
    for index in range(5):
        put(cache, key(index))
    removed = cache.configure(replace(KILO, max_runs=2), 0)
    assert keys(removed) == [key(0), key(1), key(2)]


def test_settings_between_the_trigger_and_the_limit_evict_nothing() -> None:
    cache: RunCache[str] = RunCache(KILO)
    put(cache, key(0), 1000)
    assert cache.configure(replace(KILO, watermark=0.5), 0) == cache.expire(1) == []


def test_changed_watermark_and_trigger_hold_for_the_next_run() -> None:
    cache: RunCache[str] = RunCache(KILO)
    for index in range(9):
        put(cache, key(index), 100)
    cache.configure(replace(KILO, trigger=0.9, watermark=0.5), 0)
    assert len(cache.reserve(1, 0)[1]) == 5


def test_changed_requeues_hold_at_the_next_pass() -> None:
    cache = cache_of(ttl=PULSAR)
    put(cache, key(0), expected_reads=1)
    cache.configure(replace(cache.settings, max_requeues=0), 0.5)
    assert keys(cache.expire(1)) == [key(0)]


def test_a_changed_extension_holds_at_the_next_pass() -> None:
    cache = cache_of(1, ttl=PULSAR)
    cache.get(key(0), 0.1)
    cache.configure(replace(cache.settings, extend_recently_accessed=True), 0.5)
    assert cache.expire(1) == []
