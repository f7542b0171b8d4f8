"""Five planned scans on executors that change after the second.

    python -m tests.spark.homes_driver killed | decommissioned | added

Of three executors one is killed, or decommissioned; or Spark begins with one executor,
and adds two as tasks wait. Prints as JSON what was counted before and after.
"""

from __future__ import annotations

import json
import os
import signal
import sys
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
SIGNALS = {"killed": signal.SIGKILL, "decommissioned": signal.SIGPWR}


def main(change: str) -> None:
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        sizes = {}
        for stored in synthetic_topic(TOPIC, 6 << 20, ledgers=LEDGERS):
            server.put(BUCKET, stored.key, stored.data, stored.metadata)
            if not stored.key.endswith("-index"):
                sizes[f"{BUCKET}/{stored.key}"] = len(stored.data)
        spark = session(change)
        try:
            await_executors(spark, 1 if change == "added" else EXECUTORS)
            rows = spark.read.format("sparkcache").option("topic", TOPIC)
            frame = rows.option("partitionBytes", "512k").load(f"s3://{BUCKET}")
            with sparkcache.plan(*[frame] * 5):
                totals = [read(frame), read(frame)]
                before = sent(server)
                at_home = sum(node_metrics(spark).values(), Metrics())
                if change == "added":
                    await_executors(spark, EXECUTORS)
                else:
                    lose_executor(spark, SIGNALS[change])
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
        "held": held,
    }
    print(json.dumps(found))


def session(change: str) -> SparkSession:
    builder: SparkSession.Builder = SparkSession.builder
    builder = (
        builder.master(f"local-cluster[{EXECUTORS},1,1024]")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", os.environ["SPARK_SUBMIT_OPTS"])
        .config("spark.ui.enabled", "false")
        .config("spark.locality.wait", "1s" if change == "added" else "120s")
        .config("spark.decommission.enabled", "true")
        .config("spark.log.level", "ERROR")
    )
    if change == "added":
        builder = (
            builder.config("spark.dynamicAllocation.enabled", "true")
            .config("spark.dynamicAllocation.shuffleTracking.enabled", "true")
            .config("spark.dynamicAllocation.minExecutors", "1")
            .config("spark.dynamicAllocation.maxExecutors", str(EXECUTORS))
        )
    return sparkcache.configure(builder).getOrCreate()


def await_executors(spark: SparkSession, count: int) -> None:
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    end_s = time.monotonic() + STARTS_S
    while len(tracker.getExecutorInfos()) < count + 1:  # with the driver
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


def lose_executor(spark: SparkSession, with_signal: signal.Signals) -> None:
    """Send a signal to one, and wait until Spark has lost it."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    ports = {info.port() for info in tracker.getExecutorInfos()}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                process.send_signal(with_signal)
                break
    end_s = time.monotonic() + STARTS_S
    while ports <= {info.port() for info in tracker.getExecutorInfos()}:
        assert time.monotonic() < end_s, "no executor was lost"
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1])
