"""The program that starts a node before the first task: what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sparkcache.node.messages import PROTOCOL_VERSION
from tests import leaks

if TYPE_CHECKING:
    from pathlib import Path


def start(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "sparkcache.node.early", str(directory)]
    return subprocess.run(
        [*command, str(os.getpid()), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param(["1"], "expected 1", id="of another version"),
        pytest.param(
            [str(PROTOCOL_VERSION), "spark.sparkcache.maxBytes=much"],
            "maxBytes",
            id="with a wrong setting",
        ),
    ],
)
def test_no_node_is_started(tmp_path: Path, words: list[str], reason: str) -> None:
    done = start(tmp_path, *words)
    assert done.returncode == 1
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_no_node_is_started_where_the_cache_is_off(tmp_path: Path) -> None:
    done = start(tmp_path, str(PROTOCOL_VERSION), "spark.sparkcache.enabled=false")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_two_that_start_at_a_time_start_one_node(tmp_path: Path) -> None:
    for _ in range(2):
        done = start(tmp_path, str(PROTOCOL_VERSION))
        assert (done.returncode, done.stderr) == (0, "")
        (node, _) = leaks.processes_with(f"sparkcache.node {tmp_path}")
    os.kill(node, 15)
    assert leaks.gone(f"sparkcache.node {tmp_path}")
