"""Five consumers on a cluster of four executors: what the S3 server sends.

    python tests/benchmarks/cluster.py [--json] [--save]

A standalone cluster of two workers with two executors each, of one core, reads a topic
of 64 MiB of values in 32 ledgers from an S3 server that answers after 20 ms. Each
executor may hold a quarter of the decoded topic. Five jobs that differ read all rows,
one after another, as planned consumers.

    bytes_over_topic            sent for all jobs / bytes of the topic
    tasks_at_home               share of the runs that tasks asked for at their home
    refetched_over_lost         an executor is killed in the midst of the third job:
                                what was sent beyond the topic / what it was home of
    seconds_over_no_preference  the same jobs, by `spark.locality.wait`: seconds / those
                                with partitions that prefer no executor

Bytes are those of data objects, counted at the server. All but the last are medians of
5 times. Seconds are medians of 5 rounds, in which both ways alternate, after a warm-up.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pyspark.sql import functions as F

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.testing.standalone import Standalone
from tests.benchmarks import record, remote
from tests.benchmarks.fan_out import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.testing.s3_server import S3Server

TOPIC = "persistent://bench/cluster/orders"
VALUES_BYTES = 64 << 20
LEDGERS = 32
EXECUTORS = 4
WORKERS = 2
LATENCY_S = 0.02
ROUNDS = 5
TIMES = 5
WAITS = ("0s", "100ms", "3s")
_CONF = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.cores.max": str(EXECUTORS),
    "spark.sparkcache.partitionBytes": "4m",
}


def measure() -> dict[str, Any]:
    """Count bytes and tasks, then take times."""
    with remote.bucket() as server:
        topic_bytes = remote.put_topic(server, TOPIC, VALUES_BYTES, LEDGERS)
        server.behave(latency_s=LATENCY_S)
        with cluster() as url:
            result: dict[str, Any] = {}
            seconds: dict[str, dict[str, float]] = {}
            for wait in WAITS:
                spark = session(url, wait)
                try:
                    bench = Bench(server, spark, topic_bytes)
                    if wait == WAITS[-1]:  # Spark's default
                        result |= bench.bytes()
                        result |= bench.killed()
                    seconds[wait] = bench.seconds()
                finally:
                    spark.stop()
    ratios = {
        wait: round(spent["homes"] / spent["anywhere"], 3)
        for wait, spent in seconds.items()
    }
    return {
        **result,
        "seconds_over_no_preference": ratios,
        "seconds": seconds,
        "topic_bytes": topic_bytes,
    }


@contextmanager
def cluster() -> Iterator[str]:
    """Start a standalone cluster; yield its URL."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Standalone(Path(directory), WORKERS) as standalone,
    ):
        yield standalone.url


def session(url: str, wait: str) -> SparkSession:
    """Start an application and wait for its executors."""
    spark = remote.session(_CONF | {"spark.locality.wait": wait}, master=url)
    await_executors(spark)
    return spark


def await_executors(spark: SparkSession) -> None:
    """Wait until all executors are there."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    end_s = time.monotonic() + 60
    while len(tracker.getExecutorInfos()) < EXECUTORS + 1:  # with the driver
        assert time.monotonic() < end_s, "the cluster does not start all executors"
        time.sleep(0.1)


class Bench:
    """A bucket, a session on the cluster, and the jobs."""

    def __init__(self, server: S3Server, spark: SparkSession, topic_bytes: int) -> None:
        self._server = server
        self._spark = spark
        self._topic_bytes = topic_bytes
        self._results = remote.Results()
        self._hold(4 << 30)
        self.run(self.rows())  # warms up, and says what is right
        self._held_bytes = self._decoded_bytes()

    def bytes(self) -> dict[str, Any]:
        """Return what is sent, and where tasks ran."""
        self._hold(self._held_bytes // EXECUTORS)
        sent, at_home = [], []
        for _ in range(TIMES):
            before = self._counted()
            sent.append(self._sent())
            spent = self._counted() - before
            placed = spent.home_requests + spent.away_requests
            at_home.append(spent.home_requests / max(placed, 1))
        return {
            "bytes_over_topic": round(statistics.median(sent) / self._topic_bytes, 4),
            "tasks_at_home": round(statistics.median(at_home), 4),
        }

    def killed(self) -> dict[str, Any]:
        """Return what is sent when an executor is lost."""
        self._hold(self._held_bytes)
        ratios = []
        for _ in range(TIMES):
            sent = self._sent(kill=True)
            lost = self._topic_bytes / EXECUTORS
            ratios.append((sent - self._topic_bytes) / lost)
            await_executors(self._spark)
        return {
            "refetched_over_lost": round(statistics.median(ratios), 4),
            "refetched_over_lost_each": [round(ratio, 3) for ratio in ratios],
        }

    def seconds(self) -> dict[str, float]:
        """Return the median seconds with and without preferences."""
        self._hold(self._held_bytes * 2)
        spent: dict[str, list[float]] = {"homes": [], "anywhere": []}
        for turn in range(ROUNDS + 1):
            for way, times in spent.items():
                self._spark.conf.set(
                    "spark.sparkcache.homes", str(way == "homes").lower()
                )
                began = time.perf_counter()
                self.run(self.rows())
                if turn:
                    times.append(time.perf_counter() - began)
        self._spark.conf.unset("spark.sparkcache.homes")
        return {way: round(statistics.median(it), 3) for way, it in spent.items()}

    def rows(self) -> DataFrame:
        """Return the topic."""
        reader = self._spark.read.format("sparkcache").option("topic", TOPIC)
        return reader.load(remote.ROOT)

    def run(self, rows: DataFrame, *, kill: bool = False) -> None:
        """Run the jobs one after another; kill an executor during the third."""
        frames = [job(rows) for job in JOBS]
        with sparkcache.plan(*frames):
            found = []
            for number, frame in enumerate(frames):
                if kill and number == 2:
                    threading.Timer(0.3, kill_executor).start()
                found.append(frame.collect())
            self._results.check(found)

    def _sent(self, *, kill: bool = False) -> int:
        self._server.forget()
        self.run(self.rows(), kill=kill)
        return remote.sent_bytes(self._server)

    def _hold(self, max_bytes: int) -> None:
        self._spark.conf.set("spark.sparkcache.maxBytes", str(max_bytes))

    def _decoded_bytes(self) -> int:
        """Find out what the whole topic takes in memory."""
        rows = self.rows()
        with sparkcache.plan(rows, rows):
            rows.agg(F.sum(F.length("value"))).collect()
            return self._counted().held_bytes

    def _counted(self) -> Metrics:
        return sum(node_metrics(self._spark).values(), Metrics())


def kill_executor() -> None:
    """Kill the JVM of one executor."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                process.kill()
                return
    raise AssertionError("no executor found")


if __name__ == "__main__":
    record.run("cluster", measure, ("pyspark", "pyarrow", "moto"))
