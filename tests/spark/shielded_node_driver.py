"""An application whose JVM may not open the memory of its node.

    python -m tests.spark.shielded_node_driver DIRECTORY

The processes of the node are undumpable, as they are where the file of Python has
capabilities. The JVM lacks the capability that would open them all the same. It prints,
as JSON, what it found in three reads of a topic.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from tests.spark.jvm_reader_world import IN_JVM, metric, plan_of, rows
from tests.spark.spark_topics import write

_SHIELD = """
import ctypes, sys
if "sparkcache.node" in sys.orig_argv:
    ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
"""
_PR_CAPBSET_DROP, _CAP_SYS_PTRACE = 24, 19


def main(directory: str) -> None:
    Path(directory, "sitecustomize.py").write_text(_SHIELD)
    os.environ["PYTHONPATH"] = f"{directory}:{os.environ['PYTHONPATH']}"
    # Without root's capabilities this fails, and nothing has to be dropped.
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_SYS_PTRACE, 0, 0, 0)
    topic = write(Path(directory) / "topic")
    spark = sparkcache.configure(
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false"),
        jvm_reader=True,
    ).getOrCreate()
    expected = rows(topic.load(spark, enabled="false"))
    topic.load(spark).count()  # so that a node is there
    found = []
    for _ in range(3):
        before = sum(node_metrics(spark).values(), Metrics())
        frame = topic.load(spark, minPartitions="4")
        counted = rows(frame)
        assert IN_JVM in plan_of(frame)
        found.append(
            {
                "is_same": counted == expected,
                "rows": counted.total(),
                "in_python": metric(frame, "PythonRows"),
                "in_jvm": metric(frame, "Runs"),
                "hits": sum(node_metrics(spark).values(), Metrics()).hits - before.hits,
            }
        )
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
