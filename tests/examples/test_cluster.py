"""`examples/cluster.py`, with a smaller topic."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "examples/cluster.py", "--mib", "12", "--latency-ms", "0"]
LIMIT_S = 600


@pytest.mark.spark
def test_cluster() -> None:
    done = subprocess.run(
        COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    *shown, last = done.stdout.splitlines()
    assert any("Rows are equal" in line for line in shown)
    found = json.loads(last)
    assert (found["executors"], found["consumers"]) == (3, 3)
    assert found["rows"] > 12_000
    assert found["rows_equal"] is True
    assert found["topic_bytes"] > 12 << 20
    assert found["bytes_without"] == 3 * found["topic_bytes"]
    assert found["topic_bytes"] <= found["bytes_without_homes"]
    assert found["bytes_with"] == found["topic_bytes"]
    assert found["home_requests"] > 0
    assert (found["away_requests"], found["away_bytes"]) == (0, 0)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("with_signal", [signal.SIGINT, signal.SIGTERM])
def test_the_cluster_ends_with_the_program(with_signal: signal.Signals) -> None:
    example = psutil.Popen(
        COMMAND,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # As in a terminal. What a shell starts with & ignores Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    started = wait_for_executors(example)
    example.send_signal(with_signal)
    assert example.wait(LIMIT_S) != 0
    _, left = psutil.wait_procs(started, timeout=30)
    assert left == []


def wait_for_executors(example: psutil.Popen) -> list[psutil.Process]:
    """Wait until all executors have started; return all processes."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s and example.poll() is None:
        started = example.children(recursive=True)
        commands = []
        for process in started:
            with suppress(psutil.Error):
                commands.append(" ".join(process.cmdline()))
        if sum("CoarseGrainedExecutorBackend" in each for each in commands) == 3:
            return list(started)
        time.sleep(0.1)
    raise AssertionError("the cluster does not start all executors")
