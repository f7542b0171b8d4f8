"""How much of the storage's latency a sequential scan notices, and what is wasted.

    python tests/benchmarks/read_ahead.py [--json] [--save]

A job reads all rows of a topic on local[2], with nothing held beforehand, from an S3
server that answers after 0, 5, 20 or 80 ms. The bound, with all latency hidden, is
the seconds of the same job at 0 ms. Planning is apart. Two topics:

    blocks    512 MiB of values in 8 ledgers of one block each
    small     256 MiB of values in 128 ledgers, each of them one GET

    over_bound_Nms              blocks: seconds / bound
    without_over_bound_20ms     likewise, readAheadBytes=0
    small_...                   the same of the small ledgers
    wasted_bytes_ratio          blocks: what the server sent above the topic / topic
    wasted_bytes_ratio_mixed    loaded ahead and let go of unread / all loaded

In the mixed load a scan is read while four others jump: each time they take a few rows
from a random place on, of a scan that goes on to the topic's end. The cache takes a
quarter of the topic.

Seconds are medians of 5 rounds after a warm-up. In a round the ways alternate, and
every other round takes them in the opposite order.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.testing.s3_server import S3Server
from sparkcache_pulsar.testing import synthetic_topic
from tests.benchmarks import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

BUCKET = "offload"
LATENCIES_MS = (0, 5, 20, 80)
ROUNDS = 5
JUMPERS = 4
JUMPS = 6
ROWS = 20
CONF = "spark.sparkcache."


@dataclass(frozen=True)
class Topic:
    """A topic of the benchmark."""

    name: str
    values_bytes: int
    ledgers: int

    def write(self, server: S3Server) -> int:
        """Put it into the bucket; return the bytes of its data objects."""
        written = 0
        for stored in synthetic_topic(
            self.name, self.values_bytes, ledgers=self.ledgers
        ):
            server.put(BUCKET, stored.key, stored.data, stored.metadata)
            written += 0 if stored.key.endswith("-index") else len(stored.data)
        return written


BLOCKS = Topic("persistent://bench/ahead/blocks", 512 << 20, 8)
SMALL = Topic("persistent://bench/ahead/small", 256 << 20, 128)


def measure() -> dict[str, Any]:
    """Take times, then count bytes."""
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        sizes = {topic: topic.write(server) for topic in (BLOCKS, SMALL)}
        spark = session()
        try:
            bench = ReadAhead(server, spark)
            seconds = {topic: bench.seconds(topic) for topic in (BLOCKS, SMALL)}
            return {
                **ratios("", seconds[BLOCKS]),
                "wasted_bytes_ratio": bench.wasted(BLOCKS, sizes[BLOCKS]),
                "wasted_bytes_ratio_mixed": bench.wasted_mixed(BLOCKS, sizes[BLOCKS]),
                **ratios("small_", seconds[SMALL]),
                "mb_s_blocks": round(sizes[BLOCKS] / seconds[BLOCKS]["0ms"] / 1e6),
                "mb_s_small": round(sizes[SMALL] / seconds[SMALL]["0ms"] / 1e6),
                "seconds": {
                    topic.name.rpartition("/")[2]: {
                        way: round(spent, 3) for way, spent in of_topic.items()
                    }
                    for topic, of_topic in seconds.items()
                },
            }
        finally:
            spark.stop()


def ratios(prefix: str, seconds: dict[str, float]) -> dict[str, float]:
    """Return seconds as multiples of the bound."""
    return {
        f"{prefix}{'without_' if way.startswith('without') else ''}over_bound_"
        f"{way.removeprefix('without_')}": round(spent / seconds["0ms"], 3)
        for way, spent in seconds.items()
        if way != "0ms"
    }


def session() -> SparkSession:
    """Start Spark with two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        sparkcache.configure(SparkSession.builder.master("local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


class ReadAhead:
    """A bucket and a session."""

    def __init__(self, server: S3Server, spark: SparkSession) -> None:
        self._server = server
        self._spark = spark

    def seconds(self, topic: Topic) -> dict[str, float]:
        """Return the median seconds of each way, in turns."""
        ways = {f"{ms}ms": (ms, CONFIGURED) for ms in LATENCIES_MS}
        ways["without_20ms"] = (20, "0")
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(ROUNDS + 1):
            names = list(ways) if turn % 2 else list(reversed(ways))
            for name in names:  # none of them is always the first
                ms, ahead = ways[name]
                if self.set("readAheadBytes", ahead):
                    self.scan(topic, 0)  # connections are made, or given up
                seconds = self.scan(topic, ms)
                if turn:
                    spent[name].append(seconds)
        self.set("readAheadBytes", CONFIGURED)
        return {name: statistics.median(times) for name, times in spent.items()}

    def scan(self, topic: Topic, latency_ms: int) -> float:
        """Read a topic, of which nothing is held before or after; return seconds."""
        self._server.behave(latency_s=latency_ms / 1000)
        spent = self.read(topic, lambda: seconds_of_last_job(self._spark))
        self._server.behave()
        return spent

    def read(self, topic: Topic, then: Callable[[], float]) -> float:
        """Read a topic as planned; return what `then` says before the plan is over."""
        rows = self.rows(topic)
        with sparkcache.plan(rows):
            rows.write.format("noop").mode("overwrite").save()
            return then()

    def wasted(self, topic: Topic, topic_bytes: int) -> float:
        """Return which share of a topic the server sends in vain."""
        self._server.forget()
        self.scan(topic, 20)
        return round(self.sent() / topic_bytes - 1, 5)

    def wasted_mixed(self, topic: Topic, topic_bytes: int) -> float:
        """Return which share of what is loaded is loaded ahead and never read."""
        self.set("maxBytes", str(topic_bytes // 4))
        self.set("ttlCreate", "1s")
        before = self.metrics()
        with ThreadPoolExecutor(1 + JUMPERS) as readers:
            done: list[Future[Any]] = [readers.submit(self.read, topic, time.monotonic)]
            done += [readers.submit(self.jump, topic, seed) for seed in range(JUMPERS)]
            for partition_read in done:
                partition_read.result()
        time.sleep(3)  # what nobody reads has outlived its time
        spent = self.metrics() - before
        return round(spent.wasted_bytes / spent.loaded_bytes, 5)

    def jump(self, topic: Topic, seed: int) -> None:
        """Take a few rows, from random places on."""
        pick = random.Random(seed)
        entries = topic.values_bytes // topic.ledgers // (128 << 10)
        for _ in range(JUMPS):
            ledger, entry = pick.randint(1, topic.ledgers), pick.randrange(entries)
            rows = self.rows(topic, startingOffsets=f"{ledger}:{entry}")
            assert len(rows.select("__entryId").take(ROWS)) == ROWS

    def rows(self, topic: Topic, **options: str) -> DataFrame:
        """Return a topic's rows."""
        reader = self._spark.read.format("sparkcache").option("topic", topic.name)
        return reader.options(**options).load(f"s3://{BUCKET}")

    def set(self, name: str, value: str) -> bool:
        """Change a setting of the node, from the next query on; tell if it is one."""
        changes = self._spark.conf.get(CONF + name, None) != value
        self._spark.conf.set(CONF + name, value)
        return changes

    def sent(self) -> int:
        """Return how many bytes of data objects the server has sent."""
        return sum(
            count.sent_bytes
            for key, count in self._server.counts().items()
            if not key.endswith(("/", "-index"))
        )

    def metrics(self) -> Metrics:
        """Return what the node has counted."""
        return sum(node_metrics(self._spark).values(), Metrics())


CONFIGURED = "32m"


def seconds_of_last_job(spark: SparkSession) -> float:
    """Return how long the last job took, without the planning of its query."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    job = context.statusStore().jobsList(None).apply(0)
    end_ms = job.completionTime().get().getTime()
    spent_ms: int = end_ms - job.submissionTime().get().getTime()
    return spent_ms / 1000


if __name__ == "__main__":
    record.run("read_ahead", measure, ("pyspark", "pyarrow", "moto"))
