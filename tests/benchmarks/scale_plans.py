"""What plans of several queries cost, and what a scan sends to its tasks.

    .venv/bin/python tests/benchmarks/scale_plans.py [--json] [--save]

Plans are those of five jobs over one topic of 8 ledgers, in a bucket that answers after
20 ms. Each round makes new DataFrames. Medians of 7 rounds after two to warm up:

    plan_ms_one         `plan()` of one job, beyond Spark's own planning of `range`
    plan_five_over_one  `plan()` of five / of one, both as they are
    plan_ms, five_ms, range_ms
                        what these are made of

What travels is what Spark serializes: the partition of a task, and once for a stage its
code and the broadcast variables of its scan. Topics have 2,000 ledgers: of 10 blocks of
64 MiB each, so that there are 20,000 partitions, or of one, which is a partition. Their
index objects are real, and no task runs. In Python alone, a partition of smaller
ledgers takes some 50 bytes more for each.

    partition_bytes     the largest partition, of `bytes_of`
    bytes_of            by the size of ledgers, through the JVM and in Python alone, in
                        a scan and in a stream's first batch: the largest of 200
    stage_mb_20k        all that a scan of 20,000 partitions sends, the larger of both
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import sparkcache
from sparkcache.source.driver.registration import name_of_installed
from sparkcache.source.planning.query_plans import elements
from sparkcache_pulsar.testing import index_object, ledger_metadata
from tests.benchmarks import record, remote
from tests.benchmarks.fan_out import JOBS, LATENCY_S, LEDGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

PACKAGES = ("pyspark", "boto3", "obstore", "moto")
TOPIC = "persistent://bench/scale/plans"
VALUES_BYTES = 1 << 20
ROUNDS = 7
WARM_UP = 2
MANY_LEDGERS = 2_000
ENTRY_BYTES = 100 << 10
BLOCKS_OF = {"640 MiB": [64 << 20] * 10, "64 MiB": [64 << 20]}
LARGEST = "640 MiB"
SAMPLE = 200


def measure() -> dict[str, Any]:
    """Take times, then sizes."""
    with remote.bucket() as server:
        remote.put_topic(server, TOPIC, VALUES_BYTES, LEDGERS)
        server.behave(latency_s=LATENCY_S)
        spark = remote.session({"spark.sql.adaptive.enabled": "false"})
        try:
            sparkcache.install(spark)
            return times(spark) | sizes(spark)
        finally:
            spark.stop()


def times(spark: SparkSession) -> dict[str, Any]:
    """Return how long plans take."""
    spent: dict[str, list[float]] = {"plan": [], "five": [], "range": []}
    for turn in range(WARM_UP + ROUNDS):
        rows = _rows(spark)
        taken = {
            "plan": _planned_ms([JOBS[turn % len(JOBS)](rows)]),
            "range": _optimized_ms(spark.range(9).filter("id > 3").agg(F.sum("id"))),
        }
        rows = _rows(spark)
        taken["five"] = _planned_ms([job(rows) for job in JOBS])
        if turn >= WARM_UP:
            for name, ms in taken.items():
                spent[name].append(ms)
    median = {name: statistics.median(values) for name, values in spent.items()}
    return {
        "plan_ms_one": round(median["plan"] - median["range"], 1),
        "plan_five_over_one": round(median["five"] / median["plan"], 2),
        "plan_ms": round(median["plan"], 1),
        "five_ms": round(median["five"], 1),
        "range_ms": round(median["range"], 1),
    }


def _rows(spark: SparkSession) -> DataFrame:
    return spark.read.format("sparkcache").option("topic", TOPIC).load(remote.ROOT)


def _planned_ms(frames: list[DataFrame]) -> float:
    began = time.perf_counter()
    with sparkcache.plan(*frames):
        return (time.perf_counter() - began) * 1e3


def _optimized_ms(frame: DataFrame) -> float:
    plan: Any = frame._jdf
    began = time.perf_counter()
    plan.queryExecution().optimizedPlan()
    return (time.perf_counter() - began) * 1e3


def sizes(spark: SparkSession) -> dict[str, Any]:
    """Return how much travels."""
    doors = {"jvm": "sparkcache", "python": name_of_installed(spark)}
    bytes_of: dict[str, dict[str, int]] = {}
    stage_mb: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="plans-") as name:
        for size, blocks in BLOCKS_OF.items():
            directory = Path(name) / size
            write_topic(directory, blocks)
            found = bytes_of.setdefault(size, {})
            for door, source in doors.items():
                stage = Stage(spark, partial(_batch, spark, source, directory))
                found[f"{door} scan"] = max(stage.partition_bytes)
                if size == LARGEST:
                    stage_mb[door] = round(stage.total_bytes / 1e6, 1)
                stage = Stage(spark, partial(_stream, spark, source, directory))
                found[f"{door} stream"] = max(stage.partition_bytes)
    return {
        "partition_bytes": max(max(found.values()) for found in bytes_of.values()),
        "stage_mb_20k": max(stage_mb.values()),
        "bytes_of": bytes_of,
        "stage_mb_20k_of": stage_mb,
    }


def write_topic(directory: Path, blocks: list[int]) -> None:
    """Write the index objects of a topic, and holes in place of its data objects."""
    directory.mkdir()
    first, offset, placed = 0, 0, []
    for size_bytes in blocks:
        placed.append((first, offset))
        first += size_bytes // ENTRY_BYTES
        offset += size_bytes
    metadata = ledger_metadata(TOPIC, [bytes(ENTRY_BYTES)] * first)
    index = index_object(offset, placed, metadata)
    for ledger in range(MANY_LEDGERS):
        data = directory / f"{uuid.uuid4()}-ledger-{ledger}"
        with data.open("wb") as file:
            file.truncate(offset)
        data.with_name(f"{data.name}-index").write_bytes(index)


def _batch(spark: SparkSession, source: str, directory: Path) -> Any:
    """Return the scan in the physical plan of a query."""
    reader = spark.read.format(source).option("topic", TOPIC)
    frame: Any = reader.load(str(directory)).select("value")
    return scan_of(frame._jdf.queryExecution().executedPlan())


def _stream(spark: SparkSession, source: str, directory: Path) -> Any:
    """Return the scan of a stream's first batch, of which nothing is read."""
    reader = spark.readStream.format(source).option("topic", TOPIC)
    writer = reader.load(str(directory)).writeStream.trigger(availableNow=True)
    query: Any = writer.foreachBatch(lambda *_: None).start()
    query.awaitTermination()
    return scan_of(query._jsq.streamingQuery().lastExecution().executedPlan())


