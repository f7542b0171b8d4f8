"""What planning a topic of Pulsar's costs, by its number of ledgers.

    .venv/bin/python tests/benchmarks/scale_planning.py [--json] [--save]

Topics of 10,000 and of 100,000 ledgers of four messages, from a bucket that answers
after 20 ms. Planning is what Spark does in a Python process for each action, done in a
new process, as there: loading, reading indexes, cutting into partitions as the reader
in the JVM opens them, and turning these into the bytes that Spark ships. The server
runs on the same cores; what it takes of them is `server_cpu_s`.

    plan_s         planning with an empty directory of what was read before
    plan_again_s   planning once more: a listing, and what is kept on the disk
    plan_mb        the most memory that a plan takes, imports included
    cpu_s          processor time of a plan
    kept_mb        what is kept on the disk
    pages, indexes requests
    ledger_bytes   what a ledger adds to what Spark ships

Numbers are medians of 3, of the larger topic single ones.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.benchmarks import many_ledgers, record

if TYPE_CHECKING:
    from collections.abc import Mapping

LEDGERS = {"10k": 10_000, "100k": 100_000}
LATENCY_S = 0.02
ROUNDS = 3
PACKAGES = ("boto3", "obstore", "msgspec", "pyarrow")
_PLANNED_ONCE = """
import json, re, sys, time
from pathlib import Path
from pyspark.serializers import CloudPickleSerializer
from sparkcache.source.batch import jvm_partition
from sparkcache.source.datasource import SparkCacheSource
import sparkcache.storage.s3, sparkcache_pulsar

def peak_mb():
    status = Path("/proc/self/status").read_text()  # resource has that of the parent
    return int(re.search("VmHWM:[^0-9]*([0-9]+)", status)[1]) / 1024

began, cpu = time.perf_counter(), time.process_time()
source = SparkCacheSource(json.loads(sys.argv[1]) | {jvm_partition.OPTION: "{}"})
reader = source.reader(source.schema())
partitions = reader.partitions()
pickler = CloudPickleSerializer()
shipped = sum(len(pickler.dumps(each)) for each in [reader, *partitions])
print(json.dumps({
    "s": time.perf_counter() - began,
    "cpu_s": time.process_time() - cpu,
    "mb": peak_mb(),
    "ledgers": sum(len(each.partition.pieces) for each in partitions),
    "shipped_bytes": shipped,
}))
"""


def measure() -> dict[str, Any]:
    """Plan each topic, again and again."""
    result: dict[str, Any] = {}
    for name, ledgers in LEDGERS.items():
        shape = many_ledgers.Shape(ledgers)
        with many_ledgers.serving(shape, LATENCY_S) as server:
            rounds = 1 if ledgers == max(LEDGERS.values()) else ROUNDS
            measured = [_planned_twice(server, ledgers) for _ in range(rounds)]
        result |= {
            f"{key}_{name}": round(statistics.median(one[key] for one in measured), 3)
            for key in measured[0]
        }
    result["plan_mb"] = result.pop("plan_mb_100k")
    return result


def _planned_twice(server: many_ledgers.LedgerServer, ledgers: int) -> dict[str, float]:
    """Plan a topic of which nothing is known, and then once more."""
    with TemporaryDirectory(prefix="planning-") as kept:
        server.counts()
        first = _planned(server, kept)
        asked = server.counts()
        again = _planned(server, kept)
        asked_again = server.counts()
        kept_bytes = sum(file.stat().st_size for file in Path(kept).rglob("*.kept"))
    assert first["ledgers"] == again["ledgers"] == ledgers
    assert (asked["indexes"], asked_again["indexes"]) == (ledgers, 0)
    return {
        "plan_s": first["s"],
        "plan_again_s": again["s"],
        "plan_mb": max(first["mb"], again["mb"]),
        "cpu_s": first["cpu_s"],
        "cpu_again_s": again["cpu_s"],
        "server_cpu_s": asked["cpu_s"],
        "pages": asked["pages"],
        "indexes": asked["indexes"],
        "kept_mb": kept_bytes / (1 << 20),
        "ledger_bytes": first["shipped_bytes"] / ledgers,
    }


def _planned(server: many_ledgers.LedgerServer, kept: str) -> Mapping[str, float]:
    """Plan in a new process."""
    given = {
        "connector": "pulsar",
        "topic": many_ledgers.TOPIC,
        "path": many_ledgers.ROOT,
        "planCachePath": kept,
    }
    done = subprocess.run(
        [sys.executable, "-c", _PLANNED_ONCE, json.dumps(given)],
        env=os.environ | server.environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    record.run("scale_planning", measure, PACKAGES)
