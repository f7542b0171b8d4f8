"""How much each policy reads from the storage, next to one that knows the future.

    python tests/benchmarks/policies.py [--json] [--save]

By workload (see `workloads`), cache size (a share of all runs that are read) and
policy: bytes read from the storage / bytes that Belady's MIN reads. Of these ratios the
worst and the mean of each policy: `lru_over_min_mean` and so on. `loaded` are MIN's
bytes / bytes read. Workloads in which consumers break off or never come count apart:
what a plan says is not what happens then, and MIN knows it (`..._broken_worst`).

The real core is driven for next-read and for PIP-430 (the policy expected-reads, with
PIP-430's trigger, watermark and requeues), with times to live that do not matter, and
for the engine ring, with runs copied into segments or in lists of them (`lists_...`).
Its segments are those that it has by default for runs of usual sizes: a 32nd of the
cache, or 16 MiB where that is more. See `baselines` for the others.

The keys that begin with `drawn` are of a second family of workloads, drawn by seed (see
`drawn`), for the seeds `SEEDS`; next-read was tuned on seeds below `TUNED`. There
`oracle` is one that does not know when a consumer will begin: see `plan_oracle`.

`gets` are requests to the storage, of which one delivers the runs of an extent that a
task loads one after another; MIN's are counted in the same way. It does not care how
many they are. A GET costs as much as a run, as it does by default.

`pip430_scenario_hit_rate` is next-read's in the scenario of `rolling_restart`, where
PIP-430 published 98.4 %.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from statistics import mean
from typing import TYPE_CHECKING, Any

from sparkcache.cache import Policy, Settings, Ttl, resolve_ring
from sparkcache.simulate import belady, simulate
from tests.benchmarks import record, rolling_restart
from tests.benchmarks.baselines import (
    GENERAL,
    dag_aware,
    farthest_reference,
    fewest_references,
    general,
)
from tests.benchmarks.drawn import drawn
from tests.benchmarks.plan_oracle import plan_oracle
from tests.benchmarks.workloads import BROKEN, RUN_BYTES, SCALE, WORKLOADS, scaled

if TYPE_CHECKING:
    from sparkcache.simulate import Outcome
    from sparkcache.trace import Trace

SHARES = (0.02, 0.10, 0.25, 0.50)
DRAWN_SHARES = (0.10, 0.25, 0.50)
TUNED = 50
SEEDS = range(100, 140)
ENDLESS = Ttl(create_s=1e9, after_read_s=None, expected_s=1e9)
OWN = {"next-read": Policy.NEXT_READ, "PIP-430": Policy.EXPECTED_READS}
RINGS = {"ring": True, "lists": False}  # by whether runs are copied
DAG_AWARE = {"LRC": fewest_references, "MRD": farthest_reference}
KEYS = {
    "next-read": "next_read",
    "PIP-430": "pip430",
    "S3-FIFO": "s3fifo",
    "W-TinyLFU": "wtinylfu",
}


def measure() -> dict[str, Any]:
    """Compare on every workload."""
    with ProcessPoolExecutor() as pool:
        scenario = pool.submit(rolling_restart.hit_rates)
        table = dict(zip(WORKLOADS, pool.map(compare, WORKLOADS), strict=True))
        broken = dict(zip(BROKEN, pool.map(compare, BROKEN), strict=True))
        by_seed = dict(zip(SEEDS, pool.map(compare_drawn, SEEDS), strict=True))
        rates = scenario.result()
    cells = [cell for row in table.values() for cell in row.values()]
    broken_cells = [cell for row in broken.values() for cell in row.values()]
    result: dict[str, Any] = {}
    for policy in (*OWN, *RINGS, *DAG_AWARE, *GENERAL):
        ratios = [cell[policy] for cell in cells]
        name = KEYS.get(policy, policy.lower())
        result[f"{name}_over_min_worst"] = max(ratios)
        result[f"{name}_over_min_mean"] = round(mean(ratios), 3)
        result[f"{name}_over_min_broken_worst"] = max(c[policy] for c in broken_cells)
    result["next_read_over_pip430_worst"] = round(
        max(cell["next-read"] / cell["PIP-430"] for cell in (*cells, *broken_cells)), 3
    )
    result["gets_over_min_worst"] = max(cell["next-read GETs"] for cell in cells)
    result |= of_drawn([cell for row in by_seed.values() for cell in row.values()])
    result["pip430_scenario_hit_rate"] = rates["next-read"]
    return result | {
        "pip430_scenario": rates,
        "over_min": table | broken,
        "drawn_over_min": by_seed,
    }


def of_drawn(cells: list[dict[str, float]]) -> dict[str, float]:
    """Return worst and mean of the workloads that are drawn."""
    result = {}
    for policy, key in (
        ("next-read", "next_read_over_min"),
        ("PIP-430", "pip430_over_min"),
        ("oracle", "oracle_over_min"),
        ("next-read GETs", "gets_over_min"),
        ("PIP-430 GETs", "pip430_gets_over_min"),
    ):
        ratios = [cell[policy] for cell in cells]
        result[f"drawn_{key}_mean"] = round(mean(ratios), 3)
        result[f"drawn_{key}_worst"] = max(ratios)
    result["drawn_next_read_over_pip430_worst"] = round(
        max(cell["next-read"] / cell["PIP-430"] for cell in cells), 3
    )
    return result


def compare(workload: str) -> dict[str, dict[str, float]]:
    """Return, by size of the cache, what each policy reads over what MIN does."""
    trace = (WORKLOADS | BROKEN)[workload]()
    large = scaled(trace)
    whole_bytes = sum(map(trace.size_bytes, trace.runs))
    row = {}
    for share in SHARES:
        max_bytes = round(whole_bytes * share)
        least = belady(trace, max_bytes)
        loaded, ratios = own(trace, max_bytes, least)
        for name, copies in RINGS.items():
            loaded[name] = _ring(large, max_bytes * SCALE, copies) // SCALE
        for name, worth in DAG_AWARE.items():
            loaded[name] = dag_aware(trace, max_bytes, worth)
        for name in GENERAL:
            loaded[name] = general(trace, name, max_bytes)
        row[f"{share:.0%}"] = ratios | over(loaded, least)
    return row


def compare_drawn(seed: int) -> dict[str, dict[str, float]]:
    """Return, by size of the cache, what our policies and oracles read over MIN."""
    trace = drawn(seed)
    whole_bytes = sum(map(trace.size_bytes, trace.runs))
    row = {}
    for share in DRAWN_SHARES:
        max_bytes = round(whole_bytes * share)
        least = belady(trace, max_bytes)
        loaded, ratios = own(trace, max_bytes, least)
        loaded["oracle"] = plan_oracle(trace, max_bytes)
        row[f"{share:.0%}"] = ratios | over(loaded, least)
    return row


def own(
    trace: Trace, max_bytes: int, least: Outcome
) -> tuple[dict[str, int], dict[str, float]]:
    """Return the bytes that our policies read, and their GETs over those of MIN."""
    outcomes = {
        name: simulate(
            trace,
            Settings(max_bytes, 10**9, ENDLESS, policy, get_cost_bytes=RUN_BYTES),
        )
        for name, policy in OWN.items()
    }
    ratios = {"loaded": round(least.loaded_bytes / least.read_bytes, 3)} | {
        f"{name} GETs": round(outcome.gets / least.gets, 3)
        for name, outcome in outcomes.items()
    }
    return {name: outcome.loaded_bytes for name, outcome in outcomes.items()}, ratios


def over(loaded: dict[str, int], least: Outcome) -> dict[str, float]:
    """Return bytes over those of MIN."""
    return {name: round(got / least.loaded_bytes, 3) for name, got in loaded.items()}


def _ring(trace: Trace, max_bytes: int, copies: bool) -> int:
    """Return the bytes that the engine ring reads from the storage."""
    ring = resolve_ring(max_bytes, 0, copies=copies)
    settings = Settings(max_bytes, 10**9, ENDLESS, ring=ring)
    return simulate(trace, settings).loaded_bytes


if __name__ == "__main__":
    record.run("policies", measure, ("libcachesim",))
