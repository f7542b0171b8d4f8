"""An application whose executor has a temporary directory with a long path.

    python -m tests.spark.long_paths_driver DIRECTORY

So it is in a container of YARN. It prints, as JSON, the runs that the JVM has read in
each of two reads, and the executors whose nodes are known to the driver.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparkcache
from tests.spark.jvm_reader_world import is_same_in_python, metric
from tests.spark.spark_topics import write


def main(directory: str) -> None:
    temporary = Path(directory, "container_1700000000000_0001_01_000002" * 3, "tmp")
    temporary.mkdir(parents=True)
    options = f"{os.environ['SPARK_SUBMIT_OPTS']} -Djava.io.tmpdir={temporary}"
    spark = sparkcache.configure(
        SparkSession.builder.master("local-cluster[1,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", options)
        .config("spark.python.unix.domain.socket.dir", "/tmp"),
        jvm_reader=True,
    ).getOrCreate()
    topic = write(Path(directory) / "topic")
    is_same_in_python(lambda **options: topic.load(spark, **options))
    runs = []
    for _ in range(2):
        frame = topic.load(spark)
        frame.collect()
        runs.append(metric(frame, "Runs"))
    logs = Path(os.environ["SPARK_HOME"], "work", spark.sparkContext.applicationId)
    spark.stop()
    left = [path.name for path in (*temporary.iterdir(), *logs.glob("*/sc*/d"))]
    shutil.rmtree(logs)  # of its executors; the home outlasts it
    print(json.dumps({"runs_in_jvm": runs, "left": left}))


if __name__ == "__main__":
    main(sys.argv[1])
