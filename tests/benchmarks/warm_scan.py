"""How fast a cached topic is scanned, beside what Spark could do at best.

    .venv/bin/python tests/benchmarks/warm_scan.py --json

Four scans of the same rows, in the connector's full schema, to Spark's noop sink, one
after another, again and again:

    warm        format("sparkcache"), every run in memory
    ceiling     a Python data source that yields one prebuilt record batch
    persist     the same rows in persist(MEMORY_ONLY), read again
    cold        format("sparkcache") where nothing is in memory: fetched and decoded

`x_over_y_localN` is speed of x / speed of y on local[N], medians. Each local[N] has a
session of its own.
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
LEDGERS = 4
ENTRIES = 768
MESSAGES = 128
VALUE_BYTES = 1024
ROWS = LEDGERS * ENTRIES * MESSAGES
ROUNDS = 7


def compare() -> dict[str, float]:
    """Measure in one process for each master."""
    result: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        write_topic(Path(name))
        for cores in (1, 2):
            seconds = in_own_process(f"local[{cores}]", name)
            for other in ("ceiling", "persist", "cold"):
                key = f"warm_over_{other}_local{cores}"
                result[key] = round(seconds[other] / seconds["warm"], 3)
            gib = ROWS * VALUE_BYTES / 2**30
            result[f"warm_gib_s_local{cores}"] = round(gib / seconds["warm"], 3)
    return result


def in_own_process(master: str, topic_dir: str) -> dict[str, float]:
    """Measure on one master; returns median seconds by case."""
    command = [sys.executable, __file__, master, topic_dir]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def write_topic(directory: Path) -> None:
    """Write ledgers of LZ4 batches; values are text, half of it random."""
    import random

    from sparkcache_pulsar.testing import (
        Codec,
        Entry,
        Message,
        ledger_objects,
        write_directory,
    )

    for ledger in range(LEDGERS):
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
            for _ in range(ENTRIES)
        ]
        objects = ledger_objects(TOPIC, ledger, entries, max_block_bytes=16 << 20)
        write_directory(directory, objects)


def measure(master: str, directory: Path) -> dict[str, float]:
    """Return the median seconds of each case."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark import StorageLevel
    from pyspark.sql import SparkSession

    import sparkcache
    from sparkcache import CacheConfig

    spark = (
        sparkcache.configure(SparkSession.builder.master(master))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    sparkcache.install(spark, CacheConfig(max_bytes=2 << 30, partition_bytes=16 << 20))
    topic = spark.read.format("sparkcache").option("topic", TOPIC)
    warm = topic.load(str(directory))
    parts = warm.rdd.getNumPartitions()
    ceiling = prebuilt(spark, warm, parts)
    persisted = warm.persist(StorageLevel.MEMORY_ONLY)
    assert persisted.count() == ceiling.count() == ROWS
    warm = topic.load(str(directory))

    def cold() -> None:
        with sparkcache.plan(warm):  # its end drops what is left
            scan(warm)

    cases: dict[str, Callable[[], None]] = {
        "warm": lambda: scan(warm),
        "ceiling": lambda: scan(ceiling),
        "persist": lambda: scan(persisted),
    }
    seconds: dict[str, list[float]] = {case: [] for case in [*cases, "cold"]}
    for _ in range(3):
        seconds["cold"].append(timed(cold))
    with sparkcache.plan(*[warm] * (ROUNDS + 2)):
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
