"""Flows of declarative pipelines are planned consumers, which nobody has named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkcache.consumers import NOT_BEGUN
from sparkcache.source.planning import scans_of
from sparkcache.trace import Begin, Over, parse

if TYPE_CHECKING:
    from conftest import Topic
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DRIVER = Path(__file__).with_name("pipeline_driver.py")


@pytest.mark.parametrize(("starts", "scans"), [("earliest", 1), ("latest", 0)])
def test_a_stream_has_scans_before_it_runs(
    spark: SparkSession, topic: Topic, starts: str, scans: int
) -> None:
    options = {"topic": topic.name, "startingOffsets": starts}
    rows = spark.readStream.format("sparkcache").options(**options)
    found = scans_of(rows.load(str(topic.directory)).filter("__entryId > 3"))
    assert len(found) == scans


@pytest.mark.long
def test_what_a_run_refreshes_is_planned_as_long_as_it_lasts(
    topic: Topic, tmp_path: Path
) -> None:
    command = [sys.executable, str(DRIVER), str(topic.directory), topic.name]
    done = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "SPARK_TESTING": "1", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["dry"] == ["completed", 0, 0, 0]
    assert found["every"][:3] == ["completed", 2, 0]
    assert found["part"] == ["completed", 1, 0, 0]
    outcome, planned, _, held = found["failing"]
    assert "[USER_RAISED_EXCEPTION] no" in outcome
    assert (planned, held) == (1, 0)
    outcome, planned, _, held = found["unresolved"]
    assert "Failed to resolve flows" in outcome
    assert (planned, held) == (0, 0)

    (trace,) = (tmp_path / "trace").iterdir()
    events = [event for _, event in parse(trace.read_text().splitlines()).events]
    begun = [event.plan for event in events if isinstance(event, Begin)]
    planned = [plan for plan in begun if not plan.is_stream]
    assert [plan.batch for plan in planned] == [0, NOT_BEGUN, 0, 0]
    assert [len(plan.consumers) for plan in planned] == [4, 1, 1, 2]
    assert len({plan.id for plan in begun if plan.is_stream}) == 1
    over = [name for it in events if isinstance(it, Over) for name in it.plan_ids]
    assert {plan.id for plan in planned} == set(over)
