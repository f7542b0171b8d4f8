"""Five planned scans on three executors, of which one is killed after the second.

Prints as JSON what was counted before and after.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.testing.s3_server import S3Server
from sparkcache_pulsar.testing import synthetic_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXECUTORS = 3
LEDGERS = 24
TOPIC = "persistent://shop/eu/homes"
BUCKET = "homes"
STARTS_S = 90.0


def main() -> None:
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        sizes = {}
        for stored in synthetic_topic(TOPIC, 6 << 20, ledgers=LEDGERS):
            server.put(BUCKET, stored.key, stored.data, stored.metadata)
            if not stored.key.endswith("-index"):
                sizes[f"{BUCKET}/{stored.key}"] = len(stored.data)
        spark = session()
        try:
            await_executors(spark)
            rows = spark.read.format("sparkcache").option("topic", TOPIC)
            frame = rows.option("partitionBytes", "512k").load(f"s3://{BUCKET}")
            with sparkcache.plan(*[frame] * 5):
                totals = [read(frame), read(frame)]
                before = sent(server)
                at_home = sum(node_metrics(spark).values(), Metrics())
                lost = kill_executor(spark)
                totals += [read(frame), read(frame), read(frame)]
                after = sent(server)
                held = [node.held_bytes for node in node_metrics(spark).values()]
        finally:
            spark.stop()
    found = {
        "sizes": sizes,
        "totals": totals,
        "before": before,
        "after": after,
        "home_requests": at_home.home_requests,
        "requests": at_home.requests,
        "lost": lost,
        "held": held,
    }
    print(json.dumps(found))


def session() -> SparkSession:
    builder: SparkSession.Builder = SparkSession.builder
    builder = (
        builder.master(f"local-cluster[{EXECUTORS},1,1024]")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", os.environ["SPARK_SUBMIT_OPTS"])
        .config("spark.ui.enabled", "false")
        .config("spark.locality.wait", "30s")
        .config("spark.log.level", "ERROR")
    )
    return sparkcache.configure(builder).getOrCreate()


def await_executors(spark: SparkSession) -> None:
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    end_s = time.monotonic() + STARTS_S
    while len(tracker.getExecutorInfos()) < EXECUTORS + 1:  # with the driver
        assert time.monotonic() < end_s, "the executors do not start"
        time.sleep(0.1)


def read(frame: DataFrame) -> int:
    (total,) = frame.agg(F.sum(F.length("value"))).collect()[0]
    return int(total)


def sent(server: S3Server) -> dict[str, int]:
    return {
        key: count.gets
        for key, count in server.counts().items()
        if not key.endswith(("/", "-index"))
    }


def kill_executor(spark: SparkSession) -> int:
    """Kill one, wait until Spark knows, and return how many are left at once."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    ports = {info.port() for info in tracker.getExecutorInfos()}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                process.kill()
                break
    end_s = time.monotonic() + STARTS_S
    while ports <= {info.port() for info in tracker.getExecutorInfos()}:
        assert time.monotonic() < end_s, "no executor was lost"
        time.sleep(0.05)
    return len(tracker.getExecutorInfos()) - 1


if __name__ == "__main__":
    main()
