"""Queries of an application on a cluster whose processes are killed and stopped.

    python tests/stress/chaos.py [--json] [--seconds N] [--seed S] [--cluster NAME]

An application runs queries in turn: scans, plans of several scans, streams, and two
sessions with different settings at once, with speculation. It has two executors, or,
if the seed is even, one to three, allocated dynamically. If the seed is a multiple of
three, scans are read in Spark's JVM.

Meanwhile nodes, loaders, Python workers, executors and workers of the cluster are
killed; processes are killed or stopped at named steps of the protocol; nodes, loaders
and workers are stopped for a while; nodes and loaders lack descriptors, memory, or the
right to write to files; the disk of the executors is full; jobs are cancelled;
executors are decommissioned. What happens, and in which order, follows from the seed.

The cluster is a master with two workers, or `local-cluster`. There, a machine is not
lost and the disk is never full. The disk is never full either where this process may
not mount a small one.

    faults, kinds   how many there were, and of which kind
    steps           how many there were at each step of the protocol
    queries         reads of a whole topic that have ended
    cancelled       queries that were cancelled, and run again
    failed          queries that failed otherwise, or read no topic in three minutes
    wrong_rows      by how many rows a query differs from a read without the cache;
                    1 if there are as many rows, but others
    samples         how often the shared memory of a node and its loaders was looked at
    cap_exceeded    how often it was more than maxBytes
    largest_bytes   the most of it
    without_node    executors that have no node again, a minute after the faults
    leaks           processes and shared memory that are left at the end

What happens is written to standard error. The status is 1 if anything failed, was
wrong, was exceeded, is missing or is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.util import InheritableThread

import sparkcache
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.source.spark_version import has_spark
from sparkcache.testing.standalone import JAVA_OPTIONS, Standalone
from sparkcache_pulsar.testing import synthetic_topic, write_directory
from tests import leaks, spark_home
from tests.stress.cluster_processes import ClusterProcesses
from tests.stress.clusters import LocalCluster, small_disk
from tests.stress.faults import Faults, Surroundings, log
from tests.stress.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, Row

    from tests.stress.clusters import Cluster

TOPICS = {
    "persistent://shop/eu/orders": 6 << 20,
    "persistent://shop/eu/users": 2 << 20,
}
CONFIG = sparkcache.CacheConfig(
    max_bytes=4 << 20,
    run_bytes=128 << 10,
    partition_bytes=512 << 10,
    read_ahead_bytes=1 << 20,
    loaders=2,
    ttl_after_read_s=5,
    request_timeout_s=2,
    startup_timeout_s=10,
)
OTHER = sparkcache.CacheConfig(
    max_bytes=1 << 20, policy="lru", run_bytes=256 << 10, request_timeout_s=1
)
"""Settings of the second session. Those of the node are decided by the first."""

EXECUTORS = 2
DISK_BYTES = 192 << 20
GROUP = "chaos"
LONGEST_S = 180.0
_CANCELLED = "cancelled part of cancelled job group"
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Faults are no reason to give up.
    "spark.task.maxFailures": "1000",
    "spark.stage.maxConsecutiveAttempts": "1000",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.decommission.enabled": "true",
    "spark.executor.decommission.forceKillTimeout": "10s",
}
STATIC = {"spark.cores.max": str(EXECUTORS)}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "3s",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


class Digest(NamedTuple):
    """What a read found: rows, a sum over their content, and the last position."""

    rows: int
    content: int
    last: tuple[int, ...]

    def __add__(self, other: tuple[Any, ...]) -> Digest:
        rows, content, last = other
        return Digest(self.rows + rows, self.content + content, max(self.last, last))


NOTHING = Digest(0, 0, ())


class Application:
    """Queries, compared with what was read before without the cache.

    Attributes:
        queries: How many reads of a whole topic have ended.
        wrong_rows: By how many rows they were wrong.
        cancelled: How many were cancelled and repeated.
        failed: Why others failed.

    """

    def __init__(self, spark: SparkSession, directory: Path, seed: int) -> None:
        self.queries = self.wrong_rows = self.cancelled = 0
        self.failed: list[str] = []
        self._advanced_s = 0.0  # when a topic was read, or a query begun
        self._spark = spark
        self._directory = directory
        self._random = random.Random(f"queries {seed}")
        sparkcache.install(spark, CONFIG)
        self._other = spark.newSession()
        sparkcache.install(self._other, OTHER)
        with ThreadPoolExecutor(len(TOPICS)) as pool:  # one after another takes longer
            found = pool.map(self._read_without_cache, TOPICS)
            self._expected = dict(zip(TOPICS, found, strict=True))

    def run_one(self) -> None:
        """Run one kind of query, in a thread of its own, which may be given up."""
        kinds: list[Callable[[], None]] = [self._scan, self._plan, self._sessions]
        if has_spark("4.2"):
            kinds.append(self._stream)
        thread = self._thread(self._random.choice(kinds))
        log(thread.name)
        self._advanced_s = time.monotonic()
        thread.start()
        while thread.is_alive():
            since_s = time.monotonic() - self._advanced_s
            if since_s < LONGEST_S:
                thread.join(LONGEST_S - since_s)
                continue
            self.failed.append(f"{thread.name}: no topic is read in {LONGEST_S:g} s")
            self._spark.sparkContext.cancelAllJobs()
            for query in self._spark.streams.active:
                query.stop()
            thread.join(LONGEST_S)
            return

    def cancel(self) -> bool:
        """Cancel the queries that run, except streams; return whether any did."""
        context = self._spark.sparkContext
        tracker = context.statusTracker()
        infos = map(tracker.getJobInfo, tracker.getJobIdsForGroup(GROUP))
        is_running = any(info and info.status == "RUNNING" for info in infos)
        if is_running:
            context.cancelJobGroup(GROUP)
        return is_running

    def missing_nodes(self, least: int, wait_s: float) -> int:
        """Read until each executor has a node; return how many have none.

        Args:
            least: How many executors there are at least.
            wait_s: How long to try.

        """
        end_s = time.monotonic() + wait_s
        while True:
            self._scan()
            nodes = len(node_metrics(self._spark))
            missing = max(len(ClusterProcesses.now().executors), least) - nodes
            if missing <= 0 or time.monotonic() > end_s:
                return max(missing, 0)

    def _thread(self, query: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            self._spark.sparkContext.setJobGroup(GROUP, query.__name__)
            while True:
                try:
                    query()
                except Exception as error:
                    if _CANCELLED in str(error):
                        self._advanced_s = time.monotonic()
                        self.cancelled += 1
                        continue
                    self.failed.append(f"{query.__name__}: {error}")
                    traceback.print_exc()
                return

        return InheritableThread(target=run, name=query.__name__)

    def _load(self, topic: str, *, other: bool = False, **options: str) -> DataFrame:
        session = self._other if other else self._spark
        reader = session.read.format("sparkcache").options(topic=topic, **options)
        return reader.load(str(self._directory / "bucket"))

    def _read_without_cache(self, topic: str) -> Digest:
        return digest(self._load(topic, enabled="false"))

    def _compare(self, topic: str, found: Digest) -> None:
        expected = self._expected[topic]
        self.queries += 1
        self._advanced_s = time.monotonic()
        log(f"{topic} is read: {found.rows} rows")
        if found != expected:
            self.wrong_rows += max(abs(found.rows - expected.rows), 1)
            log(f"wrong: {found}, expected {expected}")

    def _scan(self) -> None:
        topic = self._random.choice([*TOPICS])
        run_bytes = self._random.choice(["64k", "128k", "512k"])
        self._compare(topic, digest(self._load(topic, runBytes=run_bytes)))

    def _plan(self) -> None:
        topics = [*TOPICS, self._random.choice([*TOPICS])]
        frames = [self._load(topic) for topic in topics]
        with sparkcache.plan(*frames):
            for topic, frame in zip(topics, frames, strict=True):
                self._compare(topic, digest(frame))

    def _sessions(self) -> None:
        topic = self._random.choice([*TOPICS])

        def read_other() -> None:
            self._compare(topic, digest(self._load(topic, other=True)))

        thread = self._thread(read_other)
        thread.start()
        try:
            self._compare(topic, digest(self._load(topic)))
        finally:
            thread.join()

    def _stream(self) -> None:
        topic = self._random.choice([*TOPICS])
        batches: dict[int, Digest] = {}

        def read(batch: DataFrame, number: int) -> None:
            batches[number] = digest(batch)

        reader = self._spark.readStream.format("sparkcache")
        rows = reader.options(topic=topic, maxBytesPerTrigger="1m")
        writer = rows.load(str(self._directory / "bucket")).writeStream
        query = writer.foreachBatch(read).trigger(availableNow=True).start()
        query.awaitTermination()
        self._compare(topic, sum(batches.values(), NOTHING))


def digest(frame: DataFrame) -> Digest:
    """Read all rows."""
    position = [F.col(f"__{name}") for name in ("ledgerId", "entryId", "batchIndex")]
    content = F.concat("value", F.concat_ws("/", *position).cast("binary"))
    row: Row
    (row,) = frame.agg(
        F.count("*").alias("rows"),
        F.sum(F.crc32(content)).alias("content"),
        F.max(F.struct(*position)).alias("last"),
    ).collect()
    return Digest(row["rows"], row["content"] or 0, tuple(row["last"] or ()))


def run(seconds: float, seed: int, on_machines: bool) -> dict[str, Any]:
    """Run queries while there are faults; return what came of it."""
    leaks.become_reaper()
    before = leaks.Belongings.now()
    with tempfile.TemporaryDirectory(
        prefix="chaos-", ignore_cleanup_errors=True
    ) as path:
        directory = Path(path)
        for topic, size_bytes in TOPICS.items():
            objects = synthetic_topic(topic, size_bytes, ledgers=3)
            write_directory(directory / "bucket", objects)
        for name in ("home", "steps", "disk", "cluster"):
            (directory / name).mkdir()
        steps = Steps(directory / "steps")
        with (
            environment(directory),
            cluster_in(directory, on_machines) as (cluster, disk),
            session(directory, cluster, seed) as spark,
        ):
            log("the session has started")
            application = Application(spark, directory, seed)
            surroundings = Surroundings(cluster, steps, disk, application.cancel)
            faults = Faults(seed, CONFIG.max_bytes, surroundings)
            end_s = time.monotonic() + seconds
            log("faults begin")
            faults.start(seconds)
            try:
                while time.monotonic() < end_s:
                    application.run_one()
            finally:
                faults.end()
            log("faults are over")
            least = 1 if is_dynamic(seed) else EXECUTORS
            without_node = application.missing_nodes(least, wait_s=60)
            faults.sample()
            log("all executors that can have a node have one")
        left = what_is_left(before)
    for finding in (*application.failed, *left):
        log(finding)
    return {
        "faults": faults.kinds.total(),
        "kinds": dict(sorted(faults.kinds.items())),
        "steps": dict(sorted(faults.steps.items())),
        "queries": application.queries,
        "cancelled": application.cancelled,
        "failed": len(application.failed),
        "wrong_rows": application.wrong_rows,
        "samples": faults.samples,
        "cap_exceeded": faults.exceeded,
        "largest_bytes": faults.largest_bytes,
        "without_node": without_node,
        "leaks": len(left),
        "seconds": seconds,
        "seed": seed,
        "cluster": "standalone" if on_machines else "local-cluster",
        "allocation": "dynamic" if is_dynamic(seed) else "static",
        "jvm_reader": reads_in_jvm(seed),
        "has_disk": disk is not None,
    }


def is_dynamic(seed: int) -> bool:
    """Return whether executors are allocated dynamically."""
    return seed % 2 == 0


def reads_in_jvm(seed: int) -> bool:
    """Return whether scans are read in Spark's JVM."""
    return seed % 3 == 0 and has_spark("4.1")


