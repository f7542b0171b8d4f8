"""A program for `spark-submit`, which starts the JVM before the program.

    spark-submit --master MASTER submitted_driver.py DIRECTORY

It prints, as JSON, what two sessions, one after the other, have found in a topic.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from tests.spark.jvm_reader_world import metric, rows
from tests.spark.spark_topics import Topic, write


def read(topic: Topic) -> dict[str, object]:
    """Read a topic twice in a session of its own."""
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    spark = sparkcache.configure(builder, jvm_reader=True).getOrCreate()
    expected = rows(topic.load(spark, enabled="false"))
    found = []
    for _ in range(2):
        frame = topic.load(spark)
        found.append((rows(frame) == expected, metric(frame, "Runs")))
    counted = sum(node_metrics(spark).values(), Metrics())
    spark.stop()
    return {
        "is_same": all(is_same for is_same, _ in found),
        "runs_in_jvm": [runs for _, runs in found],
        "rows": expected.total(),
        "received_bytes": counted.received_bytes,
    }


def main(directory: str) -> None:
    topic = write(Path(directory) / "topic")
    print(json.dumps([read(topic) for _ in range(2)]))


if __name__ == "__main__":
    main(sys.argv[1])
