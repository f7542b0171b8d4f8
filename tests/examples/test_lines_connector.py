"""`examples/lines_connector`: its own tests, and the package as it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "lines_connector"

READ = """
import json, sys
from pyspark.sql import SparkSession
import sparkcache
from sparkcache.source.spark_version import has_spark

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = sparkcache.configure(builder).getOrCreate()
reader = spark.read.format("sparkcache").option("connector", "lines")
orders = reader.option("topic", "orders").load(sys.argv[1])
with sparkcache.plan(orders, orders):
    lines = [tuple(row) for row in orders.collect()]
    count = orders.count()
(node,) = sparkcache.stats(spark).collect()
rest = reader.option("startingOffsets", '{"orders": "1:6"}').load(sys.argv[1])
later = sorted(row.line for row in rest.collect())
streamed = None
if has_spark("4.2"):
    stream = spark.readStream.format("sparkcache").option("connector", "lines")
    rows = stream.option("topic", "orders").load(sys.argv[1])
    query = rows.writeStream.format("memory").queryName("streamed")
    query.trigger(availableNow=True).start().awaitTermination()
    streamed = spark.table("streamed").count()
print(json.dumps([lines, count, node["gets"], later, streamed]))
spark.stop()
"""


def test_its_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        command,
        cwd=EXAMPLE,
        env={**os.environ, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def python_path(*first: Path) -> str:
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(filter(None, [*map(str, first), str(ROOT), *others]))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of packages with the example's wheel, as pip would install it."""
    monkeypatch.chdir(EXAMPLE)
    packages = tmp_path / "packages"
    with zipfile.ZipFile(tmp_path / build_wheel(str(tmp_path))) as wheel:
        wheel.extractall(packages)
    return packages


@pytest.mark.spark
def test_spark_reads_lines(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "texts" / "orders"
    folder.mkdir(parents=True)
    (folder / "1.txt").write_text("first\nsecond\nthird\n")
    (folder / "2.txt").write_text("fourth")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "texts")],
        env={**os.environ, "PYTHONPATH": python_path(installed)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines, count, gets, rest, streamed = json.loads(done.stdout.splitlines()[-1])
    assert sorted(lines) == [
        [1, 0, "first"],
        [1, 6, "second"],
        [1, 13, "third"],
        [2, 0, "fourth"],
    ]
    assert count == 4
    assert gets == 2, "each file is fetched once"
    assert streamed in (4, None)
    assert rest == ["fourth", "second", "third"]
