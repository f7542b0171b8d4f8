"""Several executors: each has a node of its own, which ends with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Topic

pytestmark = pytest.mark.spark

PROGRAM = """
import os, sys
from pyspark.sql import SparkSession
import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.executors import node_metrics

name, directory = sys.argv[1:]
spark = sparkcache.configure(
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.executor.memory", "512m")
    .config("spark.executor.extraJavaOptions", os.environ["SPARK_SUBMIT_OPTS"])
    .config("spark.ui.enabled", "false")
).getOrCreate()
sparkcache.install(spark, sparkcache.CacheConfig(max_bytes=64 << 20))
orders = (
    spark.read.format("sparkcache").option("topic", name)
    .option("runBytes", "4k").option("minPartitions", "3").load(directory)
)
with sparkcache.plan(orders, orders):
    rows = orders.count(), orders.count()
    nodes = node_metrics(spark)
left = node_metrics(spark)
loaded = sum(nodes.values(), Metrics()).received_bytes
print("NODES", *nodes)
print("RESULT", len(nodes), *rows, loaded, sum(left.values(), Metrics()).held_bytes)
spark.stop()
"""


@pytest.fixture
def work_dir() -> Iterator[None]:
    """Where Spark puts the executors' files, whatever it is told."""
    directory = Path(pyspark.__file__).parent / "work"
    existed = directory.exists()
    yield
    if not existed:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.usefixtures("work_dir")
def test_every_executor_has_a_node(topic: Topic) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, topic.name, str(topic.directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert "RESULT" in lines, done.stderr
    nodes, first, second, loaded_bytes, held_bytes = map(int, lines["RESULT"])
    assert nodes == 2
    assert first == second == topic.rows
    assert topic.size_bytes <= loaded_bytes <= 2 * topic.size_bytes
    assert held_bytes == 0
    assert not any(Path(directory).exists() for directory in lines["NODES"])
