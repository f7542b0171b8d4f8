"""What planning a Delta table costs, by its number of files.

    .venv/bin/python tests/benchmarks/delta_planning.py [--json] [--save]

Tables of 3,000, 30,000 and 300,000 files of 4 MiB, from a bucket that answers after
20 ms. Their log consists of commits of 100 files each, or of one checkpoint in ten
parts. Loading and planning are what Spark does in its Python processes; each is done in
a new process, as there. Each number is the median of ROUNDS, of the largest table one.

    load_s        `load()`: version and columns, from the log
    plan_s        reading the files in the log, finding their extents, and cutting these
                  into partitions
    plan_mb       the most memory that loading and planning take, beyond imports
    file_bytes    what a file adds to what Spark sends to tasks
    partition_bytes
                  what a partition costs
    requests      that planning makes: for the log, pages of listings, footers
    growth        plan_s of a file among 300,000 / among 30,000

`where` is the same for a twelfth of the partitions, `columns` for one column of the
ten, for which footers are read (of the smallest table only).
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
began = time.perf_counter()
source = SparkCacheSource(json.loads(sys.argv[1]))
loaded = time.perf_counter()
partitions = source.reader(source.schema()).partitions()
planned = time.perf_counter()
sizes = [len(CloudPickleSerializer().dumps(each)) for each in partitions]
print(json.dumps({
    "load_s": loaded - began,
    "plan_s": planned - loaded,
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
        result[str(files)] = {
            "commits": planned(files),
            "checkpoint": planned(files, checkpoint=True),
            "where": planned(files, checkpoint=True, where=WHERE),
        }
    result["columns"] = {
        str(FILES[0]): planned(FILES[0], checkpoint=True, columns="c1")
    }
    for way in ("commits", "checkpoint"):
        few, many = (result[str(files)][way]["plan_s"] / files for files in FILES[1:])
        result[f"growth_{way}"] = round(many / few, 3)
    return result


def planned(files: int, *, checkpoint: bool = False, **options: str) -> dict[str, Any]:
    """Plan one table, several times."""
    with tempfile.TemporaryDirectory(prefix="planning-") as name:
        directory = Path(name)
        many_files.write_log(directory, files, checkpoint=checkpoint)
        with many_files.serving(directory, files, LATENCY_S) as server:
            rounds = 1 if files == FILES[-1] else ROUNDS
            measured = []
            for _ in range(rounds):
                measured.append(_planned_once(server, options))
                requests = server.counts()
    chosen = {
        key: statistics.median(each[key] for each in measured) for key in measured[0]
    }
    assert options or chosen["files"] == files
    return {
        "load_s": round(chosen["load_s"], 2),
        "plan_s": round(chosen["plan_s"], 2),
        "plan_mb": round(chosen["plan_mb"]),
        "files": chosen["files"],
        "file_bytes": round(chosen["bytes"] / chosen["files"]),
        "partition_bytes": round(chosen["bytes"] / chosen["partitions"]),
        "requests": requests,
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