def what_is_left(before: leaks.Belongings) -> list[str]:
    """Return the processes and shared files that remain after a while."""
    end_s = time.monotonic() + leaks.GRACE_S
    while True:
        now = leaks.Belongings.now()
        left = replace(now, descriptors={}).since(before)
        if not left or time.monotonic() > end_s:
            return left
        time.sleep(0.1)


@contextmanager
def environment(directory: Path) -> Iterator[None]:
    """Set what the processes of a cluster inherit."""
    home = directory / "home"
    spark_home.link(home)
    paths = [str(directory / "steps"), *filter(None, sys.path)]
    variables = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
    }
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def cluster_in(
    directory: Path, on_machines: bool
) -> Iterator[tuple[Cluster, Path | None]]:
    """Yield a cluster, and the disk of its executors if that is a small one."""
    if not on_machines:
        yield LocalCluster(EXECUTORS), None
        return
    disk = directory / "disk"
    with small_disk(disk, DISK_BYTES) as is_small:
        if not is_small:
            log("no disk is full: mounting a small one is not permitted here")
        with Standalone(
            directory / "cluster", EXECUTORS, local_directory=disk
        ) as cluster:
            yield cluster, disk if is_small else None


@contextmanager
def session(directory: Path, cluster: Cluster, seed: int) -> Iterator[SparkSession]:
    """A session on a cluster; ends its JVM."""
    builder = SparkSession.builder.master(cluster.url)
    conf = CONF | {
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.local.dir": str(directory / "local"),
        **(DYNAMIC if is_dynamic(seed) else STATIC),
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    jvm_reader = reads_in_jvm(seed)
    spark = sparkcache.configure(builder, jvm_reader=jvm_reader).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        with suppress(OSError):
            gateway.proc.stdin.close()
        gateway.proc.wait()


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description="Faults on a cluster.")
    parser.add_argument("--json", action="store_true", help="JSON alone")
    parser.add_argument("--seconds", type=float, default=60, help="60")
    parser.add_argument("--seed", type=int, default=1, help="1")
    parser.add_argument(
        "--cluster", choices=["standalone", "local-cluster"], default="standalone"
    )
    chosen = parser.parse_args()
    on_machines = chosen.cluster == "standalone"
    result = run(chosen.seconds, chosen.seed, on_machines)
    if not chosen.json:
        for name, value in result.items():
            print(f"{name:28} {value}")
    print(json.dumps(result))
    names = ("failed", "wrong_rows", "cap_exceeded", "without_node", "leaks")
    sys.exit(any(result[name] for name in names))


if __name__ == "__main__":
    main()
