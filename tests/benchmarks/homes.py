"""Homes of extents among many executors, simulated: time, balance, and what moves.

    python tests/benchmarks/homes.py [--json] [--save]

By number of executors and of extents, which are all of one size:

    plan_s          seconds to find the homes of all extents
    most_over_mean  extents of the executor that has most / mean
    window          likewise, for a tenth of the topic that a query reads
    moved_leave     extents that move when one executor leaves / those it was home of
    moved_join      extents that move when one joins / its share
    moved_append    of the extents before, how many move when a tenth is appended
    moved_trim      of the extents left, how many move when a tenth is removed from the
                    beginning: retention
    changes_s       seconds for the homes after 50 executors have been replaced

`of_part` is for tables, of which a query may plan a part: no executor is passed over.

`caches_over_one` simulates the workloads of `policies` with the core: bytes that four
or sixteen caches read from the storage, each with the runs of its own home, over those
of one cache of the sum of their sizes. Partitions of 32 runs are extents.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Any

from sparkcache.cache import Settings
from sparkcache.homes import Cluster, Executor, homes
from sparkcache.model import Extent, Ledger, ObjectId
from sparkcache.simulate import simulate
from sparkcache.trace import Begin, Over, Trace
from sparkcache.trace import Open as Opened
from tests.benchmarks import record
from tests.benchmarks.policies import ENDLESS
from tests.benchmarks.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    Extents = Sequence[tuple[Ledger, Extent]]

SIZES = ((4, 32), (4, 1000), (100, 400), (100, 10_000), (1000, 4000), (1000, 100_000))
PER_LEDGER = 8
EXTENT_BYTES = 64 << 20
SHARES = (0.1, 0.25, 0.5)
CLUSTERS = (4, 16)
PART_RUNS = 32
REPLACED = 50


def measure() -> dict[str, Any]:
    """Measure homes, then simulate caches."""
    sizes = {f"{n} executors, {e} extents": of_size(n, e) for n, e in SIZES}
    with ProcessPoolExecutor() as pool:
        rows = dict(zip(WORKLOADS, pool.map(compare, WORKLOADS), strict=True))
    ratios = [ratio for row in rows.values() for ratio in row.values()]
    return {
        "plan_s_100": sizes["100 executors, 10000 extents"]["plan_s"],
        "plan_s_1000": sizes["1000 executors, 100000 extents"]["plan_s"],
        "caches_over_one_mean": round(mean(ratios), 3),
        "caches_over_one_worst": max(ratios),
        "sizes": sizes,
        "caches_over_one": rows,
    }


def of_size(executors: int, extents: int) -> dict[str, Any]:
    """Return what is measured for so many executors and extents."""
    whole = topic(0, extents)
    there = [Executor(f"executor_host_{number}") for number in range(executors)]
    began = time.perf_counter()
    before = placed(whole, there)
    plan_s = time.perf_counter() - began
    left = [replace(there[0], left=1), *there[1:]]
    joined = [*there, Executor("executor_host_new", 1)]
    tenth = extents // 10
    part = homes(whole, Cluster(tuple(there)), is_part=True)
    replaced = list(there)
    for change in range(1, REPLACED + 1):
        index = next(i for i, each in enumerate(replaced) if each.left is None)
        replaced[index] = replace(replaced[index], left=change)
        replaced.append(Executor(f"executor_host_again_{change}", change))
    began = time.perf_counter()
    placed(whole, replaced)
    changes_s = time.perf_counter() - began
    return {
        "plan_s": round(plan_s, 3),
        "most_over_mean": most_over_mean(before, executors),
        "window": most_over_mean(before[4 * tenth : 5 * tenth], executors),
        "moved_leave": round(
            moved(before, placed(whole, left)) / before.count(there[0].location), 3
        ),
        "moved_join": round(
            moved(before, placed(whole, joined)) / (extents / (executors + 1)), 3
        ),
        "moved_append": moved(before, placed(topic(0, extents + tenth), there)),
        "moved_trim": round(
            moved(before[tenth:], placed(whole[tenth:], there)) / (extents - tenth), 3
        ),
        "changes_s": round(changes_s, 3),
        "of_part": {"most_over_mean": most_over_mean(part, executors)},
    }


def topic(first: int, stop: int) -> list[tuple[Ledger, Extent]]:
    """Return extents of ledgers as Pulsar's are."""
    found = []
    for index in range(first, stop):
        ledger, number = divmod(index, PER_LEDGER)
        object_id = ObjectId(f"s3://bucket/ledger-{ledger}", 1 << 30, "v1")
        extent = Extent(number * 100, number * 100 + 99, number, EXTENT_BYTES)
        found.append(
            (Ledger("pulsar", "s3://bucket#orders", ledger, object_id), extent)
        )
    return found


def placed(extents: Extents, executors: Sequence[Executor]) -> list[str]:
    """Return the homes of extents."""
    return homes(extents, Cluster(tuple(executors)))


def most_over_mean(found: Sequence[str], executors: int) -> float:
    """Return how much more than the mean an executor is home of."""
    return round(max(Counter(found).values()) * executors / len(found), 3)


def moved(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many extents have another home than before."""
    return sum(old != new for old, new in zip(before, after, strict=False))


def compare(workload: str) -> dict[str, float]:
    """Return what several caches read over what one does, by their number and size."""
    trace = WORKLOADS[workload]()
    whole_bytes = sum(map(trace.size_bytes, trace.runs))
    row = {}
    for share in SHARES:
        one = simulate(trace, _settings(whole_bytes * share)).loaded_bytes
        for count in CLUSTERS:
            settings = _settings(whole_bytes * share / count)
            several = sum(
                simulate(each, settings).loaded_bytes for each in split(trace, count)
            )
            row[f"{count} caches, {share:.0%}"] = round(several / one, 3)
    return row


def split(trace: Trace, executors: int) -> list[Trace]:
    """Return what the cache of each executor sees if each task reads at its home."""
    home_of = _homes(trace, executors)
    events: dict[str, list[Any]] = defaultdict(list)
    names = [f"executor_host_{number}" for number in range(executors)]
    at: dict[int, str] = {}
    for now_s, event in trace.events:
        if isinstance(event, Begin | Over):
            for name in names:
                events[name].append((now_s, event))
            continue
        if isinstance(event, Opened):
            at[event.task] = home_of[
                event.reader.consumer.topic, event.first.entry // PART_RUNS
            ]
        events[at[event.task]].append((now_s, event))  # type: ignore[union-attr]
    return [Trace(trace.runs, events[name]) for name in names]


def _homes(trace: Trace, executors: int) -> dict[tuple[str, int], str]:
    there = tuple(Executor(f"executor_host_{number}") for number in range(executors))
    sizes: Counter[tuple[str, int]] = Counter()
    ledgers = {}
    for key in trace.runs:
        part = key.ledger.topic, key.run.first // PART_RUNS
        sizes[part] += trace.size_bytes(key)
        ledgers[key.ledger.topic] = key.ledger
    found: dict[tuple[str, int], str] = {}
    for name, ledger in ledgers.items():
        parts = sorted(part for part in sizes if part[0] == name)
        extents = [
            (ledger, Extent(number, number, number, sizes[name, number]))
            for _, number in parts
        ]
        found.update(zip(parts, homes(extents, Cluster(there)), strict=True))
    return found


def _settings(max_bytes: float) -> Settings:
    return Settings(round(max_bytes), 10**9, ENDLESS)


if __name__ == "__main__":
    record.run("homes", measure, ("numpy",))
