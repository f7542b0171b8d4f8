"""Applications whose executors are pods.

    python -m tests.spark.pods_driver MASTER JAVA_HOME ENDPOINT BUCKET TOPIC SOCKETS

Two sessions, one after the other: the first reads in Python, the second in the JVM. For
each it prints, as JSON, what it has found. SOCKETS is whether workers use Unix sockets.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from tests.spark.jvm_reader_world import IN_JVM, metric, plan_of, rows
from tests.spark.spark_topics import settings_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXECUTORS = 3
_RUNS = 12
# A read that is not all hits is the first one of some run on some executor.
_MOST_READS = _EXECUTORS * _RUNS + 1
_MIB = 1 << 20


def counted(spark: SparkSession) -> Metrics:
    return sum(node_metrics(spark).values(), Metrics())


def inside(_: int) -> str:
    """Say what a task sees of its pod."""
    shm = os.statvfs("/dev/shm")
    jvm = os.getppid()
    while Path(f"/proc/{jvm}/comm").read_text().strip() != "java":
        jvm = int(Path(f"/proc/{jvm}/stat").read_text().rpartition(")")[2].split()[1])
    seen = {
        "user": os.getuid(),
        "jvm": jvm,
        "namespaces": [
            str(Path("/proc/self/ns", name).readlink()) for name in _NAMESPACES
        ],
        "writable": [path for path in _PLACES if os.access(path, os.W_OK)],
        "shm_mib": shm.f_blocks * shm.f_frsize / _MIB,
        "capabilities": _capabilities(),
    }
    return json.dumps(seen)


_NAMESPACES = ("pid", "mnt", "user")
_PLACES = ("/", "/etc", "/tmp", "/dev/shm", os.fspath(Path.home()))


def _capabilities() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("CapEff:")[2].split()[0], 16)


def run(spark: SparkSession, frame: DataFrame, plain: DataFrame) -> dict[str, Any]:
    """Read until every executor has what its tasks read."""
    expected = rows(plain)
    is_same = True
    for _ in range(_MOST_READS):
        before = counted(spark)
        is_same = rows(frame) == expected and is_same
        last = counted(spark) - before
        if last.hits == last.requests:
            break
    pods = spark.sparkContext.parallelize(range(24), 24).map(inside)
    return {
        "is_same": is_same,
        "rows": expected.total(),
        "received_bytes": counted(spark).received_bytes,
        "nodes": len(node_metrics(spark)),
        "runs_in_jvm": metric(frame, "Runs") if IN_JVM in plan_of(frame) else 0,
        "last": {"hits": last.hits, "requests": last.requests},
        "pods": list(map(json.loads, sorted(set(pods.collect())))),
    }


def main(
    master: str, java_home: str, endpoint: str, bucket: str, topic: str, sockets: str
) -> None:
    settings = settings_for(
        endpoint, max_bytes=64 << 20, ttl_create_s=600, ttl_after_read_s=600
    )
    for jvm_reader in (False, True):
        spark = sparkcache.configure(
            SparkSession.builder.master(master)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.executor.memory", "512m")
            .config("spark.executor.cores", "1")
            .config("spark.cores.max", str(_EXECUTORS))
            .config("spark.scheduler.minRegisteredResourcesRatio", "1")
            .config("spark.executorEnv.JAVA_HOME", java_home)
            .config("spark.python.unix.domain.socket.enabled", sockets)
            .config("spark.executor.extraJavaOptions", os.environ["SPARK_SUBMIT_OPTS"]),
            jvm_reader=jvm_reader,
        ).getOrCreate()
        sparkcache.install(spark, settings)
        reader = spark.read.format("sparkcache").option("topic", topic)
        reader = reader.options(runBytes="64k", minPartitions="6")
        plain = reader.option("enabled", "false").load(f"s3://{bucket}")
        frame = reader.option("enabled", "true").load(f"s3://{bucket}")
        print(json.dumps(run(spark, frame, plain)), flush=True)
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
