"""Programs that `spark-submit` runs: their JVM is there before they configure it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import SPARK_4_1
from tests.spark import submitted_driver
from tests.spark.applications import ROOT
from tests.spark.spark_topics import ENTRIES, LEDGER_IDS, MESSAGES

pytestmark = pytest.mark.spark


@SPARK_4_1
@pytest.mark.usefixtures("jdk")
def test_a_submitted_program_has_the_plugin_and_the_reader(tmp_path: Path) -> None:
    program = Path(os.environ["SPARK_HOME"]) / "bin" / "spark-submit"
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [program, "--master", "local[2]", submitted_driver.__file__, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    for session in json.loads(done.stdout.splitlines()[-1]):
        assert session["is_same"]
        assert session["rows"] == len(LEDGER_IDS) * ENTRIES * MESSAGES
        assert min(session["runs_in_jvm"]) > 0
        assert session["received_bytes"] > 0
