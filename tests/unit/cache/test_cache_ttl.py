"""How long a run lives: the exact times, to the deadline itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sparkcache.cache import Residency, RunCache, Ttl
from tests.ttl_cases import DUAL_TTL, NINES, Steps
from tests.unit.cache.cache_cases import PULSAR, ROCKETMQ, cache_of, key, keys, put


def play(cache: RunCache[str], steps: Steps) -> None:
    """Do things to run 0 at the given times."""
    for what, at_s in steps:
        match what:
            case "read":
                assert cache.get(key(0), at_s)
            case "peek":
                assert cache.peek(key(0), at_s)
            case "list":
                assert cache.keys_of("a") == keys(cache.runs()) == [key(0)]
                assert cache.next_deadline_s() is not None
            case "near":
                assert cache.get(key(1), at_s) is None
                cache.readers_moved("a")
            case "mark":
                assert cache.mark_read(key(0), at_s) == 0
            case "put":
                assert put(cache, key(0), now_s=at_s) is None
            case "pass":
                assert cache.expire(at_s) == []


@pytest.mark.parametrize(
    ("steps", "at_s", "held"),
    [
        *DUAL_TTL,
        pytest.param([("mark", 1)], 10.9, True, id="a planned read counts as a read"),
        pytest.param([("mark", 1)], 11.0, False, id="a planned read shortens as well"),
        pytest.param(
            [("read", 1), ("put", 2)], 181.9, True, id="put again: unread again"
        ),
        pytest.param([("read", 1), ("put", 2)], 182, False, id="put again: for 180 s"),
        pytest.param(
            [("read", 0.3), ("put", 0.6)], 100, True, id="within one second, likewise"
        ),
    ],
)
def test_dual_ttl(steps: Steps, at_s: float, held: bool) -> None:
    cache = cache_of(1, ttl=ROCKETMQ)
    play(cache, steps)
    assert (cache.peek(key(0), at_s) is not None) == held
    assert (cache.get(key(0), at_s) is not None) == held
    assert keys(cache.expire(at_s)) == [key(0)] * (not held)
    assert (len(cache), cache.held_bytes) == ((1, 1) if held else (0, 0))
    assert cache.counters.evicted_by_ttl == (not held)
    assert cache.counters.evicted_by_size == 0
    cache.check()


@pytest.mark.parametrize(
    ("steps", "deadline_s"),
    [
        pytest.param([], 180, id="180 s for the unread"),
        pytest.param([("read", 1)], 11, id="10 s from the read"),
        pytest.param([("read", 179.9)], 189.9, id="however late it was read"),
        pytest.param([("peek", 1), ("list", 2)], 180, id="looks change nothing"),
    ],
)
def test_the_next_deadline_is_known(steps: Steps, deadline_s: float) -> None:
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
    play(cache, [("read", 0.9), ("mark", 0.95)])
    assert cache.peek(key(0), 0.999)
    assert cache.peek(key(0), 1.0) is None


def test_an_expired_run_takes_room_until_a_pass_but_is_not_found() -> None:
    cache = cache_of(7, ttl=ROCKETMQ)
    assert cache.get(key(0), 180) is None
    assert cache.mark_read(key(0), 180) is None
    assert not cache.set_expected(key(0), 3, 180)
    assert (len(cache), cache.kept_bytes) == (1, 7)
    assert len(cache.expire(180)) == 1
    assert (len(cache), cache.kept_bytes) == (0, 0)
    assert cache.counters.evicted_by_ttl == 1


def test_inserting_an_expired_run_revives_it() -> None:
    """Its bytes are as good as the new ones, so there is nothing else to free."""
    cache = cache_of(7, ttl=ROCKETMQ)
    cache.get(key(0), 1)
    assert put(cache, key(0), 7, expected_reads=2, now_s=500) is None
    assert cache.held_bytes == 7
    run = cache.peek(key(0), 679.9)
    assert run is not None
    assert run.expected_reads == 2
    assert cache.expire(600) == []


def test_the_run_that_was_read_last_expires_last() -> None:
    cache = cache_of(1, 1, ttl=ROCKETMQ)
    for index, at_s in ((0, 1), (1, 2), (0, 3)):
        cache.get(key(index), at_s)
    assert keys(cache.expire(12)) == [key(1)]
    assert keys(cache.expire(13)) == [key(0)]


def test_a_run_that_is_inserted_again_is_as_good_as_new() -> None:
    cache = cache_of(ttl=PULSAR, max_requeues=1, extend_recently_accessed=True)
    put(cache, key(0), expected_reads=1)
    assert cache.expire(1) == []
    cache.get(key(0), 1.1)
    put(cache, key(0), expected_reads=1, now_s=1.5)
    assert cache.expire(2.5) == [], "spared: none of its requeues is spent"
    assert keys(cache.expire(3.5)) == [key(0)], "once: it was not accessed since"


def test_a_time_to_live_of_zero_ends_at_once() -> None:
    cache = cache_of(1, ttl=Ttl(0, 0, 600))
    assert cache.get(key(0), 0) is None
    assert len(cache.expire(0)) == 1


def test_an_endless_time_to_live_has_no_deadline() -> None:
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


def test_when_reads_no_longer_count_a_run_lives_on_from_its_last_read() -> None:
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
    assert (run.residency, cache.kept_bytes, cache.held_bytes) == (Residency.LENT, 0, 7)
    assert cache.unpin(run)
    assert (run.residency, cache.held_bytes) == (Residency.GONE, 0)


# The hard cap


@pytest.mark.parametrize(
    ("expected_reads", "steps", "end_s"),
    [
        pytest.param(0, [], 180, id="unread: its time is over long before"),
        pytest.param(0, NINES[:20], 190, id="read before its end, and then no more"),
        pytest.param(0, NINES[:33], 300, id="read every 9 s: ends for all that"),
        pytest.param(
            0, [*NINES[:32], ("read", 295)], 300, id="a late read gives it no 10 s"
        ),
        pytest.param(0, [("read", 1), ("put", 5), ("read", 184)], 194, id="put again"),
        pytest.param(
            0,
            [("put", 100), *[("read", at_s) for at_s in range(109, 400, 9)]],
            400,
            id="put again: its life begins again",
        ),
        pytest.param(3, [], 300, id="expected, with requeues to spend: none is spent"),
        pytest.param(3, [("pass", 180)], 300, id="spared once before: ends no later"),
    ],
)
def test_nothing_lives_longer_than_its_cap(
    expected_reads: int, steps: Steps, end_s: float
) -> None:
    cache = cache_of(ttl=Ttl(180, 10, 180, max_life_s=300))
    put(cache, key(0), expected_reads=expected_reads)
    play(cache, steps)
    assert cache.peek(key(0), math.nextafter(end_s, 0))
    assert cache.get(key(0), end_s) is None
    assert cache.mark_read(key(0), end_s) is None
    assert keys(cache.expire(end_s)) == [key(0)]
    assert cache.counters.evicted_unread == (expected_reads > 0)
    cache.check()


def test_a_cap_that_is_set_later_applies_to_held_runs() -> None:
    cache = cache_of(1, 1, 1, ttl=Ttl(500, 500, 500))
    put(cache, key(3), now_s=50)
    put(cache, key(0), now_s=60)
    cache.get(key(1), 99)
    capped = replace(cache.settings, ttl=Ttl(500, 500, 500, max_life_s=100))
    assert cache.configure(capped, 99.5) == []
    assert cache.next_deadline_s() == 100
    assert keys(cache.expire(149)) == [key(1), key(2)]
    assert keys(cache.expire(160)) == [key(3), key(0)]


def test_runs_live_on_when_a_cap_is_lifted() -> None:
    cache = cache_of(1, ttl=Ttl(500, 500, 500, max_life_s=100))
    put(cache, key(1), now_s=1)
    endless = replace(cache.settings, ttl=Ttl(500, 500, 500))
    assert keys(cache.configure(endless, 100)) == [key(0)], "it was not found any more"
    assert cache.peek(key(1), 499)
    assert cache.next_deadline_s() == 501


def test_a_reader_that_maps_an_expired_run_keeps_its_bytes() -> None:
    cache = cache_of(7, ttl=Ttl(500, 500, 500, max_life_s=100))
    run = cache.get(key(0), 99)
    assert run is not None
    cache.pin(run)
    assert cache.get(key(0), 100) is None
    assert cache.expire(100) == [run]
    assert (run.residency, cache.held_bytes) == (Residency.LENT, 7)
    assert cache.unpin(run)
    assert cache.held_bytes == 0


# Short passes


def test_short_passes_together_do_what_a_long_one_does() -> None:
    cache = cache_of(*[3] * 10, ttl=ROCKETMQ)
    passes = []
    while cache.has_overdue(180):
        passes.append(keys(cache.expire(180, most_runs=4)))
    assert passes == [[key(n) for n in range(at, min(at + 4, 10))] for at in (0, 4, 8)]
    assert cache.held_bytes == 0


@pytest.mark.parametrize(
    ("most_bytes", "removed"),
    [
        pytest.param(1, 1, id="one run at least, however large"),
        pytest.param(30, 1, id="one that is as large as that"),
        pytest.param(31, 2, id="the one that reaches it is the last"),
        pytest.param(math.inf, 5, id="all, if nothing is said"),
    ],
)
def test_a_pass_removes_a_limited_number_of_bytes(
    most_bytes: float, removed: int
) -> None:
    cache = cache_of(*[30] * 5, ttl=ROCKETMQ)
    assert len(cache.expire(180, most_bytes=most_bytes)) == removed
    assert cache.has_overdue(180) == (removed < 5)


def test_a_short_pass_counts_what_it_spares_as_well() -> None:
    cache = cache_of(ttl=PULSAR)
    for index in range(4):
        put(cache, key(index), expected_reads=1)
    assert cache.expire(1, most_runs=3) == []
    assert cache.counters.requeued_by_ttl == 3
    assert cache.has_overdue(1)
    assert cache.next_deadline_s() == 1


def test_between_short_passes_what_is_overdue_is_not_found() -> None:
    cache = cache_of(*[1] * 5, ttl=ROCKETMQ)
    cache.get(key(4), 175)
    assert len(cache.expire(180, most_runs=1)) == 1
    found = [index for index in range(5) if cache.get(key(index), 180)]
    assert found == [4]
    assert len(cache) == 4


def test_a_lowered_limit_evicts_overdue_runs_first() -> None:
    cache = cache_of(*[40] * 3, ttl=ROCKETMQ)
    runs = cache.runs()
    for run in runs:
        cache.pin(run)
    cache.get(key(0), 175)
    assert cache.configure(replace(cache.settings, max_bytes=70), 176) == []
    for run in runs:
        cache.unpin(run)
    assert keys(cache.expire(180, most_runs=1)) == [key(1)]
    assert keys(cache.expire(180, most_runs=1)) == [key(2)]
    assert cache.get(key(0), 180)


def test_a_run_goes_before_its_turn_only_if_it_is_overdue() -> None:
    cache = cache_of(1, 1, ttl=ROCKETMQ)
    put(cache, key(2), expected_reads=1)
    assert cache.expire_run(key(0), 179) is None
    assert cache.expire_run(key(9), 180) is None
    assert cache.expire_run(key(2), 180) is None, "a pass would spare it"
    run = cache.expire_run(key(1), 180)
    assert run is not None
    assert run.key == key(1)
    assert cache.counters.evicted_by_ttl == 1
    assert [key(0), key(2)] == keys(cache.runs())
