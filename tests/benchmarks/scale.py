"""What is large must not cost: many ledgers, many consumers, small objects.

    .venv/bin/python tests/benchmarks/scale.py [--json] [--save]

The results of several programs in one: each of them has a `measure` of its own, says in
its docstring what it measures, and can be run alone.

    scale_planning   plan_s_100k, plan_again_s_100k, plan_mb
    scale_plans      plan_ms_one, plan_five_over_one, partition_bytes, stage_mb_20k
    scale_small      small_ledgers_s_cold, small_ledgers_s_warm
"""

from __future__ import annotations

from typing import Any

from tests.benchmarks import record, scale_planning, scale_plans, scale_small

PARTS = (scale_planning, scale_plans, scale_small)


def measure() -> dict[str, Any]:
    """Measure with each program in turn."""
    result: dict[str, Any] = {}
    for part in PARTS:
        result |= part.measure()
    return result


if __name__ == "__main__":
    packages = dict.fromkeys(name for part in PARTS for name in part.PACKAGES)
    record.run("scale", measure, tuple(packages))
