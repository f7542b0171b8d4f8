"""Five consumers of one topic through Spark: what the S3 server sends, and how long.

    python tests/benchmarks/fan_out.py [--json] [--save]

Five jobs that differ read all rows of a topic of 64 MiB of values in 8 ledgers, on
local[2], from an S3 server that answers after 20 ms, in two ways:

    in turns    one after another
    threads     two jobs after one another beside three others, with fair scheduling

Bytes are those of data objects, counted at the server: index objects and listings
apart, which are 1 % of it.

    bytes_over_topic_full_cache         threads, a cache that holds the topic / topic
    bytes_next_read_over_expected_reads threads, a cache of 25 % of the decoded topic
    bytes_next_read_over_lru            likewise
    seconds_next_read_over_none         in turns, full cache / without a cache
    seconds_next_read_over_persist      / persist(MEMORY_ONLY), filled by the first job

`bytes_over_topic` has both ways; in turns, at 25 %, an oracle would come to 4.0. LRU
lets go of nothing at its last planned read. Byte counts in threads depend on how the
threads get on, so each is the median of 3. Seconds are medians of 5 rounds, in
which the ways alternate, after a warm-up.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F

import sparkcache
from sparkcache.source.driver.node_rpc import node_metrics
from tests.benchmarks import record, remote

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.testing.s3_server import S3Server

TOPIC = "persistent://bench/fan/out"
VALUES_BYTES = 64 << 20
LEDGERS = 8
LATENCY_S = 0.02
ROUNDS = 5
TIMES = 3
CONF = "spark.sparkcache."
POLICIES = ("next-read", "expected-reads", "lru")
JOBS: tuple[Callable[[DataFrame], DataFrame], ...] = (
    lambda rows: rows.agg(F.sum(F.length("value")), F.count("*")),
    lambda rows: rows.filter("hex(substring(value, 1, 1)) < '20'").agg(F.count("*")),
    lambda rows: rows.groupBy("__ledgerId").agg(F.max("__entryId"), F.count("*")),
    lambda rows: rows.agg(F.max("__publishTime"), F.sum(F.crc32("value"))),
    lambda rows: rows.agg(F.min("__sequenceId"), F.max(F.length("value"))),
)


def measure() -> dict[str, Any]:
    """Count bytes, then take times."""
    with remote.bucket() as server:
        topic_bytes = remote.put_topic(server, TOPIC, VALUES_BYTES, LEDGERS)
        server.behave(latency_s=LATENCY_S)
        spark = remote.session()
        spark.conf.set(CONF + "partitionBytes", "4m")
        try:
            return FanOut(server, spark, topic_bytes).measure()
        finally:
            spark.stop()


class FanOut:
    """A bucket, a session, and the same jobs done in several ways."""

    def __init__(self, server: S3Server, spark: SparkSession, topic_bytes: int) -> None:
        self._server = server
        self._spark = spark
        self._topic_bytes = topic_bytes
        self._results = remote.Results()

    def measure(self) -> dict[str, Any]:
        """Return what the benchmark prints."""
        self.in_turns(self.rows(enabled="false"))  # warms up, and says what is right
        full_bytes = self.decoded_bytes()
        over_topic: dict[str, dict[str, float]] = {}
        full = self.settings("next-read", full_bytes * 2)
        over_topic["full cache"] = self.bytes_over_topic(full)
        for policy in POLICIES:
            small = self.settings(policy, full_bytes // 4)
            over_topic[f"{policy}, 25 %"] = self.bytes_over_topic(small)
        next_read = over_topic["next-read, 25 %"]
        seconds = self.seconds(full)
        return {
            "bytes_over_topic_full_cache": over_topic["full cache"]["threads"],
            "bytes_next_read_over_expected_reads": round(
                next_read["threads"] / over_topic["expected-reads, 25 %"]["threads"], 3
            ),
            "bytes_next_read_over_lru": round(
                next_read["threads"] / over_topic["lru, 25 %"]["threads"], 3
            ),
            "seconds_next_read_over_none": round(
                seconds["next-read"] / seconds["none"], 3
            ),
            "seconds_next_read_over_persist": round(
                seconds["next-read"] / seconds["persist"], 3
            ),
            "bytes_over_topic": over_topic,
            "seconds": {way: round(spent, 3) for way, spent in seconds.items()},
            "topic_bytes": self._topic_bytes,
            "decoded_bytes": full_bytes,
        }

    def settings(self, policy: str, max_bytes: int) -> dict[str, str]:
        """Return the settings of a node."""
        return {
            "policy": policy,
            "maxBytes": str(max_bytes),
            "dropAfterLastRead": str(policy != "lru").lower(),
        }

    def decoded_bytes(self) -> int:
        """Find out what the whole topic takes in memory."""
        self.set(self.settings("next-read", 4 << 30))
        rows = self.rows()
        with sparkcache.plan(rows, rows):
            rows.agg(F.sum(F.length("value"))).collect()
            return sum(node.held_bytes for node in node_metrics(self._spark).values())

    def bytes_over_topic(self, settings: dict[str, str]) -> dict[str, float]:
        """Return what the server sends, by way; medians."""
        self.set(settings)
        ways: dict[str, Callable[[DataFrame], None]] = {
            "in turns": self.in_turns,
            "threads": self.in_threads,
        }
        return {
            name: round(
                statistics.median(self.sent(way) for _ in range(TIMES))
                / self._topic_bytes,
                4,
            )
            for name, way in ways.items()
        }

    def seconds(self, settings: dict[str, str]) -> dict[str, float]:
        """Return the median seconds of each way, one job after another."""
        self.set(settings)
        ways: dict[str, Callable[[], None]] = {
            "next-read": lambda: self.in_turns(self.rows()),
            "none": lambda: self.in_turns(self.rows(enabled="false")),
            "persist": self.persisted,
        }
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(ROUNDS + 1):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                if turn:
                    spent[name].append(time.perf_counter() - began)
        return {name: statistics.median(times) for name, times in spent.items()}

    def set(self, settings: dict[str, str]) -> None:
        """Change the node's settings, from the next query on."""
        for key, value in settings.items():
            self._spark.conf.set(CONF + key, value)

    def rows(self, **options: str) -> DataFrame:
        """Return the topic."""
        reader = self._spark.read.format("sparkcache").option("topic", TOPIC)
        reader = reader.option("partitionBytes", "4m").options(**options)
        return reader.load(remote.ROOT)

    def sent(self, way: Callable[[DataFrame], None]) -> int:
        """Return how many bytes of data objects the server sends for all jobs."""
        self._server.forget()
        way(self.rows())
        return remote.sent_bytes(self._server)

    def in_turns(self, rows: DataFrame) -> None:
        """Run the jobs one after another."""
        frames = [job(rows) for job in JOBS]
        with sparkcache.plan(*frames):
            self._results.check([frame.collect() for frame in frames])

    def in_threads(self, rows: DataFrame) -> None:
        """Run two jobs after one another, and beside them three others."""
        frames = [job(rows) for job in JOBS]
        results: dict[int, list[Any]] = {}

        def run(pool: str, *numbers: int) -> None:
            context = self._spark.sparkContext
            context.setLocalProperty("spark.scheduler.pool", pool)
            for number in numbers:
                results[number] = frames[number].collect()

        with sparkcache.plan(*frames):
            threads = [
                threading.Thread(target=run, args=("a", 0, 1)),
                threading.Thread(target=run, args=("b", 2, 3, 4)),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self._results.check([results[number] for number in range(len(frames))])

    def persisted(self) -> None:
        """Run the jobs one after another on what the first one has persisted."""
        rows = self.rows(enabled="false").persist(StorageLevel.MEMORY_ONLY)
        self._results.check([job(rows).collect() for job in JOBS])
        rows.unpersist(blocking=True)


if __name__ == "__main__":
    record.run("fan_out", measure, ("pyspark", "pyarrow", "moto"))