def scan_of(plan: Any) -> Any:
    """Return the only scan of a physical plan."""
    (scan,) = elements(plan.collectLeaves())
    return scan


class Stage:
    """What Spark sends for a stage that reads a scan.

    Attributes:
        partition_bytes: The sizes of some partitions.
        total_bytes: About what all partitions take, with what is sent once.

    """

    def __init__(self, spark: SparkSession, scan: Callable[[], Any]) -> None:
        self._spark = spark
        self._env: Any = spark._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
        before = sum(self._broadcast())
        rdd = scan().inputRDD()
        partitions = rdd.partitions()
        count = len(partitions)
        step = -(-count // SAMPLE)
        self.partition_bytes = [
            self._size(partitions[number]) for number in range(0, count, step)
        ]
        self.total_bytes = (
            statistics.mean(self.partition_bytes) * count
            + self._size(rdd)
            + (sum(self._broadcast()) - before)
        )

    def _size(self, value: Any) -> int:
        jvm: Any = self._spark._jvm
        serializer = self._env.closureSerializer().newInstance()
        any_class = jvm.scala.reflect.ClassTag.Any()
        return int(serializer.serialize(value, any_class).remaining())

    def _broadcast(self) -> Iterator[int]:
        """Yield the sizes of the pieces of all broadcast variables."""
        for status in self._env.blockManager().master().getStorageStatus():
            for block in elements(status.blocks()):
                if "_piece" in block._1().name():
                    yield block._2().memSize() + block._2().diskSize()


if __name__ == "__main__":
    record.run("scale_plans", measure, PACKAGES)
