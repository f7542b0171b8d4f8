"""`examples/streaming.py`, with a smaller topic."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_streaming() -> None:
    command = [sys.executable, "examples/streaming.py"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] > found["rows_before"] > 5_000
    assert found["billed_rows"] == found["rows_before"]
    assert found["archived_rows"] == found["rows"]
    assert found["alerts"] == found["alerts_of_one_batch_read"] > 0
    assert found["batches"] >= 3
    # A stream that looks between the upload of data and of their index reads a byte of
    # the data, for when they were written. Two ledgers come while the streams run.
    assert 0 <= found["fetched_bytes"] - found["topic_bytes"] <= 2
