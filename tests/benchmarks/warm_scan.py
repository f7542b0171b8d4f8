"""How fast a cached topic is scanned, beside what Spark could do at best.

    .venv/bin/python tests/benchmarks/warm_scan.py --json

Scans of the same rows, in the connector's full schema, to Spark's noop sink, one after
another, again and again:

    jvm         format("sparkcache"), every run in memory
    warm        the same, read in Python
    ceiling     a Python data source that yields one prebuilt record batch
    persist     the same rows in persist(MEMORY_ONLY), read again
    parquet     the same rows in Parquet files, whose pages are in memory
    cold        format("sparkcache") where nothing is in memory: fetched and decoded

and of `jvm` and `persist` two queries more: `count`, which needs no column, and
`bytes`, which touches every byte of the values.

`x_over_y_localN` is speed of x / speed of y on local[N], medians. Each local[N] has a
session of its own. `jvm_ms_per_task_over_range` is what a task of a few cached rows
takes on local[1] beyond one of `spark.range`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "persistent://bench/warm/scan"
SMALL_TOPIC = "persistent://bench/warm/small"
LEDGERS = 10
ENTRIES = 768
MESSAGES = 128
VALUE_BYTES = 1024
ROWS = LEDGERS * ENTRIES * MESSAGES
ROUNDS = 7
SMALL_TASKS = 64


def compare() -> dict[str, float]:
    """Measure in one process for each master."""
    result: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        write_topic(Path(directory))
        for cores in (1, 2):
            seconds = in_own_process(f"local[{cores}]", directory)
            for other in ("ceiling", "persist", "cold"):
                key = f"warm_over_{other}_local{cores}"
                result[key] = round(seconds[other] / seconds["warm"], 3)
            for name, other in (
                ("persist_noop", "persist"),
                ("python_noop", "warm"),
                ("parquet_noop", "parquet"),
            ):
                key = f"jvm_over_{name}_local{cores}"
                result[key] = round(seconds[other] / seconds["jvm"], 3)
            for query in ("count", "bytes"):
                key = f"jvm_over_persist_{query}_local{cores}"
                ratio = seconds[f"persist_{query}"] / seconds[f"jvm_{query}"]
                result[key] = round(ratio, 3)
            gib = ROWS * VALUE_BYTES / 2**30
            for case in ("warm", "jvm"):
                result[f"{case}_gib_s_local{cores}"] = round(gib / seconds[case], 3)
            if cores == 1:
                spent = (seconds["small"] - seconds["range"]) / SMALL_TASKS
                result["jvm_ms_per_task_over_range"] = round(1000 * spent, 2)
    return result


def in_own_process(master: str, topic_dir: str) -> dict[str, float]:
    """Measure on one master; returns median seconds by case."""
    command = [sys.executable, __file__, master, topic_dir]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def write_topic(directory: Path) -> None:
    """Write ledgers of LZ4 batches, half of each value random; and small ledgers."""
    import random

    from sparkcache_pulsar.testing import (
        Codec,
        Entry,
        Message,
        ledger_objects,
        write_directory,
    )

    shapes = [(TOPIC, ledger, ENTRIES) for ledger in range(LEDGERS)]
    shapes += [(SMALL_TOPIC, ledger, 1) for ledger in range(100, 100 + SMALL_TASKS)]
    for topic, ledger, count in shapes:
        numbers = random.Random(ledger)
        entries = [
            Entry(
                tuple(
                    Message(
                        numbers.randbytes(VALUE_BYTES // 2) + bytes(VALUE_BYTES // 2),
                        key=f"order-{number}",
                    )
                    for number in range(MESSAGES)
                ),
                codec=Codec.LZ4,
            ).encode()
            for _ in range(count)
        ]
        objects = ledger_objects(topic, ledger, entries, max_block_bytes=16 << 20)
        write_directory(directory, objects)


def measure(master: str, directory: Path) -> dict[str, float]:
    """Return the median seconds of each case."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark import StorageLevel
    from pyspark.sql import SparkSession

    import sparkcache
    from sparkcache import CacheConfig
    from sparkcache.source.driver.registration import name_of_installed

    spark = (
        sparkcache.configure(SparkSession.builder.master(master))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    sparkcache.install(spark, CacheConfig(max_bytes=2 << 30, partition_bytes=16 << 20))

    def load(name: str, topic: str, **options: str) -> DataFrame:
        reader = spark.read.format(name).option("topic", topic)
        return reader.options(**options).load(str(directory))

    topic = load("sparkcache", TOPIC)
    parts = topic.rdd.getNumPartitions()
    ceiling = prebuilt(spark, topic, parts)
    persisted = topic.persist(StorageLevel.MEMORY_ONLY)
    cores = spark.sparkContext.defaultParallelism
    files = str(directory / f"parquet{cores}")
    persisted.write.parquet(files)
    parquet = spark.read.parquet(files)
    assert persisted.count() == ceiling.count() == parquet.count() == ROWS
    small = load("sparkcache", SMALL_TOPIC, partitionBytes="1k")
    assert small.rdd.getNumPartitions() == SMALL_TASKS
    numbers = spark.range(SMALL_TASKS * MESSAGES, numPartitions=SMALL_TASKS)
    topic = load("sparkcache", TOPIC)
    warm = load(name_of_installed(spark), TOPIC)

    def cold() -> None:
        with sparkcache.plan(topic):  # its end drops what is left
            scan(warm)

    cases: dict[str, Callable[[], Any]] = {
        "jvm": lambda: scan(topic),
        "warm": lambda: scan(warm),
        "ceiling": lambda: scan(ceiling),
        "persist": lambda: scan(persisted),
        "parquet": lambda: scan(parquet),
        "jvm_count": topic.count,
        "persist_count": persisted.count,
        "jvm_bytes": lambda: touch(topic),
        "persist_bytes": lambda: touch(persisted),
        "small": lambda: scan(small),
        "range": lambda: scan(numbers),
    }
    seconds: dict[str, list[float]] = {case: [] for case in [*cases, "cold"]}
    for _ in range(3):
        seconds["cold"].append(timed(cold))
    reads = 4 * (ROUNDS + 1) + 1
    with sparkcache.plan(*[topic] * reads, *[small] * (ROUNDS + 1)):
        scan(warm)
        for turn in range(ROUNDS + 1):
            for case, run in cases.items():
                spent = timed(run)
                if turn:
                    seconds[case].append(spent)
    spark.stop()
    return {case: statistics.median(spent) for case, spent in seconds.items()}


def scan(dataframe: DataFrame) -> None:
    """Compute every row, and keep none."""
    dataframe.write.format("noop").mode("overwrite").save()


def touch(dataframe: DataFrame) -> None:
    """Read every byte of the values."""
    from pyspark.sql import functions as sf

    dataframe.agg(sf.sum(sf.crc32("value"))).collect()


def timed(run: Callable[[], Any]) -> float:
    """Return how long a call takes, in seconds."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def prebuilt(spark: SparkSession, like: DataFrame, parts: int) -> DataFrame:
    """Return a source of as many rows that yields one batch over and over."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    rows = like.limit(VALUE_BYTES).toArrow().combine_chunks().to_batches()[0]
    schema = like.schema
    serialized = rows.serialize().to_pybytes()
    arrow_schema = rows.schema.serialize().to_pybytes()

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(part) for part in range(parts)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            read = pa.ipc.read_schema(pa.py_buffer(arrow_schema))
            batch = pa.ipc.read_record_batch(pa.py_buffer(serialized), read)
            first = ROWS * partition.value // parts
            left = ROWS * (partition.value + 1) // parts - first
            while left > 0:
                yield batch if left >= batch.num_rows else batch.slice(0, left)
                left -= batch.num_rows

    class Prebuilt(DataSource):
        @classmethod
        def name(cls) -> str:
            return "prebuilt"

        def schema(self) -> Any:
            return schema

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Prebuilt)
    return spark.read.format("prebuilt").load()


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("local["):
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
    else:
        record.run("warm_scan", compare, ("pyspark", "pyarrow", "numpy"))
