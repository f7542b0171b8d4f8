"""The ring: what BookKeeper's ReadCache does, and what PIP-174's code did not."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from sparkcache.cache import Ring, RingCache, Settings, Ttl, resolve_ring
from sparkcache.model import Segment, Slot
from tests.unit.cache.cache_cases import key, keys, put

KIB = 1024
TEN = Settings(10 * KIB, 1_000, Ttl(inf, None, inf))
BOTH = pytest.mark.parametrize("copies", [True, False], ids=["copied", "listed"])


def ring(segment_bytes: int, copies: bool = True, **more: Any) -> RingCache[str]:
    settings = replace(TEN, ring=Ring(segment_bytes, copies), **more)
    return RingCache(settings)


def numbers(cache: RingCache[str]) -> list[int]:
    return [run.key.run.first // 10 for run in cache.runs()]


# ReadCacheTest's table: 10 kB, entries of 1 kB


@BOTH
@pytest.mark.parametrize(
    ("segment_bytes", "puts", "held"),
    [
        pytest.param(5 * KIB, 10, range(10), id="2 x 5 kB: ten are all there"),
        pytest.param(5 * KIB, 11, range(5, 11), id="the 11th drops the first half"),
        pytest.param(5 * KIB, 16, range(10, 16), id="the 16th the other"),
        pytest.param(2 * KIB, 10, range(10), id="5 x 2 kB: ten are all there"),
        pytest.param(2 * KIB, 11, range(2, 11), id="the 11th drops two: 9 are left"),
        pytest.param(2 * KIB, 13, range(4, 13), id="the 13th two more"),
        pytest.param(10 * KIB, 11, range(10, 11), id="one segment: it begins again"),
    ],
)
def test_the_table(segment_bytes: int, puts: int, held: range, copies: bool) -> None:
    cache = ring(segment_bytes, copies)
    for index in range(puts):
        put(cache, key(index), KIB)
    assert numbers(cache) == list(held)
    assert (len(cache), cache.kept_bytes) == (len(held), len(held) * KIB)
    assert all(cache.get(key(index), 0) for index in held)
    assert not any(cache.get(key(index), 0) for index in range(held[0]))
    cache.check()


def test_an_empty_ring_has_nothing() -> None:
    cache = ring(5 * KIB)
    assert cache.get(key(0), 0) is None
    assert (len(cache), cache.held_bytes, list(cache.segments)) == (0, 0, [])


# The defects of PIP-174's implementation


@BOTH
def test_d1_it_goes_round_many_times(copies: bool) -> None:
    cache = ring(5 * KIB, copies)
    for index in range(1000):
        assert put(cache, key(index), KIB) is not None
        assert cache.held_bytes <= 10 * KIB
    assert numbers(cache) == list(range(990 + 5 * (len(cache) == 5), 1000))
    assert cache.counters.refused == 0
    cache.check()


@BOTH
def test_d2_a_run_that_is_held_neither_turns_the_ring_nor_counts_twice(
    copies: bool,
) -> None:
    cache = ring(5 * KIB, copies)
    for index in range(5):
        put(cache, key(index), KIB)
    for _ in range(20):
        assert put(cache, key(4), KIB) is None
    assert numbers(cache) == [0, 1, 2, 3, 4]
    assert cache.kept_bytes == 5 * KIB
    for index in range(5, 10):
        put(cache, key(index), KIB)
    assert numbers(cache) == list(range(10)), "no room was lost to them"


def test_d3_a_failed_insert_leaves_the_offset_where_it_was() -> None:
    cache = ring(5 * KIB)
    put(cache, key(0), KIB)
    for _ in range(3):
        slots = [cache.reserve(KIB, 0)[0] for _ in range(3)]
        assert [slot and slot.offset for slot in slots] == [KIB, 2 * KIB, 3 * KIB]
        for at in (1, 2, 0):  # whichever fails first
            failed = slots[at]
            assert failed is not None
            cache.unreserve(failed)
        cache.check()
    assert cache.reserve(6 * KIB, 0) == (None, [])
    assert cache.reserve(4 * KIB, 0)[0] == Slot(4 * KIB, Segment(0, 5 * KIB), KIB)


@BOTH
def test_d4_a_range_that_lies_in_two_segments_is_there_whole(copies: bool) -> None:
    cache = ring(2 * KIB, copies)
    for index in range(20):
        put(cache, key(index), KIB)
    found = [cache.get(key(index), 0) for index in range(11, 20)]
    assert [run and run.key for run in found] == [key(i) for i in range(11, 20)]


# d5, a miss is inserted and one load serves all, is a test of the node's, with d6's
# counts by topic: tests/unit/node/test_engines_of_a_node.py


@BOTH
def test_d6_another_size_is_taken_up_while_it_runs(copies: bool) -> None:
    cache = ring(2 * KIB, copies)
    for index in range(10):
        put(cache, key(index), KIB)
    lower = replace(TEN, max_bytes=4 * KIB, ring=Ring(2 * KIB, copies))
    assert keys(cache.configure(lower, 0)) == [key(index) for index in range(6)]
    assert cache.held_bytes == 4 * KIB
    cache.configure(replace(TEN, ring=Ring(5 * KIB, copies)), 0)
    for index in range(10, 30):
        put(cache, key(index), KIB)
        assert cache.held_bytes <= 10 * KIB
    assert numbers(cache) == list(range(30 - len(cache), 30))
    assert len(cache) > 5
    cache.check()


@pytest.mark.parametrize("max_bytes", [256 << 20, 1 << 30, 100 << 30])
def test_d7_a_turn_evicts_a_small_part(max_bytes: int) -> None:
    segments = resolve_ring(max_bytes, 0)
    cache: RingCache[str] = RingCache(replace(TEN, max_bytes=max_bytes, ring=segments))
    size_bytes = segments.segment_bytes // 640 * 64
    index = 0
    while not cache.counters.evicted_by_ring:
        put(cache, key(index), size_bytes)
        index += 1
    assert cache.counters.evicted_by_ring / index <= 1 / 16
    assert cache.kept_bytes / max_bytes >= 0.9


# How many segments


@pytest.mark.parametrize(
    ("max_bytes", "segment_bytes", "expected"),
    [
        pytest.param(10 * KIB, 5 * KIB, 5 * KIB, id="two fit"),
        pytest.param(10 * KIB, 4 * KIB, 5 * KIB, id="two fit, and are made larger"),
        pytest.param(10 * KIB, 1 << 30, 5 * KIB, id="two at least"),
        pytest.param(1 << 30, 0, 32 << 20, id="a 32nd unless it is said"),
        pytest.param(64 << 20, 0, 16 << 20, id="but 16 MiB at least"),
        pytest.param(16 << 20, 0, 8 << 20, id="and two of them"),
        pytest.param(0, 0, 0, id="of nothing, nothing"),
    ],
)
def test_how_large_segments_are(
    max_bytes: int, segment_bytes: int, expected: int
) -> None:
    assert resolve_ring(max_bytes, segment_bytes) == Ring(expected)


def test_segments_are_whole_pages_and_no_more_than_there_are_descriptors_for() -> None:
    wanted = resolve_ring(1 << 30, 4096, most_segments=100, granule_bytes=4096)
    assert wanted.segment_bytes == (1 << 30) // 100 // 4096 * 4096


# Copied


def test_runs_follow_each_other_at_multiples_of_64_bytes() -> None:
    cache = ring(KIB)
    slots = [cache.reserve(size_bytes, 0)[0] for size_bytes in (1, 64, 65, 0, 700, 1)]
    assert slots == [
        Slot(64, Segment(0, KIB), 0),
        Slot(64, Segment(0, KIB), 64),
        Slot(128, Segment(0, KIB), 128),
        Slot(64, Segment(0, KIB), 256),
        Slot(704, Segment(0, KIB), 320),
        Slot(64, Segment(1, KIB), 0),
    ]


def test_a_run_as_large_as_a_segment_fits_and_a_larger_one_turns_nothing() -> None:
    cache = ring(5 * KIB)
    for index in range(3):
        put(cache, key(index), 5 * KIB)
    assert numbers(cache) == [1, 2]
    assert cache.reserve(5 * KIB + 1, 0) == (None, [])
    assert cache.counters.refused == 1
    assert numbers(cache) == [1, 2]


def test_memory_is_taken_segment_by_segment_and_used_again() -> None:
    cache = ring(2 * KIB)
    held = []
    for index in range(12):
        put(cache, key(index), KIB)
        held.append((cache.held_bytes // KIB, len(cache.segments)))
    assert held == [(2 * n, n) for n in (1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5)]
    put(cache, key(12), KIB)
    assert set(cache.segments) == set(range(5))


def test_a_segment_that_is_read_is_passed_over() -> None:
    cache = ring(2 * KIB)
    for index in range(10):
        put(cache, key(index), KIB)
    pinned = cache.get(key(1), 0)
    assert pinned is not None
    cache.pin(pinned)
    put(cache, key(10), KIB)
    assert numbers(cache) == [0, 1, *range(4, 11)]
    assert pinned.slot.segment == Segment(0, 2 * KIB)
    cache.unpin(pinned)
    put(cache, key(11), KIB)
    put(cache, key(12), KIB)
    assert numbers(cache) == list(range(4, 13))
    cache.check()


def test_where_all_segments_are_read_there_is_no_room() -> None:
    cache = ring(5 * KIB)
    for index in range(10):
        put(cache, key(index), KIB)
    for index in (0, 9):
        run = cache.get(key(index), 0)
        assert run is not None
        cache.pin(run)
    assert cache.reserve(KIB, 0) == (None, [])
    assert not cache.has_spare(KIB)
    assert (len(cache), cache.held_bytes) == (10, 10 * KIB)


def test_a_segment_being_written_is_passed_over() -> None:
    cache = ring(5 * KIB)
    slot, _ = cache.reserve(KIB, 0)
    for index in range(1, 20):
        put(cache, key(index), KIB)
    assert slot is not None
    run = cache.insert(key(0), "", slot=slot, expected_reads=0, now_s=0)
    assert run is not None
    assert cache.get(key(0), 0) is run
    cache.check()


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "written"])
def test_a_segment_where_look_ups_find_nothing_is_passed_over_if_in_use(
    is_read: bool,
) -> None:
    cache = ring(5 * KIB)
    slot, _ = cache.reserve(KIB, 0)
    assert slot is not None
    if is_read:
        run = cache.insert(key(0), "", slot=slot, expected_reads=0, now_s=0)
        assert run is not None
        cache.pin(run)
        cache.remove(key(0))
    for index in range(1, 30):
        put(cache, key(index), KIB)
        assert (slot.segment, 0) not in [
            (run.slot.segment, run.slot.offset) for run in cache.runs()
        ]
    cache.check()


def test_room_given_back_is_forgotten_when_a_segment_is_reused() -> None:
    cache = ring(10 * KIB)
    first, _ = cache.reserve(KIB, 0)
    put(cache, key(1), KIB)
    assert first is not None
    cache.unreserve(first)
    for index in range(2, 11):
        put(cache, key(index), KIB)
    assert numbers(cache) == [10]
    last, _ = cache.reserve(KIB, 0)
    assert last is not None
    cache.unreserve(last)
    put(cache, key(11), KIB)
    assert [run.slot.offset for run in cache.runs()] == [0, KIB]
    cache.check()


def test_a_segment_that_has_lost_all_its_runs_is_next() -> None:
    cache = ring(2 * KIB)
    for index in range(10):
        put(cache, key(index), KIB)
    for index in (6, 7):
        cache.remove(key(index))
    assert cache.has_spare(KIB)
    put(cache, key(10), KIB)
    assert cache.counters.evicted_by_ring == 0
    assert numbers(cache) == [0, 1, 2, 3, 4, 5, 8, 9, 10]
    cache.check()


def test_a_reader_that_drops_what_it_has_read_goes_on_in_one_segment() -> None:
    cache = ring(5 * KIB)
    for index in range(100):
        put(cache, key(index), KIB)
        cache.remove(key(index))
    assert list(cache.segments) == [0]


def test_no_memory_is_taken_while_there_is_a_segment_that_lost_all_its_runs() -> None:
    cache = ring(2 * KIB)
    for index in range(3):
        put(cache, key(index), KIB)
    for index in range(2):
        cache.remove(key(index))
    for index in range(3, 6):
        put(cache, key(index), KIB)
    assert set(cache.segments) == {0, 1}
    assert numbers(cache) == [2, 3, 4, 5]


def test_a_segment_beyond_a_lowered_limit_is_given_up_and_not_used_again() -> None:
    cache = ring(5 * KIB)
    for index in range(10):
        put(cache, key(index), KIB)
    first, second = (cache.peek(key(index), 0) for index in (0, 9))
    assert first is not None
    assert second is not None
    cache.pin(first)
    cache.pin(second)
    cache.configure(replace(TEN, max_bytes=5 * KIB, ring=Ring(5 * KIB)), 0)
    assert cache.held_bytes == 10 * KIB
    cache.unpin(first)
    slot, evicted = cache.reserve(KIB, 0)
    assert slot is None
    assert keys(evicted) == [key(index) for index in range(5)]
    assert cache.held_bytes == 5 * KIB


def test_a_ring_takes_up_another_segment_size_as_it_turns() -> None:
    cache = ring(2 * KIB)
    for index in range(10):
        put(cache, key(index), KIB)
    cache.configure(replace(TEN, ring=Ring(5 * KIB)), 0)
    assert len(cache) == 10
    put(cache, key(10), KIB)
    assert cache.held_bytes <= 10 * KIB
    put(cache, key(11), 4 * KIB)
    assert numbers(cache)[-2:] == [10, 11]
    cache.check()


def test_thousands_of_segments() -> None:
    cache: RingCache[str] = RingCache(
        replace(TEN, max_bytes=4096 * KIB, ring=Ring(KIB))
    )
    for index in range(10_000):
        put(cache, key(index), KIB)
    assert len(cache) == len(cache.segments) == 4096
    assert numbers(cache) == list(range(10_000 - 4096, 10_000))
    cache.check()


# Listed


def test_a_list_goes_whole_and_its_readers_keep_what_they_map() -> None:
    cache = ring(5 * KIB, copies=False)
    for index in range(10):
        put(cache, key(index), KIB)
    pinned = cache.get(key(3), 0)
    assert pinned is not None
    cache.pin(pinned)
    slot, evicted = cache.reserve(KIB, 0)
    assert slot == Slot(KIB)
    assert keys(evicted) == [key(index) for index in range(5)]
    assert cache.held_bytes == 7 * KIB
    assert cache.unpin(pinned)
    assert cache.held_bytes == 6 * KIB
    cache.check()


def test_lists_hold_no_more_runs_than_there_are_descriptors_for() -> None:
    cache = ring(5 * KIB, copies=False, max_runs=7)
    for index in range(30):
        put(cache, key(index), KIB)
        assert len(cache) <= 7
    cache.check()
