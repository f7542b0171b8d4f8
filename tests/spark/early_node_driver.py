"""An application whose executors have nodes before their first task.

    python -m tests.spark.early_node_driver DIRECTORY MASTER [KEY=VALUE...]

It prints, as JSON, what it found. The keys are confs of the session.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

import sparkcache
from sparkcache.source.driver.node_rpc import node_statuses
from tests.spark.spark_topics import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE_S = 30.0
NO_NODE_S = 5.0


def nodes(directory: str) -> dict[int, list[str]]:
    """Return the nodes below a directory, by pid, with their command lines."""
    found, parents = {}, {}
    for process in psutil.process_iter(["cmdline", "ppid"]):
        words = process.info["cmdline"] or []  # one that has ended has none
        if directory not in " ".join(words):
            continue
        if "sparkcache.node" in words:
            found[process.pid] = words
            parents[process.pid] = process.info["ppid"]
        elif "sparkcache.node.early" in words:
            return {}  # the node is about to be started
    # A loader is a fork of its node.
    return {pid: words for pid, words in found.items() if parents[pid] not in found}


def until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> bool:
    """Return whether a condition comes true in time."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True


def paths(pid: int) -> list[str]:
    """Return the names of what a process finds modules in."""
    for variable in Path(f"/proc/{pid}/environ").read_text().split("\0"):
        if variable.startswith("PYTHONPATH="):
            return [Path(path).name for path in variable[11:].split(os.pathsep)]
    return []


def address_space(pid: int) -> str:
    """Return the limit of a process's address space."""
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max address space"):
            return line.split()[3]
    return "?"


def limit_of_a_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        yield pa.record_batch({"limit": pa.array([limit], pa.int64())})


def limits(spark: SparkSession) -> list[int]:
    """Return maxBytes of each node."""
    statuses = [json.loads(status) for _, status in node_statuses(spark)]
    return [int(status["metrics"]["cache.limit.bytes"]) for status in statuses]


def main(directory: str, master: str, *confs: str) -> None:
    topic = write(Path(directory) / "topic")
    local = f"{directory}/local"
    builder = (
        SparkSession.builder.master(master)
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", os.environ["SPARK_SUBMIT_OPTS"])
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", local)
    )
    for conf in confs:
        key, _, value = conf.partition("=")
        builder = builder.config(key, value)
    executors = 2 if master.startswith("local-cluster") else 1
    os.environ["SPARK_LOCAL_DIRS"] = local  # of the workers of a local cluster
    spark = sparkcache.configure(builder).getOrCreate()
    del os.environ["SPARK_LOCAL_DIRS"]
    found: dict[str, Any] = {
        "has_early_nodes": until(
            lambda: len(nodes(local)) == executors,
            NO_NODE_S if any("python" in conf for conf in confs) else DEADLINE_S,
        )
    }
    early = nodes(local)
    found["early_settings"] = [json.loads(words[-1]) for words in early.values()]
    found["early_limits"] = [address_space(pid) for pid in early]
    found["early_paths"] = [paths(pid) for pid in early]
    frame = topic.load(spark, minPartitions="4")
    found["rows"] = [frame.count(), topic.rows]
    found["is_same"] = sorted(nodes(local)) == sorted(early)
    limited = frame.mapInArrow(limit_of_a_worker, "limit long")
    found["worker_limits"] = sorted({row["limit"] for row in limited.collect()})
    sparkcache.install(spark, sparkcache.CacheConfig(max_bytes=32 << 20))
    found["rows"] += [frame.count(), topic.rows]
    found["installed_limits"] = limits(spark)
    for pid in early:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not nodes(local).keys() & early.keys())
    found["rows"] += [frame.count(), topic.rows]
    found["later"] = len(nodes(local).keys() - early.keys())
    logs = Path(os.environ["SPARK_HOME"], "work", spark.sparkContext.applicationId)
    spark.stop()
    found["left_at_once"] = len(nodes(local))
    found["left"] = not until(lambda: not nodes(local))
    shutil.rmtree(logs, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
