"""Whose end a node waits for, in a container where it has a low process id."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CONTAINER = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
WORKER = "from sparkcache.node.lifetime import executor_pid; print(executor_pid())"
JVM = f"""
import pathlib, subprocess, sys
pathlib.Path("/proc/self/comm").write_text("java")
subprocess.run([sys.executable, "-c", {WORKER!r}], check=True)
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(JVM, id="the JVM is the first process"),
        pytest.param(WORKER, id="the task itself is the first process"),
    ],
)
def test_the_first_process_of_a_container_may_be_the_executor(code: str) -> None:
    try:
        subprocess.run([*CONTAINER, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no container can be made here: {error}")
    done = subprocess.run(
        [*CONTAINER, sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stdout.strip() == "1"
