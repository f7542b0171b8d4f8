"""Would it help if a scan began beside one that is under way, and wrapped around?

    python tests/benchmarks/reading_order.py [--json] [--save]

Cooperative scans share what they read where a scan in order would come to it long after
it is gone. Here each scan may choose where to begin when it begins; it goes on from the
beginning when it has come to the end. Rules:

    nearest         beside the one that is least far
    farthest        beside the one that has come farthest
    beyond a share  beside the nearest, if that is farther than what would be a topic's
                    part of the cache if all topics had the same
    beyond two      likewise, two such parts

By rule: what Belady's MIN reads then / what it reads in order, by workload (see
`workloads`) and size of the cache; the least, the mean and the most. MIN knows the
order, so a rule that does not win with MIN does not win with any policy.

Found: a reader that always joins may lose a third. Beyond two shares, nothing is lost
on any of these. It is not done through Spark, all the same: the order of partitions is
settled by a process of the driver that cannot know where other scans are.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any

from sparkcache.simulate import belady
from tests.benchmarks import record
from tests.benchmarks.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable

SHARES = (0.02, 0.10, 0.25, 0.50)
RULES: dict[str, Callable[[list[int], float], int]] = {
    "nearest": lambda others, _: min(others),
    "farthest": lambda others, _: max(others),
    "beyond a share": lambda others, share: _beyond(others, share),
    "beyond two": lambda others, share: _beyond(others, 2 * share),
}


def _beyond(others: list[int], far_runs: float) -> int:
    nearest = min(others)
    return nearest if nearest > far_runs else 0


def measure() -> dict[str, Any]:
    """Compare every rule on every workload."""
    with ProcessPoolExecutor() as pool:
        rows = dict(zip(WORKLOADS, pool.map(compare, WORKLOADS), strict=True))
    result: dict[str, Any] = {}
    for rule in RULES:
        ratios = [ratio for row in rows.values() for ratio in row[rule].values()]
        result[rule] = {
            "least": min(ratios),
            "mean": round(mean(ratios), 3),
            "most": max(ratios),
        }
    return result | {"over_in_order": rows}


def compare(workload: str) -> dict[str, dict[str, float]]:
    """Return, by rule and size, what MIN reads over what it reads in order."""
    in_order = WORKLOADS[workload]()
    whole_bytes = sum(map(in_order.size_bytes, in_order.runs))
    topics = len({key.ledger.topic for key in in_order.runs})
    row: dict[str, dict[str, float]] = {rule: {} for rule in RULES}
    for share in SHARES:
        max_bytes = round(whole_bytes * share)
        least = belady(in_order, max_bytes).loaded_bytes
        share_runs = share * len(in_order.runs) / topics
        for name, rule in RULES.items():
            joined = WORKLOADS[workload](join=partial(_join, rule, share_runs))
            then = belady(joined, max_bytes).loaded_bytes
            row[name][f"{share:.0%}"] = round(then / least, 3)
    return row


def _join(
    rule: Callable[[list[int], float], int], share_runs: float, others: list[int]
) -> int:
    return rule(others, share_runs)


if __name__ == "__main__":
    record.run("reading_order", measure, ())
