"""How many runs each policy loads on stored traces, to the last one.

A change of these numbers is a change of the policy. The traces are of scans of one
topic of 120 runs, that begin when they like and have speeds of their own, and of 12
topics of which each is read by up to 4 scans, two partitions at once.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sparkcache.cache import Policy, Settings, Ttl
from sparkcache.simulate import belady, simulate
from sparkcache.trace import parse
from tests.unit.simulate.scans import scans

TRACES = Path(__file__).parents[2] / "golden" / "traces"
ENDLESS = Ttl(create_s=1e9, after_read_s=None, expected_s=1e9)


@pytest.mark.parametrize(
    ("name", "fit", "next_read", "expected_reads", "lru", "least"),
    [
        ("two-scans", 12, 216, 230, 230, 216),
        ("two-scans", 60, 166, 185, 185, 166),
        ("five-scans", 12, 477, 590, 590, 469),
        ("five-scans", 60, 218, 305, 350, 218),
        ("twelve-topics", 20, 968, 1166, 1167, 930),
        ("twelve-topics", 100, 653, 848, 873, 624),
    ],
)
def test_the_loads_of_each_policy(
    name: str, fit: int, next_read: int, expected_reads: int, lru: int, least: int
) -> None:
    path = TRACES / f"{name}.trace"
    trace = parse(path.read_text(encoding="utf-8").splitlines(), path.name)
    loads = {
        policy.value: simulate(trace, Settings(fit, 10**6, ENDLESS, policy)).loads
        for policy in Policy
    }
    assert loads == {
        "next-read": next_read,
        "expected-reads": expected_reads,
        "lru": lru,
    }
    assert belady(trace, fit).loads == least


def shuffled(readers: int, runs: int, seed: int) -> list[int]:
    """Readers of different speeds that begin when they like."""
    rng = random.Random(seed)
    turns = []
    for reader in range(readers):
        start, speed = rng.random() * 200, 0.5 + rng.random()
        turns += [(start + n / speed, reader) for n in range(runs)]
    return [reader for _, reader in sorted(turns)]


@pytest.mark.parametrize("seed", range(12))
def test_next_read_reads_no_more_than_expected_reads(seed: int) -> None:
    trace = scans(120, shuffled(2 + seed % 5, 120, seed=100 + seed))
    for fit in (6, 20, 60):
        foreseen, counted = (
            simulate(trace, Settings(fit, 10**6, ENDLESS, policy)).loads
            for policy in (Policy.NEXT_READ, Policy.EXPECTED_READS)
        )
        assert foreseen <= counted
        assert foreseen <= 1.15 * belady(trace, fit).loads
