"""`make demo`, with a smaller topic."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_demo() -> None:
    options = ["--mib", "16", "--latency-ms", "0", "--warm-ups", "0"]
    command = [sys.executable, "examples/demo.py", *options]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    *shown, last = done.stdout.splitlines()
    assert any("Rows are equal" in line for line in shown)
    found = json.loads(last)
    assert found["consumers"] == 3
    assert found["rows"] > 16_000
    assert found["rows_equal"] is True
    assert found["topic_bytes"] > 16 << 20
    assert found["bytes_without"] == 3 * found["topic_bytes"]
    assert found["bytes_with"] == found["topic_bytes"]
    assert found["gets_without"] == 3 * found["gets_with"] > 0
    assert found["runs"] > found["gets_with"]
    assert all(reading["rows"] == found["rows"] for reading in found["with"])
    _, *later = found["with"]
    assert all(reading["hits"] == found["runs"] for reading in later)
    assert found["seconds_with"] > 0
    assert found["seconds_without"] > 0
