"""Thousands of short tasks through the reader in the JVM, and what is held after them.

    python tests/stress/jvm_leaks.py [--json] [--save]

An executor with two cores runs rounds of queries on a cached topic until 10,000 tasks
have ended. Some of the queries are killed: one fails in a UDF, one is cancelled. After
each round the JVM is made to collect garbage, and the program looks at it and at the
node's process. For each of

    jvm_descriptors, jvm_maps, jvm_kib, node_descriptors, node_maps, node_kib
    heap_kib  what is left in the heap, which has its whole size from the beginning
    mapped    runs that the JVM maps
    pinned    runs that the node counts as mapped
    unused    runs that the JVM mapped before the collection

the result has the medians of the second and of the last quarter of the rounds. The
program fails if the last is larger by more than `_SLACK`.

A pandas_udf on columns keeps them until the garbage collector finds that they are
unused. `unmapped_s` is how long after the end of such a query the JVM has unmapped its
runs, the median and the maximum, while other queries read another topic without a
break, and nobody asks for a collection.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import psutil
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache_pulsar.testing import synthetic_topic, write_directory
from tests.benchmarks import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

TASKS = 10_000
PARTITIONS = 50
TOPIC = "persistent://shop/eu/orders"
TOPIC_BYTES = 8 << 20
RUN_BYTES = 64 << 10
LATENCIES = 7
DEADLINE_S = 60.0
_SLACK = {
    "jvm_descriptors": 8.0,
    "jvm_maps": 30.0,
    "jvm_kib": 48 * 1024.0,  # a compiler or an allocator takes some once and keeps it
    "heap_kib": 8 * 1024.0,
    "node_descriptors": 4.0,
    "node_maps": 10.0,
    "node_kib": 8 * 1024.0,
    "mapped": 0.0,
    "pinned": 0.0,
    "unused": 64.0,
}
"""How much larger the last quarter may be than the second."""
_RUN = re.compile(r" (\d+) +/memfd:sparkcache")
_COLUMNS_TO_UDFS = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


@dataclass
class World:
    """An application with one executor, whose processes are looked at."""

    spark: SparkSession
    directory: Path
    samples: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.jvm = self._process("CoarseGrainedExecutorBackend", self.application)
        self.node = self._process("sparkcache.node", str(self.directory))

    @property
    def application(self) -> str:
        return str(self.spark.sparkContext.applicationId)

    def topic(self, name: str, seed: int) -> DataFrame:
        """Return a scan of a topic that is written now."""
        directory = self.directory / name
        objects = synthetic_topic(
            TOPIC, TOPIC_BYTES, seed=seed, ledgers=4, batch_bytes=RUN_BYTES // 4
        )
        write_directory(directory, objects)
        return (
            self.spark.read.format("sparkcache")
            .options(topic=TOPIC, runBytes=RUN_BYTES, minPartitions=PARTITIONS)
            .load(str(directory))
        )

    def counted(self) -> Metrics:
        return sum(node_metrics(self.spark).values(), Metrics())

    def sample(self, rows: DataFrame) -> None:
        """Look at the executor and its node, without garbage."""
        unused = len(self.mapped())
        jcmd(self.jvm.pid, "GC.run")
        used = re.search(r"used (\d+)K", jcmd(self.jvm.pid, "GC.heap_info"))
        assert used is not None
        rows.count()  # tasks that end tell the node of what is unmapped
        self.samples.append(
            {
                "jvm_descriptors": self.jvm.num_fds(),
                "jvm_maps": len(maps_of(self.jvm.pid)),
                "jvm_kib": self.jvm.memory_info().rss // 1024,
                "heap_kib": int(used[1]),
                "node_descriptors": self.node.num_fds(),
                "node_maps": len(maps_of(self.node.pid)),
                "node_kib": self.node.memory_info().rss // 1024,
                "mapped": len(self.mapped()),
                "pinned": self.counted().pinned_runs,
                "unused": unused,
            }
        )

    def tasks(self) -> dict[str, int]:
        """Return how many tasks have ended, and how, so far."""
        store = self.spark._jsc.sc().statusStore()
        found = {"completed": 0, "failed": 0, "killed": 0}
        with suppress(Py4JJavaError):  # there is no such stage
            for stage in count():
                data = store.lastStageAttempt(stage)
                found["completed"] += data.numCompleteTasks()
                found["failed"] += data.numFailedTasks()
                found["killed"] += data.numKilledTasks()
        return found

    def mapped(self) -> set[str]:
        """Return the runs that the JVM maps, by inode."""
        return {run[1] for line in maps_of(self.jvm.pid) if (run := _RUN.search(line))}

    def held(self) -> set[str]:
        """Return the runs that the node holds, by inode."""
        found = set()
        for fd in Path(f"/proc/{self.node.pid}/fd").iterdir():
            with suppress(OSError):
                if str(fd.readlink()).startswith("/memfd:sparkcache"):
                    found.add(str(fd.stat().st_ino))
        return found

    def _process(self, *words: str) -> psutil.Process:
        """Wait for the process with these words in its command line."""
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            found = []
            for process in psutil.process_iter(["cmdline"]):
                command = " ".join(process.info["cmdline"] or [])
                if all(word in command for word in words) and ".early" not in command:
                    found.append(process)
            pids = {process.pid for process in found}
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    if len(found) > 1 and process.ppid() not in pids:
                        return process  # a loader is a child of its node
                    if len(found) == 1 and "sparkcache.node" not in words:
                        return process
            time.sleep(0.1)
        raise AssertionError(f"no process has {words} in its command line")


def jcmd(pid: int, command: str) -> str:
    """Have a JVM execute a command; return what it says."""
    return subprocess.run(
        ["jcmd", str(pid), command], check=True, capture_output=True, text=True
    ).stdout


def maps_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


# Queries


def length(values: pd.Series) -> pd.Series:
    return values.str.len()


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    task = TaskContext.get()
    assert task is not None
    for batch in batches:
        if task.partitionId() % 10 == 7:
            raise ValueError("as it should")
        yield batch


def dawdle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(0.2)
        yield batch


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def on_columns(frame: DataFrame) -> None:
    size: Any = pandas_udf(length, "int")  # type: ignore[call-overload]
    noop(frame.select("__key", size("value").alias("size")))


def failing(frame: DataFrame) -> None:
    with suppress(PySparkException):
        noop(frame.mapInArrow(fail, frame.schema))
        raise AssertionError("the query has not failed")


def cancelled(frame: DataFrame) -> None:
    context = frame.sparkSession.sparkContext
    timer = threading.Timer(0.7, context.cancelJobsWithTag, ["cancelled"])
    context.addJobTag("cancelled")
    context.setInterruptOnCancel(True)
    timer.start()
    try:
        noop(frame.mapInArrow(dawdle, frame.schema))
    except (PySparkException, Py4JJavaError):
        return
    finally:
        timer.join()
        context.setInterruptOnCancel(False)
        context.removeJobTag("cancelled")
    raise AssertionError("the query was not cancelled")


def in_arrow(frame: DataFrame) -> None:
    columns = frame.select("__key", "value")
    noop(columns.mapInArrow(same, columns.schema))


def rows_of(frame: DataFrame) -> None:
    frame.filter("length(value) > 0").count()


QUERIES: tuple[Callable[[DataFrame], object], ...] = (
    noop,
    rows_of,
    on_columns,
    rows_of,
    lambda frame: frame.limit(7).collect(),
    failing,
    noop,
    in_arrow,
    rows_of,
    cancelled,
    noop,
)


# What is measured


def measure() -> dict[str, Any]:
    """Measure it all."""
    with tempfile.TemporaryDirectory(prefix="leaks-") as name:
        return measured(Path(name), TASKS)


def measured(directory: Path, tasks: int) -> dict[str, Any]:
    """Run rounds until so many tasks have ended; return what is held then."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(directory)  # of the cluster's worker
    spark = sparkcache.configure(
        SparkSession.builder.master("local-cluster[1,2,1200]")
        .config("spark.executor.memory", "600m")
        # The heap is there from the beginning: what grows is not the heap.
        .config("spark.executor.extraJavaOptions", "-Xms600m -XX:+AlwaysPreTouch")
        .config("spark.executorEnv.MALLOC_ARENA_MAX", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.retainedStages", "100000")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.task.maxFailures", "1")
        .config(_COLUMNS_TO_UDFS, "true"),
        jvm_reader=True,
    ).getOrCreate()
    try:
        world = World(spark, directory)
        rows = world.topic("topic", seed=1)
        sparkcache.install(spark, sparkcache.CacheConfig(ttl_after_read_s=3600))
        begun_s = time.monotonic()
        while sum(world.tasks().values()) < tasks:
            for query in QUERIES:
                query(rows)
            world.sample(rows)
        seconds = round(time.monotonic() - begun_s)
        ended = world.tasks()
        result = {"tasks": ended, "seconds": seconds, "rounds": len(world.samples)}
        result |= quarters(world.samples)
        return result | {"unmapped_s": unmapped_s(world, rows)}
    finally:
        spark.stop()


