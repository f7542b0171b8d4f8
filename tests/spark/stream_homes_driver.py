"""Two streams and a scan of a topic, in an application with two executors.

    python -m tests.spark.stream_homes_driver DIRECTORY

It prints, as JSON, what it found.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.testing.s3_server import S3Server
from sparkcache_pulsar.testing import synthetic_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "persistent://shop/eu/orders"
BUCKET = "offload"
LEDGERS = 12
LEDGER_BYTES = 512 << 10
EXECUTORS = 2
STREAMS = "org.apache.spark.sql.execution.datasources.v2.python"
MOST_CAPABLE = f"{STREAMS}.PythonMicroBatchStreamWithTriggerAvailableNow"


class Application:
    """An application, and the server that its executors read from."""

    def __init__(self, spark: SparkSession, server: S3Server) -> None:
        self.spark = spark
        self._server = server
        self._options = {"topic": TOPIC, "runBytes": "64k"}

    def put_topic(self) -> int:
        """Put a topic into the bucket; return the bytes of its data objects."""
        stored_bytes = 0
        for each in synthetic_topic(
            TOPIC,
            LEDGERS * LEDGER_BYTES,
            ledgers=LEDGERS,
            max_block_bytes=LEDGER_BYTES // 4,
        ):
            self._server.put(BUCKET, each.key, each.data, each.metadata)
            stored_bytes += 0 if each.key.endswith("-index") else len(each.data)
        return stored_bytes

    def scan(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("sparkcache")
        return reader.options(**self._options, **options).load(f"s3://{BUCKET}")

    def start(self, trigger: dict[str, Any], **options: str) -> StreamingQuery:
        reader = self.spark.readStream.format("sparkcache")
        rows = reader.options(**self._options, **options).load(f"s3://{BUCKET}")
        return rows.writeStream.format("noop").trigger(**trigger).start()

    def stream(self, **options: str) -> list[int]:
        """Read all there is; return how many rows each batch had."""
        query = self.start({"availableNow": True}, **options)
        query.awaitTermination()
        return [one.numInputRows for one in query.recentProgress if one.numInputRows]

    def spent(self, before: Metrics) -> dict[str, int]:
        """Return what has been read since then, and what the server has sent."""
        spent = self.metrics() - before
        sent = {
            key: counted.sent_bytes
            for key, counted in self._server.counts().items()
            if not key.endswith(("/", "-index"))
        }
        self._server.forget()
        return {
            "sent_bytes": sum(sent.values()),
            "home_requests": spent.home_requests,
            "away_requests": spent.away_requests,
            "requests": spent.requests,
        }

    def metrics(self) -> Metrics:
        return sum(node_metrics(self.spark).values(), Metrics())

    def await_executors(self) -> None:
        tracker = self.spark.sparkContext._jsc.sc().statusTracker()
        end_s = time.monotonic() + 60
        while len(tracker.getExecutorInfos()) < EXECUTORS + 1:  # with the driver
            assert time.monotonic() < end_s, "the executors do not start"
            time.sleep(0.1)

    def missing_interfaces(self) -> list[str]:
        """Return what Spark may ask of Python's stream, and not of that with homes."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        names = []
        for name in (MOST_CAPABLE, "sparkcache.TopicStream"):
            found = jvm.org.apache.spark.util.Utils.classForName(name, True, False)
            every = jvm.org.apache.commons.lang3.ClassUtils.getAllInterfaces(found)
            names.append({each.getName() for each in every})
        return sorted(names[0] - names[1])


def look(app: Application) -> dict[str, Any]:
    app.await_executors()
    found: dict[str, Any] = {"stored_bytes": app.put_topic()}
    found["missing_interfaces"] = app.missing_interfaces()
    before = app.metrics()
    found["rows"] = [app.stream(maxBytesPerTrigger="2m")]
    found["first"] = app.spent(before)
    before = app.metrics()
    found["rows"].append(app.stream(maxBytesPerTrigger="3m"))
    found["second"] = app.spent(before)
    before = app.metrics()
    found["rows"].append([app.scan().rdd.count()])
    found["scan"] = app.spent(before)
    before = app.metrics()
    found["rows"].append(app.stream(homes="false"))
    found["anywhere"] = app.spent(before)
    return found | stopped(app)


def stopped(app: Application) -> dict[str, Any]:
    """Stop a query while its planner waits, as Spark does by an interrupt."""
    query = app.start({"processingTime": "0 seconds"}, pollInterval="1h")
    while not query.lastProgress:
        query.awaitTermination(0.1)  # type: ignore[arg-type]  # Spark takes it
    query.stop()
    error = query.exception()
    return {"error_of_stopped": None if error is None else str(error)}


def main(directory: str) -> None:
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        spark = sparkcache.configure(
            SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,1024]")
            .config("spark.executor.memory", "512m")
            .config("spark.executor.extraJavaOptions", os.environ["SPARK_SUBMIT_OPTS"])
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", f"{directory}/local")
            .config("spark.sql.streaming.checkpointLocation", f"{directory}/queries")
            .config("spark.sparkcache.maxBytes", "256m")
            .config("spark.sparkcache.ttlCreate", "10m")
            .config("spark.sparkcache.ttlAfterRead", "10m"),
            jvm_reader=True,
        ).getOrCreate()
        logs = Path(os.environ["SPARK_HOME"], "work", spark.sparkContext.applicationId)
        try:
            print(json.dumps(look(Application(spark, server))))
        finally:
            spark.stop()
            shutil.rmtree(logs, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
