"""The contract of an engine, which all of them keep."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import pytest

from sparkcache.cache import Engine, Residency, Ring, RingCache, RunCache, Settings, Ttl
from sparkcache.model import Slot
from tests.unit.cache.cache_cases import key, keys, put

if TYPE_CHECKING:
    from collections.abc import Callable

# Runs of 64 bytes, the least that one takes in a segment, five of them in each.
SIZE = 64
FOREVER = Ttl(inf, None, inf)
SETTINGS = Settings(10 * SIZE, 1_000, FOREVER, trigger=1, watermark=1)
RING = replace(SETTINGS, ring=Ring(5 * SIZE))
LISTS = replace(SETTINGS, ring=Ring(5 * SIZE, copies=False))

ENGINES: dict[str, Callable[..., Engine[str]]] = {
    "runs": lambda **more: RunCache[str](replace(SETTINGS, **more)),
    "ring": lambda **more: RingCache[str](replace(RING, **more)),
    "lists": lambda **more: RingCache[str](replace(LISTS, **more)),
}


@pytest.fixture(params=ENGINES.values(), ids=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Callable[..., Engine[str]]:
    """Makes an engine, with room for ten runs."""
    make: Callable[..., Engine[str]] = request.param
    return make


def test_what_was_put_is_found(engine: Callable[..., Engine[str]]) -> None:
    cache = engine()
    assert put(cache, key(0), SIZE, expected_reads=3) is not None
    run = cache.get(key(0), 0)
    assert run is not None
    assert (run.key, run.value, run.size_bytes) == (key(0), str(key(0)), SIZE)
    assert (run.expected_reads, run.pins, run.residency) == (3, 0, Residency.KEPT)
    assert cache.peek(key(1), 0) is None
    assert (len(cache), cache.kept_bytes, cache.counters.inserted) == (1, SIZE, 1)
    assert keys(cache.runs()) == [key(0)]
    cache.check()


def test_the_oldest_goes_first_whatever_its_topic(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    order = [key(index, topic="abb"[index % 3]) for index in range(40)]
    for where in order:
        put(cache, where, SIZE)
    assert keys(cache.runs()) == order[-len(cache) :]
    assert len(cache) >= 6
    counters = cache.counters
    assert counters.evicted_by_size + counters.evicted_by_ring == 40 - len(cache)
    assert cache.held_bytes <= 10 * SIZE
    cache.check()


def test_what_makes_room_is_returned(engine: Callable[..., Engine[str]]) -> None:
    cache = engine()
    for index in range(10):
        put(cache, key(index), SIZE, expected_reads=index == 0)
    slot, evicted = cache.reserve(SIZE, 0)
    assert slot is not None
    assert slot.size_bytes == SIZE
    assert evicted
    assert all(run.residency is Residency.GONE for run in evicted)
    assert set(keys(evicted)).isdisjoint(keys(cache.runs()))
    assert cache.counters.evicted_unread == (key(0) in keys(evicted))


def test_what_could_never_fit_evicts_nothing(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    put(cache, key(0), SIZE)
    assert not cache.has_spare(10 * SIZE + 1)
    assert cache.reserve(10 * SIZE + 1, 0) == (None, [])
    assert cache.counters.refused == 1
    assert cache.peek(key(0), 0) is not None


def test_a_run_of_no_bytes_is_a_run(engine: Callable[..., Engine[str]]) -> None:
    cache = engine()
    for index in range(3):
        put(cache, key(index), 0)
    assert keys(cache.runs()) == [key(0), key(1), key(2)]
    cache.check()
    with pytest.raises(ValueError, match="size_bytes is -1: use 0 or more"):
        cache.reserve(-1, 0)


def test_inserting_again_keeps_the_first_and_gives_the_room_back(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    first = put(cache, key(0), SIZE)
    held_bytes = cache.held_bytes
    assert put(cache, key(0), SIZE, expected_reads=2) is None
    assert cache.get(key(0), 0) is first
    assert (len(cache), cache.kept_bytes, cache.held_bytes) == (1, SIZE, held_bytes)
    assert cache.counters.inserted == 1
    assert first is not None
    assert first.expected_reads == 2
    cache.check()


def test_a_reservation_given_back_leaves_nothing(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    slots = [cache.reserve(SIZE, 0)[0] for _ in range(7)]
    assert not cache.is_idle
    for slot in slots:
        assert slot is not None
        cache.unreserve(slot)
    assert cache.is_idle
    assert len(cache) == cache.kept_bytes == 0
    for index in range(10):
        put(cache, key(index), SIZE)
    assert len(cache) == 10
    cache.check()


def test_a_run_without_a_reservation_is_refused(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    with pytest.raises(ValueError, match="reserv"):
        cache.unreserve(Slot(SIZE))


def test_a_pinned_run_that_is_removed_counts_until_its_last_reader(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    run = put(cache, key(0), SIZE)
    assert run is not None
    cache.pin(run)
    cache.pin(run)
    assert cache.remove(key(0)) is run
    assert (run.residency, len(cache), cache.kept_bytes) == (Residency.LENT, 0, 0)
    assert cache.held_bytes >= SIZE
    assert not cache.unpin(run)
    assert not cache.is_idle
    assert cache.unpin(run)
    assert cache.is_idle
    with pytest.raises(ValueError, match="has no pin"):
        cache.unpin(run)
    with pytest.raises(ValueError, match="nothing holds its bytes"):
        cache.pin(run)
    cache.check()


def test_the_limit_holds_whatever_readers_map(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    pinned = []
    for index in range(100):
        slot, _ = cache.reserve(SIZE, 0)
        if slot is None:
            continue
        run = cache.insert(key(index), "", slot=slot, expected_reads=0, now_s=0)
        assert run is not None
        if index % 3 == 0:
            cache.pin(run)
            pinned.append(run)
        assert cache.held_bytes <= 10 * SIZE
        cache.check()
    assert 0 < len(pinned) <= 10
    assert cache.counters.refused > 0
    for run in pinned:
        cache.unpin(run)
    for index in range(100, 200):
        put(cache, key(index), SIZE)
    cache.check()


def test_expected_reads_are_counted_down(engine: Callable[..., Engine[str]]) -> None:
    cache = engine()
    put(cache, key(0), SIZE, expected_reads=2)
    assert [cache.mark_read(key(0), 0) for _ in range(3)] == [1, 0, 0]
    assert cache.mark_read(key(1), 0) is None
    assert cache.set_expected(key(0), 5, 0)
    assert not cache.set_expected(key(1), 5, 0)
    assert cache.mark_read(key(0), 0) == 4
    with pytest.raises(ValueError, match="expected_reads is -1"):
        cache.set_expected(key(0), -1, 0)


def test_runs_are_found_by_topic(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    for index, (number, topic) in enumerate([(0, "a"), (1, "a"), (0, "b"), (0, "c")]):
        put(cache, key(index, number, topic), SIZE)
    assert cache.keys_of(["a", "c"]) == [key(0), key(1, 1), key(3, topic="c")]
    assert cache.keys_of([]) == []
    assert keys(cache.invalidate_topic("b")) == [key(2, topic="b")]
    assert set(keys(cache.clear())) == {key(0), key(1, 1), key(3, topic="c")}
    assert cache.counters.invalidated == 4
    assert cache.is_idle
    cache.check()


def test_what_was_loaded_ahead_and_never_read_is_wasted(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    for index in range(2):
        slot, _ = cache.reserve(SIZE, 0)
        assert slot is not None
        cache.insert(key(index), "", slot=slot, expected_reads=0, now_s=0, ahead=True)
    read = cache.get(key(0), 0)
    assert read is not None
    assert not read.unread
    cache.clear()
    assert (cache.counters.wasted, cache.counters.wasted_bytes) == (1, SIZE)


def test_a_capped_life_ends_for_readers_too(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine(ttl=Ttl(inf, None, inf, max_life_s=5))
    put(cache, key(0), SIZE, expected_reads=1)
    assert cache.peek(key(0), 4.9) is not None
    assert cache.expire_run(key(0), 4.9) is None
    assert cache.get(key(0), 5) is None
    assert cache.mark_read(key(0), 5) is None
    run = cache.expire_run(key(0), 5)
    assert run is not None
    assert run.key == key(0)
    assert cache.counters.evicted_by_ttl == 1
    assert cache.is_idle


def test_a_lowered_limit_holds_as_soon_as_readers_let_it(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    for index in range(10):
        put(cache, key(index), SIZE)
    run = cache.peek(key(7), 0)
    assert run is not None
    cache.pin(run)
    ring = cache.settings.ring and replace(cache.settings.ring, segment_bytes=2 * SIZE)
    lower = replace(cache.settings, max_bytes=4 * SIZE, ring=ring)
    evicted = cache.configure(lower, 0)
    assert len(evicted) + len(cache) == 10
    cache.check()
    cache.unpin(run)
    cache.expire(0)
    assert cache.held_bytes <= 4 * SIZE
    for index in range(20, 40):
        put(cache, key(index), SIZE)
        assert cache.held_bytes <= 4 * SIZE
    assert 1 <= len(cache) <= 4
    cache.check()


def test_a_raised_limit_is_used(engine: Callable[..., Engine[str]]) -> None:
    cache = engine()
    cache.configure(replace(cache.settings, max_bytes=20 * SIZE), 0)
    for index in range(20):
        put(cache, key(index), SIZE)
    assert len(cache) == 20
    cache.check()


def test_a_limit_of_zero_bytes_holds_nothing(
    engine: Callable[..., Engine[str]],
) -> None:
    cache = engine()
    put(cache, key(0), SIZE)
    ring = cache.settings.ring and replace(cache.settings.ring, segment_bytes=0)
    none = replace(cache.settings, max_bytes=0, ring=ring)
    assert keys(cache.configure(none, 0)) == [key(0)]
    assert cache.reserve(SIZE, 0) == (None, [])
    assert cache.held_bytes == 0
