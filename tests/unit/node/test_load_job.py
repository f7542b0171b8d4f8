"""How a load is laid out: where it begins, where it ends, what it passes over."""

from __future__ import annotations

import pytest

from sparkcache.fetch import Scan
from sparkcache.node.load_job import lay_out
from sparkcache.node.offsets import Offsets
from tests.unit.node.node_world import CONFIG, ROOT, STORED, key, ledger, run_slice

ALL = set(range(10))


@pytest.mark.parametrize(
    ("wanted", "index", "known", "here", "first", "last", "passed_over"),
    [
        pytest.param((0, 10), 0, set(), set(), 0, 9, set(), id="the whole extent"),
        pytest.param(
            (0, 10), 4, set(), set(), 0, 9, set(), id="from the beginning, if need be"
        ),
        pytest.param(
            (0, 10), 4, {2, 3}, set(), 3, 9, set(), id="from the nearest known place"
        ),
        pytest.param((0, 10), 4, ALL, set(), 4, 9, set(), id="from the run itself"),
        pytest.param((2, 6), 4, ALL, set(), 4, 5, set(), id="as far as is wanted"),
        pytest.param(
            (2, 6), 4, {4}, set(), 4, 9, set(), id="on, where that place is not known"
        ),
        pytest.param((0, 10), 4, ALL, {7}, 4, 6, set(), id="up to what is here"),
        pytest.param(
            (0, 10), 4, {4}, {7}, 4, 9, {7}, id="over what is here, place unknown"
        ),
        pytest.param(
            (0, 10), 4, set(), {1, 7}, 0, 9, {1, 7}, id="over what is on the way"
        ),
        pytest.param((0, 10), 9, ALL, ALL - {9}, 9, 9, set(), id="the last one alone"),
        pytest.param((4, 5), 4, ALL, ALL - {4}, 4, 4, set(), id="a gap of one"),
    ],
)
def test_lay_out(
    wanted: tuple[int, int],
    index: int,
    known: set[int],
    here: set[int],
    first: int,
    last: int,
    passed_over: set[int],
) -> None:
    part = run_slice(0, *wanted, runs=10)
    job = lay_out(
        Scan(ROOT, CONFIG.storage, CONFIG.scan, (part,)),
        part,
        index,
        is_present=lambda found: found.run.first in here,
        offsets={entry: entry * STORED for entry in known},
    )
    load = job.load
    assert (load.runs[0].first, load.runs[-1].last) == (first, last)
    assert (load.offset, load.end) == (first * STORED, (last + 1) * STORED)
    assert {load.runs[at].first for at in job.skip} == passed_over
    assert [found for _, found in job.remaining_runs()] == [
        key(entry) for entry in range(first, last + 1) if entry not in passed_over
    ]


def test_offsets_of_the_extents_used_last_are_known() -> None:
    offsets = Offsets(max_offsets=5)
    extent = run_slice(0, 0, 1).extent
    for number in range(3):
        for entry in (0, 1, 1):
            offsets.learn(ledger(number), extent, entry, entry * STORED)
            offsets.check()
    assert offsets.for_extent(ledger(0), extent) == {}
    assert (
        offsets.for_extent(ledger(1), extent)
        == offsets.for_extent(ledger(2), extent)
        == {0: 0, 1: STORED}
    )
