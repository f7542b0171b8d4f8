"""Four streams and a back-fill of one topic: what the S3 server sends, and how fast.

    python tests/benchmarks/streams.py [--json] [--save]

Five consumers that begin right after one another read all of a topic of 32 MiB of
values in 6 ledgers, on local[2] with fair scheduling, from an S3 server that answers
after 20 ms: four queries in batches of a quarter of the topic, `Trigger.AvailableNow`,
to the noop sink, and a planned job. What was read is held for 60 s, since Spark takes
seconds to start each, and nobody knows of a query before its first task. With the node,
and with `enabled=false`.

    bytes_over_topic        bytes of data objects that the server sends / the topic's
    rows_s_over_uncached    rows a second of all five, with the node / without

Medians of 5 rounds, in which the two ways alternate, after a warm-up. Seconds are from
the start of the first to the end of the last consumer, checkpoints included.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import sparkcache
from tests.benchmarks import record, remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from sparkcache.testing.s3_server import S3Server

TOPIC = "persistent://bench/streams/orders"
EMPTYING = "persistent://bench/streams/other"
VALUES_BYTES = 32 << 20
LEDGERS = 6
LATENCY_S = 0.02
ROUNDS = 5
STREAMS = 4
BATCHES = 4
WAYS = {"node": "true", "without": "false"}
MAX_BYTES = "spark.sparkcache.maxBytes"


def measure() -> dict[str, Any]:
    """Count bytes, and take times."""
    with (
        remote.bucket() as server,
        tempfile.TemporaryDirectory(prefix="streams-") as directory,
    ):
        topic_bytes = remote.put_topic(server, TOPIC, VALUES_BYTES, LEDGERS)
        remote.put_topic(server, EMPTYING, 1 << 20, 1)
        server.behave(latency_s=LATENCY_S)
        spark = remote.session()
        sparkcache.install(spark, sparkcache.CacheConfig(ttl_after_read_s=60))
        try:
            return Streams(server, spark, topic_bytes, Path(directory)).measure()
        finally:
            spark.stop()


class Streams:
    """A bucket, a session, and the same consumers in two ways."""

    def __init__(
        self, server: S3Server, spark: SparkSession, topic_bytes: int, directory: Path
    ) -> None:
        self._server = server
        self._spark = spark
        self._topic_bytes = topic_bytes
        self._directory = directory
        self._numbers = count()

    def measure(self) -> dict[str, Any]:
        """Return what the benchmark prints."""
        sent: dict[str, list[int]] = {way: [] for way in WAYS}
        spent: dict[str, list[float]] = {way: [] for way in WAYS}
        rows = 0
        for turn in range(ROUNDS + 1):
            for way, enabled in WAYS.items():
                self.empty()
                self._server.forget()
                began = time.perf_counter()
                rows = self.consume(enabled)
                if turn:
                    spent[way].append(time.perf_counter() - began)
                    sent[way].append(remote.sent_bytes(self._server))
        seconds = {way: statistics.median(times) for way, times in spent.items()}
        over_topic = {
            way: round(statistics.median(counts) / self._topic_bytes, 4)
            for way, counts in sent.items()
        }
        return {
            "bytes_over_topic": over_topic["node"],
            "rows_s_over_uncached": round(seconds["without"] / seconds["node"], 3),
            "bytes_over_topic_uncached": over_topic["without"],
            "bytes_over_topic_worst": round(max(sent["node"]) / self._topic_bytes, 4),
            "rows_s": round(rows / seconds["node"]),
            "seconds": {way: round(taken, 3) for way, taken in seconds.items()},
            "topic_bytes": self._topic_bytes,
        }

    def consume(self, enabled: str) -> int:
        """Run all five; return how many rows they have read."""
        found: list[int] = []
        job = self.rows(enabled).agg(F.sum(F.length("value")), F.count("*"))

        def back_fill() -> None:
            with sparkcache.plan(job):
                found.append(job.collect()[0][1])

        queries = [self.start(enabled) for _ in range(STREAMS)]
        thread = threading.Thread(target=back_fill)
        thread.start()
        for query in queries:
            query.awaitTermination()
            found.append(sum(it["numInputRows"] for it in query.recentProgress))
        thread.join()
        assert len(set(found)) == 1, found
        return sum(found)

    def start(self, enabled: str) -> StreamingQuery:
        """Start a stream."""
        reader = self._spark.readStream.format("sparkcache").option("topic", TOPIC)
        reader = reader.option("maxBytesPerTrigger", self._topic_bytes // BATCHES)
        rows = reader.option("enabled", enabled).load(remote.ROOT)
        checkpoint = self._directory / str(next(self._numbers))
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        # Spark gives the process that plans a stream 10 s to start, too little for
        # four at once on two busy cores.
        while "Initializing" in query.status["message"]:
            query.awaitTermination(0.02)  # type: ignore[arg-type]  # Spark takes it
        return query

    def rows(self, enabled: str, topic: str = TOPIC) -> DataFrame:
        """Return a topic."""
        reader = self._spark.read.format("sparkcache").option("topic", topic)
        return reader.option("enabled", enabled).load(remote.ROOT)

    def empty(self) -> None:
        """Have the node let go of everything."""
        held = self._spark.conf.get(MAX_BYTES)
        assert held is not None
        self._spark.conf.set(MAX_BYTES, "0")
        self.rows("true", EMPTYING).count()
        self._spark.conf.set(MAX_BYTES, held)


if __name__ == "__main__":
    record.run("streams", measure, ("pyspark", "pyarrow", "moto"))
