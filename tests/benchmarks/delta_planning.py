"""What planning a Delta table costs, by its number of files.

    .venv/bin/python tests/benchmarks/delta_planning.py [--json] [--save]

Tables of 3,000, 30,000 and 300,000 files of 4 MiB, from a bucket that answers after
20 ms. Their log consists of commits of 100 files each, or of one checkpoint in ten
parts. Loading and planning are what Spark does in its Python processes; each is done in
a new process, as there. Numbers are medians of 3, of the largest table a single one.

    load_s        `load()`: version and columns, from the log
    plan_s        reading the files in the log, finding their extents, and cutting these
                  into partitions
    pickle_s      turning the partitions into the bytes that Spark sends to tasks
    cpu_s         processor time of load_s and plan_s, which busy cores change less
    plan_mb       the most memory that loading and planning take, beyond imports
    file_bytes    what a file adds to what Spark sends to tasks
    partition_bytes
                  what a partition costs
    log, pages, footers
                  the requests of both, for the log, pages of listings and footers
    growth        cpu_s of a file among 300,000 / among 30,000

`where` leaves a part of the partitions. `columns` reads one column: of files that are
not smaller than 1 MiB, footers are read then, and only the smallest table is planned.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks import many_files, record

FILES = (3_000, 30_000, 300_000)
LATENCY_S = 0.02
ROUNDS = 3
WHERE = "day >= '2025-03-01' and day < '2025-04-01'"
_PLANNED_ONCE = """
import json, re, sys, time
from pathlib import Path
from pyspark.serializers import CloudPickleSerializer
from sparkcache.source.datasource import SparkCacheSource
import sparkcache_delta.discovery, sparkcache_delta.log

def peak_mb():
    status = Path("/proc/self/status").read_text()  # resource has that of the parent
    return int(re.search("VmHWM:[^0-9]*([0-9]+)", status)[1]) / 1024

before = peak_mb()
began, cpu = time.perf_counter(), time.process_time()
source = SparkCacheSource(json.loads(sys.argv[1]))
loaded = time.perf_counter()
partitions = source.reader(source.schema()).partitions()
planned, cpu = time.perf_counter(), time.process_time() - cpu
sizes = [len(CloudPickleSerializer().dumps(each)) for each in partitions]
print(json.dumps({
    "load_s": loaded - began,
    "plan_s": planned - loaded,
    "pickle_s": time.perf_counter() - planned,
    "cpu_s": cpu,
    "plan_mb": peak_mb() - before,
    "files": sum(len(each.pieces) for each in partitions),
    "partitions": len(partitions),
    "bytes": sum(sizes),
}))
"""


def measure() -> dict[str, Any]:
    """Plan each table."""
    result: dict[str, Any] = {}
    for files in FILES:
        commits = planned(files, {"commits": {}})
        ways = {"checkpoint": {}, "where": {"where": WHERE}}
        if files == FILES[0]:
            ways["columns"] = {"columns": "c1"}
        result[str(files)] = commits | planned(files, ways, checkpoint=True)
    for way in ("commits", "checkpoint"):
        few, many = (result[str(files)][way]["cpu_s"] / files for files in FILES[1:])
        result[f"growth_{way}"] = round(many / few, 3)
    return result


def planned(
    files: int, ways: dict[str, dict[str, str]], *, checkpoint: bool = False
) -> dict[str, dict[str, Any]]:
    """Plan one table with the options of each way, in turns."""
    measured: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    requests: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="planning-") as name:
        directory = Path(name)
        many_files.write_log(directory, files, checkpoint=checkpoint)
        with many_files.serving(directory, files, LATENCY_S) as server:
            for _ in range(1 if files == FILES[-1] else ROUNDS):
                for way, options in ways.items():
                    measured[way].append(_planned_once(server, options))
                    requests[way] = server.counts()
    assert all(
        each["files"] == files
        for way in measured
        for each in measured[way]
        if "where" not in ways[way]
    )
    return {way: _summary(measured[way]) | requests[way] for way in ways}


def _summary(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians."""
    median = {
        key: statistics.median(each[key] for each in measured) for key in measured[0]
    }
    return {
        "load_s": round(median["load_s"], 2),
        "plan_s": round(median["plan_s"], 2),
        "pickle_s": round(median["pickle_s"], 2),
        "cpu_s": round(median["cpu_s"], 2),
        "plan_mb": round(median["plan_mb"]),
        "file_bytes": round(median["bytes"] / median["files"]),
        "partition_bytes": round(median["bytes"] / median["partitions"]),
    }


def _planned_once(
    server: many_files.TableServer, options: dict[str, str]
) -> dict[str, Any]:
    """Plan in a new process."""
    path = f"s3://{many_files.BUCKET}"
    given = {"connector": "delta", "topic": many_files.TABLE, "path": path, **options}
    done = subprocess.run(
        [sys.executable, "-c", _PLANNED_ONCE, json.dumps(given)],
        env=os.environ | server.environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    record.run("delta_planning", measure, ("pyarrow", "deltalake", "boto3"))
