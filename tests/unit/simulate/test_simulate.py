"""The real core over traces whose outcome can be computed by hand."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from sparkcache.cache import Policy, Settings, Ttl, resolve_ring
from sparkcache.simulate import Outcome, belady, simulate
from sparkcache.simulate.__main__ import main
from sparkcache.trace import Put, Trace, TraceWriter
from tests.unit.simulate.scans import key, one_after_another, scans, trailing

if TYPE_CHECKING:
    from pathlib import Path

LONG = Ttl(create_s=1e6, after_read_s=None, expected_s=1e6)


def settings(max_bytes: int, policy: Policy = Policy.NEXT_READ) -> Settings:
    return Settings(max_bytes, 10**9, LONG, policy, trigger=1.0, watermark=1.0)


@pytest.mark.parametrize("policy", Policy)
def test_a_cache_as_large_as_the_topic_reads_each_byte_once(policy: Policy) -> None:
    trace = scans(20, one_after_another(20, 5))
    assert simulate(trace, settings(20, policy)) == Outcome(100, 20, 100, 20, 1)


@pytest.mark.parametrize("policy", Policy)
def test_without_a_cache_everything_is_read_each_time(policy: Policy) -> None:
    trace = scans(20, one_after_another(20, 3))
    assert simulate(trace, settings(0, policy)) == Outcome(60, 60, 60, 60, 3)


def test_scans_one_after_another_share_what_fits() -> None:
    trace = scans(20, one_after_another(20, 3))
    # Ten runs stay for the second scan and, as it goes on, for the third.
    assert simulate(trace, settings(10)).loads == 20 + 10 + 10
    lru = replace(settings(10, Policy.LRU), drop_after_last_read=False)
    assert simulate(trace, lru).loads == 60
    assert belady(trace, 10).loads == 40


def test_a_scan_that_trails_by_no_more_than_fits_reads_nothing() -> None:
    trace = scans(50, trailing(50, 10))
    assert simulate(trace, settings(11)).loads == 50
    assert simulate(trace, settings(5)).loads == belady(trace, 5).loads > 70


def test_what_nobody_is_planned_to_read_is_held_like_any_other_cache_does() -> None:
    trace = scans(20, one_after_another(20, 2), planned=0)
    assert simulate(trace, settings(20)).loads == 20


def test_time_counts() -> None:
    trace = scans(10, one_after_another(10, 2), step_s=1.0)
    short = replace(settings(100), ttl=Ttl(5.0, None, 5.0), max_requeues=0)
    assert simulate(trace, short).loads == 20
    longer = replace(short, ttl=Ttl(5.0, None, 10.5))
    assert simulate(trace, longer).loads == 10


def test_what_is_put_need_not_be_loaded() -> None:
    trace = scans(4, one_after_another(4, 1))
    trace.events.insert(1, (0.0, Put(key(2))))
    assert simulate(trace, settings(4)) == Outcome(4, 3, 4, 3, 2)
    assert belady(trace, 4) == Outcome(4, 3, 4, 3, 2)


def test_runs_that_a_task_loads_one_after_another_come_with_one_request() -> None:
    order = [0] * 10 + [1] * 10
    assert belady(scans(10, order), 4).gets == 1 + 1


def least_loads(takes: list[int], fit: int) -> int:
    """The least there is, by trying everything."""
    states: dict[frozenset[int], int] = {frozenset(): 0}
    for take in takes:
        then: dict[frozenset[int], int] = {}
        for held, loads in states.items():
            cost = loads + (take not in held)
            may_hold = held | {take}
            for size in range(min(fit, len(may_hold)) + 1):
                for chosen in combinations(sorted(may_hold), size):
                    kept = frozenset(chosen)
                    then[kept] = min(then.get(kept, cost), cost)
        states = then
    return min(states.values())


@pytest.mark.parametrize("seed", range(15))
def test_nothing_reads_less_than_min(seed: int) -> None:
    rng = random.Random(seed)
    order = [scan for scan in range(3) for _ in range(5)]
    rng.shuffle(order)
    trace = scans(5, order)
    takes = [taken.run.first for taken in trace.takes()]
    for fit in (1, 2, 3):
        least = least_loads(takes, fit)
        assert belady(trace, fit).loads == least
        assert simulate(trace, settings(fit)).loads >= least


def test_min_counts_bytes_where_sizes_differ() -> None:
    trace = scans(3, [0, 0, 0, 1, 1, 1], sizes=[10, 1, 1])
    assert belady(trace, 2) == Outcome(6, 4, 24, 22, 2)


def write(trace: Trace, path: Path) -> str:
    with path.open("w", encoding="utf-8") as file:
        TraceWriter(file.write).trace(trace)
    return str(path)


def test_a_table_compares_policies_and_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(scans(20, one_after_another(20, 3)), tmp_path / "a.trace")
    chosen = ["--policy", "next-read", "--max-bytes", "10", "--max-bytes", "20"]
    assert main([trace, *chosen]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["maxBytes", "policy", "runs", "loaded", "MiB", "loaded", "GETs", "saved"],
        ["10", "next-read", "60", "40", "0.0", "3", "33.3%"],
        ["10", "MIN", "60", "40", "0.0", "3", "33.3%"],
        ["20", "next-read", "60", "20", "0.0", "1", "66.7%"],
        ["20", "MIN", "60", "20", "0.0", "1", "66.7%"],
    ]


def test_without_options_it_tries_all_policies_at_four_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(scans(20, one_after_another(20, 2)), tmp_path / "a.trace")
    assert main([trace]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == [
        size for size in ("2", "5", "10", "20") for _ in range(5)
    ]
    assert [row[1] for row in rows[:5]] == [
        "next-read",
        "expected-reads",
        "lru",
        "ring",
        "MIN",
    ]


def test_settings_can_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(scans(10, one_after_another(10, 2)), tmp_path / "a.trace")
    short = ["--conf", "spark.sparkcache.ttlExpected=1s"]
    short += ["--conf", "spark.sparkcache.maxRequeues=0"]
    assert main([trace, "--policy", "next-read", "--max-bytes", "1k", *short]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[3] == "20"


def loads_of(lines: str) -> dict[str, int]:
    """Return the runs loaded, by what the second column says."""
    return {row[1]: int(row[3]) for row in map(str.split, lines.splitlines()[1:])}


PAGE_BYTES = 4096
RING = ("--conf", "spark.sparkcache.engine=ring")
LISTS = ("--conf", "spark.sparkcache.copyEntries=false")
SMALL = ("--conf", "spark.sparkcache.segmentBytes=4k")


@pytest.mark.parametrize(
    ("chosen", "loads"),
    [
        # Three scans of 20 runs in 10 pages: two of them find nothing that is left. The
        # third reads each run for the last time, so those it loads take one segment,
        # and 5 runs (9 in segments of a page) live to be read.
        (RING, {"ring": 20 + 20 + 15, "MIN": 40}),
        ((*RING, *SMALL), {"ring": 20 + 20 + 11, "MIN": 40}),
        ((*RING, *LISTS), {"ring": 20 + 20 + 15, "MIN": 40}),
        (("--policy", "ring"), {"ring": 55, "MIN": 40}),
        ((*RING, "--policy", "next-read"), {"next-read": 40, "MIN": 40}),
        (
            ("--policy", "next-read", "--policy", "ring", *SMALL),
            {"next-read": 40, "ring": 51, "MIN": 40},
        ),
    ],
)
def test_the_ring_is_compared_like_a_policy(
    chosen: tuple[str, ...],
    loads: dict[str, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scanned = scans(20, one_after_another(20, 3), sizes=[PAGE_BYTES] * 20)
    trace = write(scanned, tmp_path / "a.trace")
    assert main([trace, "--max-bytes", "40k", *chosen]) == 0
    assert loads_of(capsys.readouterr().out) == loads


@pytest.mark.parametrize("copies", [True, False])
def test_a_ring_as_large_as_the_topic_reads_each_byte_once(copies: bool) -> None:
    trace = scans(20, one_after_another(20, 5), sizes=[64] * 20)
    ring = resolve_ring(20 * 64, 4 * 64, copies=copies)
    large = replace(settings(20 * 64), ring=ring)
    assert simulate(trace, large) == Outcome(100, 20, 6400, 1280, 1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no.trace"], "No such file"),
        (["bad.trace"], "bad.trace:2: '0 jump': "),
        (["good.trace", "--max-bytes", "many"], "must be a size such as 512m or 1g"),
        (["good.trace", "--conf", "policy"], "must be KEY=VALUE"),
        (
            ["good.trace", "--conf", "spark.sparkcache.ttl=x"],
            "must be a duration such as 10s",
        ),
    ],
)
def test_errors_say_what_was_given_and_what_would_do(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.trace").write_text("sparkcache-trace 1\n0 jump\n")
    write(scans(3, [0, 0, 0]), tmp_path / "good.trace")
    assert main(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    trace = write(scans(3, [0, 0, 0]), tmp_path / "a.trace")
    done = subprocess.run(
        [sys.executable, "-m", "sparkcache.simulate", trace, "--max-bytes", "1g"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "next-read" in done.stdout
    assert done.stderr == ""
