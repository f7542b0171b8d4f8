"""Where extents and runs begin and end, which growth does not change."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sparkcache.model import Extent, Run
from sparkcache_rocketmq.extents import OffsetSpan, runs
from sparkcache_rocketmq.queue_index import Item
from sparkcache_rocketmq.testing import Message
from tests.effort import tries

from .stores import RECORD_BYTES, Store, check_places, keys, log_bases, spans


@pytest.mark.parametrize(
    ("extent", "run_bytes", "found"),
    [
        pytest.param(Extent(0, 9, 0, 1000), 1000, [(0, 7), (8, 9)], id="8 of 10"),
        pytest.param(Extent(0, 7, 0, 800), 800, [(0, 7)], id="all in one"),
        pytest.param(Extent(0, 7, 0, 800), 600, [(0, 7)], id="up by a third"),
        pytest.param(Extent(0, 7, 0, 800), 599, [(0, 3), (4, 7)], id="down by a third"),
        pytest.param(
            Extent(5, 10, 0, 600), 400, [(5, 7), (8, 10)], id="cut at multiples"
        ),
        pytest.param(Extent(5, 7, 0, 999), 1, [(5, 5), (6, 6), (7, 7)], id="one each"),
        pytest.param(Extent(5, 7, 0, 999), 1 << 60, [(5, 7)], id="larger than it is"),
    ],
)
def test_runs(extent: Extent, run_bytes: int, found: list[tuple[int, int]]) -> None:
    assert runs(extent, run_bytes) == [Run(*run) for run in found]


@given(
    st.integers(0, 1 << 40),
    st.integers(1, 3000),
    st.integers(1, 1 << 20),
    st.integers(1, 1 << 22),
)
def test_runs_have_each_offset_once(
    first: int, count: int, size_bytes: int, run_bytes: int
) -> None:
    extent = Extent(first, first + count - 1, 7, size_bytes)
    cut = runs(extent, run_bytes)
    assert [o for run in cut for o in range(run.first, run.last + 1)] == list(
        range(first, first + count)
    )


@pytest.mark.parametrize(
    ("first", "last", "middle"),
    [
        (0, 1, 1),
        (0, 7, 4),
        (0, 8, 8),
        (5, 6, 6),
        (5, 7, 6),
        (3, 1000, 512),
        (9, 11, 10),
    ],
)
def test_the_middle_of_a_span(first: int, last: int, middle: int) -> None:
    assert OffsetSpan(first, last, 0, 1).middle() == middle


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, Item(50, 10)),
        (Item(40, 10), None),
        (Item(40, 10), Item(100, 10)),
        (Item(40, 61), Item(50, 10)),
        (Item(-1, 10), Item(50, 10)),
        (Item(40, 10), Item(30, 10)),
    ],
)
def test_items_that_cannot_be_right_do_not_cut(
    before: Item | None, after: Item | None
) -> None:
    assert OffsetSpan(0, 9, 0, 100).halves(before, after) == ()
    whole = OffsetSpan(0, 9, 0, 100).halves(Item(40, 10), Item(50, 10))
    assert whole == (OffsetSpan(0, 7, 0, 50), OffsetSpan(8, 9, 50, 100))


def test_extents_are_halves_of_halves() -> None:
    store = Store()
    store.writer().append([Message()] * 100)
    found = spans(store.snapshot(20 * RECORD_BYTES))
    assert found == [(n, min(n + 15, 99)) for n in range(0, 100, 16)]


def test_an_extent_has_the_bytes_of_its_records() -> None:
    store = Store()
    writer = store.writer(max_segment_bytes=5000, first_offset=1000)
    for n in range(60):
        writer.append([Message(bytes(37 * n % 500))])
        if n % 7 == 0:
            writer.append_uncommitted([Message(bytes(11))] * (n % 3))
    snapshot = store.snapshot(1500)
    check_places(snapshot, writer.record_ranges, log_bases(store.named("COMMIT_LOG")))
    found = spans(snapshot)
    assert len(found) > 12
    assert found[0][0] == 1000
    assert found[-1][1] == 1059
    assert all(b[0] == a[1] + 1 for a, b in pairwise(found))


def test_an_inner_batch_may_lie_in_two_extents() -> None:
    store = Store()
    writer = store.writer(repeats_batches=False)
    inner = tuple(Message(bytes(100)) for _ in range(5))
    writer.append([Message(bytes(100))] * 6 + [Message(inner=inner)] + [Message()] * 8)
    snapshot = store.snapshot(900)
    assert {(6, 7), (8, 11)} < set(spans(snapshot))  # offsets 6 to 10 are the batch
    check_places(snapshot, writer.record_ranges, log_bases(store.named("COMMIT_LOG")))


@settings(max_examples=tries(33))
@given(
    st.lists(
        st.lists(st.integers(0, 400), min_size=1, max_size=30), min_size=2, max_size=8
    ),
    st.integers(0, 300),
    st.integers(500, 4000),
    st.integers(100, 1000),
    st.sampled_from([1 << 30, 6000]),
)
def test_a_topic_that_grows_keeps_its_runs(
    steps: list[list[int]],
    first: int,
    extent_bytes: int,
    run_bytes: int,
    max_segment_bytes: int,
) -> None:
    """All but those of the last extent; a segment that is full is pinned once."""
    store = Store()
    writer = store.writer(first_offset=first, max_segment_bytes=max_segment_bytes)
    before = None
    for sizes in steps:
        writer.append([Message(bytes(size)) for size in sizes])
        snapshot = store.snapshot(extent_bytes)
        now = set(keys(snapshot, run_bytes))
        if before is not None:
            last = before.ledgers[-1]
            changed = last.extents[-1].first
            is_last = len(before.ledgers) == len(snapshot.ledgers)
            for key in keys(before, run_bytes):
                if key.ledger != last.ledger or (is_last and key.run.first < changed):
                    assert key in now
        before = snapshot
