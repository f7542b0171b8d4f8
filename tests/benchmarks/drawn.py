"""Traces of pipelines that are drawn by seed: nobody knows who begins when, how fast.

A seed draws everything: 1 to 15 topics of 80 to 320 runs, 15 to 40 consumers of them,
which begin at random within a time that is drawn too, at speeds of 0.3 to 6 runs a
second, and read one or two partitions at a time, of 16 runs, of 64, or of all.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.benchmarks.workloads import Pipeline, Scan

if TYPE_CHECKING:
    from sparkcache.trace import Trace

TOPICS = (1, 15)
CONSUMERS = (15, 40)
RUNS = (80, 320)
WITHIN_S = (100.0, 900.0)
SPEEDS = (0.3, 6.0)
PART_RUNS = (16, 64, RUNS[1])


def drawn(seed: int) -> Trace:
    """Return the trace that a seed draws."""
    rng = random.Random(seed)
    runs = [rng.randint(*RUNS) for _ in range(rng.randint(*TOPICS))]
    within_s = rng.uniform(*WITHIN_S)
    part_runs = rng.choice(PART_RUNS)
    return Pipeline(
        [_scan(rng, runs, within_s) for _ in range(rng.randint(*CONSUMERS))],
        seed=seed,
        part_runs=part_runs,
    ).trace


def _scan(rng: random.Random, runs: list[int], within_s: float) -> Scan:
    topic = rng.randrange(len(runs))
    return Scan(
        topic,
        0,
        runs[topic],
        rng.uniform(0.0, within_s),
        rng.uniform(*SPEEDS),
        tasks=rng.choice((1, 2)),
    )
