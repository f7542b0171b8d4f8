"""`examples/pipeline/run.py`, with a smaller topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

ONE_AFTER_ANOTHER = (
    "spark.sql.pipelines.execution.maxConcurrentFlows=1",
    "spark.sparkcache.ttlAfterRead=1ms",  # what is kept is kept for planned readers
)
"""Without a plan, each of the flows fetches the topic again."""


def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "examples/pipeline/run.py", "--mib", "8", *arguments]
    for conf in ONE_AFTER_ANOTHER:
        command += ["--conf", conf]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "SPARK_TESTING": "1"},  # any free port will do
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] > 15_000
    assert found["rows_of"] == dict.fromkeys(
        ("fraud", "billing", "turnover", "archive"), found["rows"]
    )
    return found


@pytest.mark.spark
def test_flows_of_one_topic_are_its_planned_consumers() -> None:
    found = run()
    assert found["fetched_bytes"] == found["topic_bytes"]


@pytest.mark.spark
@pytest.mark.long
def test_the_same_flows_fetch_the_topic_each_without_a_plan() -> None:
    found = run("--unplanned")
    assert found["fetched_bytes"] == found["consumers"] * found["topic_bytes"]
