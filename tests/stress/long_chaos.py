"""Chaos for an hour: several seeds, one after another.

    python tests/stress/long_chaos.py [--json] [--save]

Sums over the seeds of what `chaos.py` reports, and under `seeds` the report for each.

The report of each seed is written to a file in the directory for temporary files at
once. If the run is interrupted, the next one goes on after the last seed there; at the
end the file is removed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.benchmarks import record
from tests.stress.faults import KINDS, log
from tests.stress.steps import STEPS

SEEDS = range(1, 12)
SECONDS = 330
PROGRAM = Path(__file__).with_name("chaos.py")
REPORTS = Path(tempfile.gettempdir(), "sparkcache-long-chaos.jsonl")
SUMS = (
    *("seconds", "faults", "queries", "cancelled", "failed", "wrong_rows"),
    *("samples", "cap_exceeded", "without_node", "leaks"),
)


def measure() -> dict[str, Any]:
    """Return the sums, and the reports by seed."""
    reports = _earlier_reports()
    for seed in SEEDS:
        if seed in reports:
            log(f"seed {seed}: from {REPORTS}")
            continue
        reports[seed] = _run(seed)
        with REPORTS.open("a", encoding="utf-8") as file:
            print(json.dumps(reports[seed]), file=file)
    REPORTS.unlink()
    each = [reports[seed] for seed in SEEDS]
    kinds = Counter(dict.fromkeys(KINDS, 0))
    steps = Counter(dict.fromkeys(STEPS, 0))
    for report in each:
        kinds.update(report["kinds"])
        steps.update(report["steps"])
    return {
        **{name: sum(report[name] for report in each) for name in SUMS},
        "largest_bytes": max(report["largest_bytes"] for report in each),
        "kinds": dict(kinds),
        "steps": dict(steps),
        "seeds": {str(report["seed"]): report for report in each},
    }


def _earlier_reports() -> dict[int, dict[str, Any]]:
    if not REPORTS.exists():
        return {}
    lines = REPORTS.read_text(encoding="utf-8").splitlines()
    return {report["seed"]: report for report in map(json.loads, lines)}


def _run(seed: int) -> dict[str, Any]:
    done = subprocess.run(
        [
            *(sys.executable, str(PROGRAM), "--json"),
            *("--seconds", str(SECONDS), "--seed", str(seed)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


if __name__ == "__main__":
    record.run("long_chaos", measure, ("pyspark", "pyarrow", "msgspec"), "stress")
