"""What every benchmark does with its result: show it, and keep it if asked to.

    .venv/bin/python tests/benchmarks/NAME.py [--json] [--save] [--before REV]

The last line of standard output is the result as one JSON object with `--json`.
`--save` writes it to `results/NAME.json`, with the command, the date and versions.
Some benchmarks compare with another revision, which `--before` names.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RESULTS = Path(__file__).parent / "results"


def run(
    program: str,
    measure: Callable[..., Mapping[str, Any]],
    packages: tuple[str, ...],
    folder: str = "benchmarks",
    before: str = "",
) -> None:
    """Measure, and report as the command line says.

    Args:
        program: The name of the benchmark.
        measure: Returns the result; gets the other revision, if there is one.
        packages: Whose versions to note.
        folder: Where the benchmark is, below `tests`.
        before: The other revision, unless the command line names one.

    """
    parser = argparse.ArgumentParser(description=f"The benchmark {program}.")
    parser.add_argument("--json", action="store_true", help="JSON alone")
    parser.add_argument("--save", action="store_true", help=f"write {program}.json")
    if before:
        parser.add_argument("--before", default=before, metavar="REV")
    chosen = parser.parse_args()
    result = dict(measure(chosen.before) if before else measure())
    if chosen.save:
        record = {
            "program": program,
            "command": f".venv/bin/python tests/{folder}/{program}.py --json --save",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "cores": len(os.sched_getaffinity(0)),
            "versions": {"python": platform.python_version()}
            | {package: version(package) for package in packages},
            "result": result,
        }
        path = RESULTS / f"{program}.json"
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if not chosen.json:
        for name, value in result.items():
            print(f"{name:28} {value}")
    print(json.dumps(result))
