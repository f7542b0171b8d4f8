"""How long a run lives: the exact times, to the deadline itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from cache_cases import PULSAR, ROCKETMQ, cache_of, key, keys, put

from sparkcache.cache import Place, RunCache, Ttl

NINES = [("get", at_s) for at_s in range(9, 523, 9)]


def play(cache: RunCache[str], steps: list[tuple[str, float]]) -> None:
    """Do things to run 0 at the given times."""
    for what, at_s in steps:
        match what:
            case "get":
                assert cache.get(key(0), at_s)
            case "peek":
                assert cache.peek(key(0), at_s)
            case "list":
                assert cache.keys_of("a") == [key(0)]
            case "mark":
                assert cache.mark_read(key(0), at_s) == 0
            case "put":
                assert put(cache, key(0), now_s=at_s) is None
            case "pass":
                assert cache.expire(at_s) == []


@pytest.mark.parametrize(
    ("steps", "at_s", "held"),
    [
        pytest.param([], 179.999999999, True, id="unread: held before the deadline"),
        pytest.param([], 180.0, False, id="unread: gone at the deadline itself"),
        pytest.param(
            [("pass", 179.9)], 180.0, False, id="an idle pass changes nothing"
        ),
        pytest.param(
            [("get", 1)], 10.999999999, True, id="read: held until 10 s later"
        ),
        pytest.param([("get", 1)], 11.0, False, id="read: gone exactly 10 s later"),
        pytest.param([("mark", 1)], 10.9, True, id="a planned read counts as a read"),
        pytest.param([("mark", 1)], 11.0, False, id="a planned read shortens as well"),
        pytest.param(
            [("get", 179.9)], 189.8, True, id="a late read extends beyond 180"
        ),
        pytest.param([("get", 179.9)], 190.0, False, id="by no more than 10 s"),
        pytest.param(NINES, 531, True, id="read every 9 s: slides without limit"),
        pytest.param(NINES, 532, False, id="read every 9 s: until it stops"),
        pytest.param(
            [("get", 1), ("put", 2)], 181.9, True, id="put again: unread anew"
        ),
        pytest.param([("get", 1), ("put", 2)], 182.0, False, id="put again: for 180 s"),
        pytest.param(
            [("get", 0.3), ("put", 0.6)], 100, True, id="within one second, likewise"
        ),
        pytest.param(
            [("get", 1), ("get", 1.5)], 11.4, True, id="reads within a second all count"
        ),
        pytest.param([("peek", 1)], 12, True, id="peek does not shorten"),
        pytest.param([("list", 1)], 12, True, id="a range look-up does not shorten"),
    ],
)
def test_dual_ttl(steps: list[tuple[str, float]], at_s: float, held: bool) -> None:
    cache = cache_of(1, ttl=ROCKETMQ)
    play(cache, steps)
    assert (cache.peek(key(0), at_s) is not None) == held
    assert keys(cache.expire(at_s)) == [key(0)] * (not held)
    cache.check()


@pytest.mark.parametrize(
    ("steps", "deadline_s"),
    [
        pytest.param([], 180, id="180 s for the unread"),
        pytest.param([("get", 1)], 11, id="10 s from the read"),
    ],
)
def test_the_next_deadline_is_known(
    steps: list[tuple[str, float]], deadline_s: float
) -> None:
    cache = cache_of(1, ttl=ROCKETMQ)
    play(cache, steps)
    assert cache.next_deadline_s() == deadline_s
    assert cache.expire(math.nextafter(deadline_s, 0)) == []
    assert keys(cache.expire(deadline_s)) == [key(0)]
    assert cache.next_deadline_s() is None


def test_the_next_deadline_is_that_of_the_first_to_end() -> None:
    cache = cache_of(1, 1, ttl=ROCKETMQ)
    cache.get(key(1), 100)
    assert cache.next_deadline_s() == 110
    assert keys(cache.expire(110)) == [key(1)]
    assert cache.next_deadline_s() == 180


def test_a_single_ttl_is_not_touched_by_reads() -> None:
    cache = cache_of(1, ttl=PULSAR)
    play(cache, [("get", 0.9), ("mark", 0.95)])
    assert cache.peek(key(0), 0.999)
    assert cache.peek(key(0), 1.0) is None


def test_a_run_whose_time_is_over_takes_room_until_a_pass_but_is_not_found() -> None:
    cache = cache_of(7, ttl=ROCKETMQ)
    assert cache.get(key(0), 180) is None
    assert cache.mark_read(key(0), 180) is None
    assert not cache.set_expected(key(0), 3, 180)
    assert (len(cache), cache.kept_bytes) == (1, 7)
    assert len(cache.expire(180)) == 1
    assert (len(cache), cache.kept_bytes) == (0, 0)
    assert cache.counters.expired == 1


def test_inserting_a_run_whose_time_is_over_takes_it_back_to_life() -> None:
    """Its bytes are as good as the new ones, so there is nothing else to free."""
    cache = cache_of(7, ttl=ROCKETMQ)
    cache.get(key(0), 1)
    assert put(cache, key(0), 7, expected_reads=2, now_s=500) is None
    assert cache.held_bytes == 7
    run = cache.peek(key(0), 679.9)
    assert run is not None
    assert run.expected_reads == 2
    assert cache.expire(600) == []


def test_the_read_last_is_the_last_to_end() -> None:
    cache = cache_of(1, 1, ttl=ROCKETMQ)
    for index, at_s in ((0, 1), (1, 2), (0, 3)):
        cache.get(key(index), at_s)
    assert keys(cache.expire(12)) == [key(1)]
    assert keys(cache.expire(13)) == [key(0)]


def test_inserted_again_a_run_is_as_good_as_new() -> None:
    cache = cache_of(ttl=PULSAR, max_requeues=1, extend_recently_accessed=True)
    put(cache, key(0), expected_reads=1)
    assert cache.expire(1) == []
    cache.get(key(0), 1.1)
    put(cache, key(0), expected_reads=1, now_s=1.5)
    assert cache.expire(2.5) == [], "spared: none of its requeues is spent"
    assert keys(cache.expire(3.5)) == [key(0)], "once: it was not accessed since"


def test_a_time_of_zero_ends_at_once() -> None:
    cache = cache_of(1, ttl=Ttl(0, 0, 600))
    assert cache.get(key(0), 0) is None
    assert len(cache.expire(0)) == 1


def test_a_time_without_end_wakes_nobody() -> None:
    cache = cache_of(1, ttl=Ttl(math.inf, None, math.inf))
    assert cache.next_deadline_s() is None
    assert cache.expire(1e12) == []


def test_the_last_expected_read_begins_the_time_after_reads() -> None:
    cache = cache_of(ttl=Ttl(180, 10, 600))
    put(cache, key(0), expected_reads=2)
    assert cache.get(key(0), 100)
    assert cache.mark_read(key(0), 101) == 1
    assert cache.next_deadline_s() == 701
    assert cache.mark_read(key(0), 300) == 0
    assert cache.next_deadline_s() == 310


@pytest.mark.parametrize(
    ("reads_before", "reads_after", "deadline_s"),
    [
        pytest.param(0, 2, 650, id="the first to be expected: its time begins"),
        pytest.param(2, 5, 600, id="more of them: it goes on"),
        pytest.param(2, 1, 600, id="fewer of them: it goes on"),
        pytest.param(2, 0, 230, id="none any more: the time of the unread begins"),
    ],
)
def test_set_expected(reads_before: int, reads_after: int, deadline_s: float) -> None:
    cache = cache_of(ttl=Ttl(180, 10, 600))
    put(cache, key(0), expected_reads=reads_before)
    assert cache.set_expected(key(0), reads_after, 50)
    assert cache.next_deadline_s() == deadline_s
    assert cache.mark_read(key(0), 51) == max(0, reads_after - 1)
    cache.check()


def test_a_plan_that_begins_later_has_all_its_requeues() -> None:
    cache = cache_of(ttl=PULSAR, max_requeues=1)
    put(cache, key(0), expected_reads=1)
    assert cache.expire(1) == []
    cache.set_expected(key(0), 0, 1.5)
    cache.set_expected(key(0), 1, 1.6)
    assert cache.expire(2.6) == []
    assert keys(cache.expire(3.6)) == [key(0)]


def test_a_changed_ttl_holds_at_once_and_counts_from_where_time_began() -> None:
    cache = cache_of(1, 1, ttl=ROCKETMQ)
    cache.get(key(1), 5)
    shorter = replace(cache.settings, ttl=Ttl(20, 2, 600))
    assert cache.configure(shorter, 6) == []
    assert cache.next_deadline_s() == 7
    assert cache.peek(key(1), 7) is None
    assert keys(cache.expire(20)) == [key(1), key(0)]


def test_when_reads_matter_no_more_the_read_live_on_from_their_last_read() -> None:
    cache = cache_of(1, ttl=ROCKETMQ)
    cache.get(key(0), 5)
    cache.configure(replace(cache.settings, ttl=PULSAR), 5.5)
    cache.get(key(0), 5.9)
    assert cache.next_deadline_s() == 6


def test_a_pass_does_not_wait_for_readers_but_their_bytes_count() -> None:
    cache = cache_of(7, ttl=ROCKETMQ)
    run = cache.get(key(0), 0)
    assert run is not None
    cache.pin(run)
    assert cache.expire(10) == [run]
    assert (run.place, cache.kept_bytes, cache.held_bytes) == (Place.LENT, 0, 7)
    assert cache.unpin(run)
    assert (run.place, cache.held_bytes) == (Place.GONE, 0)