def quarters(samples: list[dict[str, float]]) -> dict[str, dict[str, int]]:
    """Return the medians of the second and of the last quarter; fail if one grows."""
    quarter = len(samples) // 4
    found = {}
    for name, slack in _SLACK.items():
        values = [sample[name] for sample in samples]
        second = median(values[quarter : 2 * quarter])
        last = median(values[-quarter:])
        found[name] = {"second": round(second), "last": round(last)}
        assert last <= second + slack, f"{name} grows: {values}"
    return found


def unmapped_s(world: World, rows: DataFrame) -> dict[str, float]:
    """Time until runs that a pandas_udf has used are unmapped, under load."""
    others = world.topic("others", seed=2)
    before = world.held()
    others.count()
    noop(others)
    used = world.held() - before
    assert used
    is_over = threading.Event()

    def load() -> None:
        while not is_over.is_set():
            noop(rows)

    thread = threading.Thread(target=load)
    thread.start()
    times_s = []
    try:
        for _ in range(LATENCIES):
            on_columns(others)
            begun_s = time.monotonic()
            while world.mapped() & used:
                assert time.monotonic() < begun_s + DEADLINE_S, "still mapped"
                time.sleep(0.02)
            times_s.append(time.monotonic() - begun_s)
    finally:
        is_over.set()
        thread.join()
    return {"median": round(median(times_s), 2), "max": round(max(times_s), 2)}


if __name__ == "__main__":
    record.run("jvm_leaks", measure, ("pyspark", "pyarrow"), folder="stress")
