"""Applications of their own, for tests that need a session that no other test has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_application(
    module: str, *arguments: str | Path, timeout_s: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a module of `tests.spark`; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.spark.{module}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        cwd=ROOT,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable} | environment,
    )
    assert done.returncode == 0, done.stderr
    return done
