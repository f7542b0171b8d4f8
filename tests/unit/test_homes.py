"""The homes of extents: who keeps what, and what moves when executors change."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcache.homes import Cluster, Executor, Held, keys
from sparkcache.homes import homes as homes_in
from sparkcache.model import Extent, Ledger, ObjectId

EXTENT_BYTES = 1000


def topic(
    extents: int, per_ledger: int = 4, first: int = 0
) -> list[tuple[Ledger, Extent]]:
    """Return extents of one size, some in each ledger."""
    found = []
    for index in range(first, extents):
        ledger, number = divmod(index, per_ledger)
        uri = f"s3://bucket/ledger-{ledger}"
        id_ = ObjectId(uri, per_ledger * EXTENT_BYTES, "v1")
        extent = Extent(number * 10, number * 10 + 9, number, EXTENT_BYTES)
        found.append((Ledger("pulsar", "s3://bucket#orders", ledger, id_), extent))
    return found


def homes(
    extents: list[tuple[Ledger, Extent]],
    executors: list[Executor],
    *,
    is_part: bool = False,
) -> list[str]:
    return homes_in(extents, Cluster(tuple(executors)), is_part=is_part)


def executors(count: int, first: int = 0) -> list[Executor]:
    return [Executor(f"executor_host_{i}") for i in range(first, first + count)]


def test_without_an_executor_there_is_no_home() -> None:
    assert homes(topic(4), []) == []
    assert homes(topic(4), [Executor("executor_a_1", 0, 1)]) == []


def test_one_executor_is_home_of_all() -> None:
    [one] = executors(1)
    assert homes(topic(9), [one]) == [one.location] * 9


def test_no_extents_have_no_homes() -> None:
    assert homes([], executors(3)) == []


@pytest.mark.parametrize(
    ("extents", "count"), [(8, 4), (64, 4), (1600, 100), (4, 100), (5000, 3)]
)
def test_no_executor_has_more_than_its_share(extents: int, count: int) -> None:
    loads = Counter(homes(topic(extents), executors(count)))
    assert max(loads.values()) <= 1.1 * extents / count + 1


def test_a_large_extent_counts_as_many_small_ones() -> None:
    whole = topic(16)  # counting does not begin again among these
    whole[0] = (whole[0][0], replace(whole[0][1], size_bytes=12 * EXTENT_BYTES))
    first, *others = homes(whole, executors(4))
    assert others.count(first) == 0


def test_what_comes_later_in_a_topic_moves_nothing() -> None:
    history = [*executors(3), Executor("executor_host_9", 1)]
    assert homes(topic(300), history)[:100] == homes(topic(100), history)


def test_homes_do_not_depend_on_the_order_of_executors() -> None:
    some = executors(7)
    assert homes(topic(100), some) == homes(topic(100), some[::-1])


def test_homes_do_not_depend_on_the_columns_that_are_read() -> None:
    narrowed = [
        (
            replace(ledger, decoding="id"),
            replace(extent, size_bytes=extent.size_bytes // 2, ranges=((0, 1), (4, 2))),
        )
        for ledger, extent in topic(100)
    ]
    assert homes(narrowed, executors(5)) == homes(topic(100), executors(5))


def test_every_process_finds_the_same_homes() -> None:
    code = "from tests.unit.test_homes import *\nprint(homes(topic(40), executors(6)))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{homes(topic(40), executors(6))}\n"}


@st.composite
def histories(draw: st.DrawFn) -> list[list[Executor]]:
    """Return what was known of the executors after each of some changes."""
    known = executors(draw(st.integers(1, 6)))
    steps = [list(known)]
    for change in range(1, draw(st.integers(1, 6)) + 1):
        there = [i for i, each in enumerate(known) if each.left is None]
        leaving = draw(st.sets(st.sampled_from(there), max_size=len(there) - 1))
        joining = draw(st.integers(0, 2))
        for index in leaving:
            known[index] = replace(known[index], left=change)
        for _ in range(joining):
            known.append(Executor(f"executor_host_{len(known)}", change))
        steps.append(list(known))
    return steps


@given(histories(), st.integers(1, 120))
def test_only_what_has_to_move_moves(
    history: list[list[Executor]], extents: int
) -> None:
    ledgers = topic(extents)
    before = homes(ledgers, history[0])
    for change, known in enumerate(history[1:], start=1):
        after = homes(ledgers, known)
        left = {each.location for each in known if each.left is not None}
        joined = {each.location for each in known if each.joined == change}
        for old, new in zip(before, after, strict=True):
            assert new not in left
            assert old == new or old in left or new in joined
        before = after


@pytest.mark.parametrize("count", [4, 20])
def test_one_that_joins_takes_its_share_from_all(count: int) -> None:
    ledgers = topic(100 * count)
    some = executors(count)
    before = homes(ledgers, some)
    after = homes(ledgers, [*some, Executor("executor_new_1", 1)])
    moved = Counter(old for old, new in zip(before, after, strict=True) if old != new)
    share = len(ledgers) / (count + 1)
    assert 0.9 * share < sum(moved.values()) < 1.1 * share
    assert len(moved) == count
    loads = Counter(after)
    assert max(loads.values()) < 1.15 * share


def test_many_that_join_one_share_its_extents() -> None:
    ledgers = topic(400)
    [first] = executors(1)
    others = [replace(each, joined=1) for each in executors(3, first=1)]
    loads = Counter(homes(ledgers, [first, *others]))
    assert max(loads.values()) < 1.1 * 100


def test_an_executor_that_leaves_is_replaced_evenly() -> None:
    ledgers = topic(400)
    first, *others = executors(5)
    known = [replace(first, left=1), *others]
    loads = Counter(homes(ledgers, known))
    assert max(loads.values()) < 1.1 * 100


def test_of_a_part_of_a_topic_each_extent_has_the_home_that_it_has_in_the_whole() -> (
    None
):
    whole = topic(200)
    of_whole = homes(whole, executors(5), is_part=True)
    assert homes(whole[::3], executors(5), is_part=True) == of_whole[::3]
    assert min(Counter(of_whole).values()) > 20


def test_when_all_have_left_the_next_ones_share_everything() -> None:
    ledgers = topic(100)
    gone = [replace(each, left=1) for each in executors(3)]
    new = [replace(each, joined=2) for each in executors(3, first=3)]
    first = [replace(each, joined=0) for each in new]
    assert homes(ledgers, [*gone, *new]) == homes(ledgers, first)


def test_what_is_held_stays_where_it_is() -> None:
    ledgers = topic(50)
    some = executors(4)
    before = homes(ledgers, some)
    held = {
        key: Held(home, 1)
        for key, home in zip(keys(ledgers[:30]).tolist(), before, strict=False)
    }
    joined = (*some, Executor("executor_new_1", 1))
    after = homes_in(ledgers, Cluster(joined, held))
    assert after[:30] == before[:30]
    assert after[30:] == homes(ledgers, list(joined))[30:]


def test_what_is_removed_from_the_beginning_moves_little_of_a_long_topic() -> None:
    whole = topic(2000)
    before = homes(whole, executors(4))
    for removed in (1, 7, 100):
        after = homes(whole[removed:], executors(4))
        moved = sum(
            old != new for old, new in zip(before[removed:], after, strict=True)
        )
        assert moved < 150
