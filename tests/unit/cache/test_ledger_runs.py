"""Runs of a ledger by position: whatever came and went."""

from __future__ import annotations

import hypothesis.strategies as st
from cache_cases import ledger
from hypothesis import given

from sparkcache.cache.cached_run import CachedRun
from sparkcache.cache.ledger_runs import LedgerRuns
from sparkcache.model import Run, RunKey

runs = st.builds(
    lambda first, more: Run(first, first + more), *[st.integers(0, 60)] * 2
)


def cached(run: Run) -> CachedRun[None]:
    return CachedRun(RunKey(ledger(), run), None, 1)


@given(st.lists(runs), runs)
def test_ranges_are_answered_as_by_asking_each(toggled: list[Run], asked: Run) -> None:
    held: LedgerRuns[None] = LedgerRuns()
    here: dict[Run, CachedRun[None]] = {}
    for run in toggled:  # the second time, it goes
        if run in here:
            held.remove(here.pop(run))
        else:
            here[run] = cached(run)
            held.add(here[run])
        held.check()
    assert held.all() == [here[run] for run in sorted(here)]
    assert held.overlapping(asked.first, asked.last) == [
        here[run]
        for run in sorted(here)
        if run.first <= asked.last and asked.first <= run.last
    ]


def test_places_left_behind_are_cleared_away() -> None:
    held: LedgerRuns[None] = LedgerRuns()
    present = [cached(Run(index, index)) for index in range(100)]
    for one in present:
        held.add(one)
    for one in present[:95]:
        held.remove(one)
    assert held.all() == present[95:]
    assert repr(held) in {f"<5 runs, {places} places>" for places in range(5, 27)}
    held.check()
