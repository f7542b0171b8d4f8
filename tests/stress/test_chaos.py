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

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("chaos.py")


def chaos(seconds: int, seed: int) -> dict[str, Any]:
    """Return what the program reports."""
    done = subprocess.run(
        [
            *(sys.executable, str(PROGRAM), "--json"),
            *("--seconds", str(seconds), "--seed", str(seed)),
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
    assert len(chaos(seconds=14, seed=171)["kinds"]) >= 5


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, tries(3) + 1))
def test_many_faults(seed: int) -> None:
    kinds = chaos(seconds=120, seed=seed)["kinds"]
    assert kinds.keys() <= KINDS.keys()
    assert len(kinds) >= 7
