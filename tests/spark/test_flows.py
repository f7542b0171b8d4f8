"""Flows of declarative pipelines are planned consumers, which nobody has named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkcache.demand import NOT_BEGUN
from sparkcache.source.spark_version import has_spark
from sparkcache.trace import Begin, Over, parse
from tests.needs import SPARK_4_1, SPARK_4_2
from tests.spark.spark_topics import consumers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.spark_topics import Topic

pytestmark = pytest.mark.spark

DRIVER = Path(__file__).with_name("pipeline_driver.py")


@SPARK_4_2
@pytest.mark.parametrize(("starts", "scans"), [("earliest", 1), ("latest", 0)])
def test_a_stream_has_scans_before_it_runs(
    spark: SparkSession, topic: Topic, starts: str, scans: int
) -> None:
    options = {"topic": topic.name, "startingOffsets": starts}
    rows = spark.readStream.format("sparkcache").options(**options)
    found = consumers_of(rows.load(str(topic.directory)).filter("__entryId > 3"))
    assert len(found) == scans


@SPARK_4_1
@pytest.mark.skipif(find_spec("grpc") is None, reason="needs pyspark[pipelines]")
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
    streams = [NOT_BEGUN] if has_spark("4.2") else []
    assert found["every"][:3] == ["completed", 1 + len(streams), 0]
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
    assert [plan.batch for plan in planned] == [0, *streams, 0, 0]
    consumers = [len(plan.consumers) for plan in planned]
    assert consumers == [4, *(1 for _ in streams), 1, 2]
    assert len({plan.id for plan in begun if plan.is_stream}) == len(streams)
    over = [name for it in events if isinstance(it, Over) for name in it.plan_ids]
    assert {plan.id for plan in planned} == set(over)
