"""A client of Spark Connect that reads a topic.

    python -m tests.spark.connect_client URL DIRECTORY

It prints, as JSON, the rows of three reads, and how the last one is planned.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from pyspark.sql import SparkSession

from tests.spark.spark_topics import TOPIC


def main(url: str, directory: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    reader = spark.read.format("sparkcache").option("topic", TOPIC)
    topic = reader.option("runBytes", "4k").option("minPartitions", "4").load(directory)
    rows = [len(topic.collect()) for _ in range(3)]
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        topic.explain()
    spark.stop()
    print(json.dumps({"rows": rows, "plan": plan.getvalue()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
