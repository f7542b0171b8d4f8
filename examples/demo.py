"""The main job: three consumers of one topic in S3, without a cache and with it.

    python examples/demo.py [--mib 64] [--latency-ms 20] [--json]

Everything runs on this machine: an S3 server (moto), which waits a little before it
answers, as S3 does, and counts what it sends; and Spark with two cores. The topic is
written as a Pulsar broker offloads it. Each consumer reads all of it.

Both ways are first gone once with a small topic. So the seconds told are those of the
jobs: neither the start of Spark is among them nor that of the cache.

The last line of the output is one JSON object; with --json it is all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import report
import shop
from pyspark.sql import SparkSession
from report import MIB, Reading, Way
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.executors import node_metrics
from sparkcache.testing.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

BUCKET = "offload-bucket"
WARM_UP = "persistent://shop/eu/warm-up"
LEDGERS = range(1, 5)
_LOG4J = """
rootLogger.level = error
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""


class Demo:
    """A bucket, a session, and the same job done in several ways."""

    def __init__(
        self, server: S3Server, spark: SparkSession, progress: Progress
    ) -> None:
        self._server = server
        self._spark = spark
        self._progress = progress

    def without(self, topic: str, told: str = "") -> Way:
        """Run the consumers one after another, as they are."""
        frames = self._frames(self._load(topic, enabled="false"))
        began = time.perf_counter()
        readings, asking_s = self._run(frames, told)
        return Way(readings, time.perf_counter() - began - asking_s)

    def with_cache(self, topic: str, told: str = "") -> Way:
        """Run them planned."""
        frames = self._frames(self._load(topic))
        began = time.perf_counter()
        with sparkcache.plan(*frames.values()):
            readings, asking_s = self._run(frames, told)
        return Way(readings, time.perf_counter() - began - asking_s)

    def _load(self, topic: str, **options: str) -> DataFrame:
        return (
            self._spark.read.format("sparkcache")
            .option("topic", topic)
            .option("partitionBytes", "8m")
            .options(**options)
            .load(f"s3://{BUCKET}")
        )

    def _frames(self, orders: DataFrame) -> dict[str, DataFrame]:
        return {name: job(orders) for name, job in shop.CONSUMERS.items()}

    def _run(
        self, frames: dict[str, DataFrame], told: str
    ) -> tuple[list[Reading], float]:
        """Run the consumers; return also how long it took to ask for the counts."""
        shown = self._progress.add_task(told, total=len(frames), visible=bool(told))
        readings, asking_s = [], 0.0
        for name, frame in frames.items():
            asked = time.perf_counter()
            (gets, size_bytes), metrics = self._sent(), self._metrics()
            began = time.perf_counter()
            result = [tuple(row) for row in frame.collect()]
            ended = time.perf_counter()
            (gets_after, bytes_after), used = self._sent(), self._metrics() - metrics
            asking_s += began - asked + time.perf_counter() - ended
            readings.append(
                Reading(
                    name,
                    rows=sum(row[frame.columns.index("orders")] for row in result),
                    runs=used.requests,
                    hits=used.hits + used.prefetch_hits,
                    gets=gets_after - gets,
                    bytes=bytes_after - size_bytes,
                    seconds=ended - began,
                    result=result,
                )
            )
            self._progress.advance(shown)
        return readings, asking_s

    def _metrics(self) -> Metrics:
        return sum(node_metrics(self._spark).values(), Metrics())

    def _sent(self) -> tuple[int, int]:
        """Return GETs and bytes of data objects so far, as the server counts them."""
        counts = [
            count
            for name, count in self._server.counts().items()
            if not name.endswith(("/", "-index"))
        ]
        return sum(c.gets for c in counts), sum(c.sent_bytes for c in counts)


def write_topic(
    server: S3Server, topic: str, size_bytes: int, ledger_ids: range
) -> Iterator[tuple[int, int]]:
    """Put a topic into the bucket; yield data bytes and messages of each ledger."""
    for stored, messages in shop.offloaded(topic, size_bytes, ledger_ids):
        server.put(BUCKET, stored.key, stored.data, stored.metadata)
        if messages:
            yield len(stored.data), messages


def run(mib: int, latency_s: float, progress: Progress, log: Path) -> tuple[Way, ...]:
    """Write the topic; read it both ways. Return them, and what was written."""
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        shown = progress.add_task("writing the topic", total=len(LEDGERS) + 1)
        list(write_topic(server, WARM_UP, mib * MIB // 8, range(100, 101)))
        progress.advance(shown)
        written = []
        for part in write_topic(server, shop.TOPIC, mib * MIB, LEDGERS):
            written.append(part)
            progress.advance(shown)
        server.behave(latency_s=latency_s)
        shown = progress.add_task("starting Spark, warming up", total=3)
        with started_spark(log) as spark:
            progress.advance(shown)
            demo = Demo(server, spark, progress)
            demo.without(WARM_UP)
            progress.advance(shown)
            demo.with_cache(WARM_UP)
            progress.advance(shown)
            server.forget()
            without = demo.without(shop.TOPIC, "reading without a cache")
            with_cache = demo.with_cache(shop.TOPIC, "reading with sparkcache")
    return without, with_cache, written


@contextmanager
def started_spark(log: Path) -> Iterator[SparkSession]:
    """Start a session whose JVM writes to a log, and not between our lines."""
    settings = log.with_suffix(".properties")
    settings.write_text(_LOG4J)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("sparkcache demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dlog4j.configurationFile=file:{settings}",
        )
    )
    with errors_to(log):
        spark = sparkcache.configure(builder).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def errors_to(log: Path) -> Iterator[None]:
    """Let what is started in the block write its standard error to a file."""
    ours = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Three consumers of one topic, without a cache and with it."
    )
    parser.add_argument("--mib", type=int, default=64, help="size of the topic")
    parser.add_argument(
        "--latency-ms",
        type=float,
        default=20.0,
        help="how long the S3 server waits before it answers",
    )
    parser.add_argument("--json", action="store_true", help="print nothing but JSON")
    given = parser.parse_args()
    console = Console(quiet=given.json)
    progress = Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=given.json,
    )
    with tempfile.TemporaryDirectory(prefix="sparkcache-demo-") as directory:
        log = Path(directory) / "spark.log"
        try:
            with progress:
                ways = run(given.mib, given.latency_ms / 1000, progress, log)
            found = report.summary(given.mib, given.latency_ms, *ways)
            fine = report.is_as_promised(found)
        except BaseException:
            fine = False
            raise
        finally:
            if not fine and log.exists():
                sys.stderr.write(log.read_text(errors="replace"))
    for table in report.tables(found):
        console.print(table)
    console.print(report.remarks(found))
    print(json.dumps(found))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
