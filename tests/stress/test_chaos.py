"""Killed and stopped processes change no result, break no limit, and leave nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.effort import tries
from tests.stress.faults import KINDS
from tests.stress.steps import STEPS

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("chaos.py")


def chaos(seconds: int, seed: int, cluster: str) -> dict[str, Any]:
    """Return what the program reports."""
    done = subprocess.run(
        [
            *(sys.executable, str(PROGRAM), "--json"),
            *("--seconds", str(seconds), "--seed", str(seed), "--cluster", cluster),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, f"{result}\n{done.stderr}"
    assert result["queries"] > 0
    assert result["samples"] > 0
    return result


def test_a_few_faults_of_several_kinds() -> None:
    assert len(chaos(seconds=5, seed=293, cluster="local-cluster")["kinds"]) >= 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, tries(3) + 1))
def test_many_faults(seed: int) -> None:
    result = chaos(seconds=120, seed=seed, cluster="standalone")
    assert result["kinds"].keys() <= KINDS.keys()
    assert len(result["kinds"]) >= 7
    assert result["steps"].keys() <= STEPS.keys()
    assert result["steps"]
