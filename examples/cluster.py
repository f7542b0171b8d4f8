"""Three consumers of one topic on a cluster of three executors: with homes and without.

    python examples/cluster.py [--mib 48] [--latency-ms 20] [--json]

Takes one to two minutes on two cores, most of it the start of the cluster.

With a cache, each part of a topic has a home: one of the executors, which keeps it, and
which Spark prefers for the tasks that read it. So the cluster fetches each byte once.
For comparison the same consumers run without a cache, and with a cache whose executors
each keep what their own tasks have read, with `spark.sparkcache.homes` off.

Everything runs on this machine, and ends with this program: an S3 server (moto), which
delays its responses a little and counts the bytes it sends, and a standalone cluster of
Spark, with a master and three workers, each with an executor of one core. The topic is
written as a Pulsar broker offloads it. Each consumer reads the whole topic. The three
executors share the cores of this machine, so the seconds tell little about a cluster.

The last line of the output is one JSON object; with --json it is the whole output.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import report
import shop
from bucket import BUCKET, MIB, offload
from consumers import Consumers
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table
from session import started_spark

from sparkcache.metrics import Metrics
from sparkcache.testing.s3_server import S3Server
from sparkcache.testing.standalone import JAVA_OPTIONS, Standalone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from report import Way
    from rich.progress import Progress

EXECUTORS = 3
LEDGERS = 12
WAYS = {
    "without": "without a cache",
    "without_homes": "a cache, without homes",
    "with": "a cache, with homes",
}
_CONF = {
    "spark.cores.max": str(EXECUTORS),
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    # The first job waits until all executors are there: the homes of a topic are among
    # the executors that Spark knows when a query is planned.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    # How long a task waits for its home, if that is busy. All executors share the cores
    # of this machine, so one may well be busy for longer than Spark's default of 3 s.
    "spark.locality.wait": "30s",
}


@contextmanager
def cluster(directory: Path, log: Path) -> Iterator[SparkSession]:
    """Start a cluster, and a session on it, all of whose executors are there."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("sparkcache cluster")
    for key, value in _CONF.items():
        builder = builder.config(key, value)
    workers = Standalone(directory, EXECUTORS, cores=1, memory="512m")
    with workers, started_spark(builder, log, workers.url) as spark:
        spark.range(EXECUTORS).count()
        yield spark


def run(arguments: argparse.Namespace, progress: Progress, log: Path) -> dict[str, Any]:
    """Write the topic; read it in all ways; return the results."""
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        task = progress.add_task("writing the topic", total=LEDGERS)
        offload(server, MIB, range(100, 100 + EXECUTORS), shop.WARM_UP)
        written = []
        for ledger in range(1, 1 + LEDGERS):
            size_bytes = arguments.mib * MIB // LEDGERS
            written.append(offload(server, size_bytes, range(ledger, ledger + 1)))
            progress.advance(task)
        server.behave(latency_s=arguments.latency_ms / 1000)
        task = progress.add_task("starting a cluster", total=2)
        with cluster(log.parent, log) as spark:
            progress.advance(task)
            consumers = Consumers(server, spark, progress)
            consumers.with_cache(shop.WARM_UP)
            progress.advance(task)
            server.forget()
            ways = {
                "without": consumers.without(shop.TOPIC, WAYS["without"]),
                "without_homes": consumers.with_cache(
                    shop.TOPIC, WAYS["without_homes"], homes="false"
                ),
            }
            before = consumers.metrics()
            ways["with"] = consumers.with_cache(shop.TOPIC, WAYS["with"])
            spent = consumers.metrics() - before
    return results(ways, spent, written)


def results(
    ways: dict[str, Way], spent: Metrics, written: list[tuple[int, int]]
) -> dict[str, Any]:
    """Return the record that the example prints as its last line."""
    rows = sum(messages for _, messages in written)
    counted = {reading.rows for way in ways.values() for reading in way.readings}
    found = [[reading.result for reading in way.readings] for way in ways.values()]
    return {
        "executors": EXECUTORS,
        "consumers": len(shop.CONSUMERS),
        "rows": rows,
        "rows_equal": counted == {rows} and all(each == found[0] for each in found),
        "topic_bytes": sum(size_bytes for size_bytes, _ in written),
        "home_requests": spent.home_requests,
        "away_requests": spent.away_requests,
        "away_bytes": spent.away_bytes,
        **{f"gets_{key}": way.total("gets") for key, way in ways.items()},
        **{f"bytes_{key}": way.total("bytes") for key, way in ways.items()},
        **{f"seconds_{key}": round(way.seconds, 3) for key, way in ways.items()},
    }


def table(results: dict[str, Any]) -> Table:
    """Return the results as a table."""
    shown = Table(min_width=72)
    shown.add_column("")
    for name in ("GETs", "MiB from S3", "times the topic", "seconds"):
        shown.add_column(name, justify="right")
    for key, name in WAYS.items():
        sent_bytes = results[f"bytes_{key}"]
        shown.add_row(
            name,
            f"{results[f'gets_{key}']:,}",
            f"{sent_bytes / MIB:,.1f}",
            f"{sent_bytes / results['topic_bytes']:.2f}",
            f"{results[f'seconds_{key}']:.2f}",
        )
    return shown


def remarks(results: dict[str, Any]) -> str:
    """Return notes on the table."""
    rows = "Rows are equal." if results["rows_equal"] else "[red]Rows differ.[/red]"
    at_home = results["home_requests"]
    asked_for = at_home + results["away_requests"]
    return (
        f"{rows} The topic has {results['topic_bytes'] / MIB:.1f} MiB. "
        f"{results['consumers']} consumers read it one after\nanother on "
        f"{results['executors']} executors. With homes, {at_home:,} of {asked_for:,} "
        "runs were asked for at their home,\nand "
        f"{results['away_bytes'] / MIB:.1f} MiB were fetched by tasks elsewhere."
    )


def is_as_promised(results: dict[str, Any]) -> bool:
    """Return whether every byte was sent once with homes, and all rows are equal."""
    return bool(
        results["rows_equal"] and results["bytes_with"] == results["topic_bytes"]
    )


def main() -> int:
    """Run the example; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Three consumers of one topic on a cluster of three executors."
    )
    parser.add_argument("--mib", type=int, default=48, help="size of the topic")
    parser.add_argument(
        "--latency-ms",
        type=float,
        default=20.0,
        help="how long the S3 server waits before it responds",
    )
    parser.add_argument("--json", action="store_true", help="print nothing but JSON")
    arguments = parser.parse_args()
    console = Console(quiet=arguments.json)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # end the cluster, too
    with tempfile.TemporaryDirectory(
        prefix="sparkcache-cluster-", ignore_cleanup_errors=True
    ) as directory:
        log = Path(directory) / "spark.log"
        try:
            with report.progress_bars(console) as progress:
                found = run(arguments, progress, log)
        except Exception:
            if log.exists():
                sys.stderr.write(log.read_text(errors="replace"))
            raise
    console.print(table(found))
    console.print(remarks(found))
    print(json.dumps(found))
    return 0 if is_as_promised(found) else 1


if __name__ == "__main__":
    sys.exit(main())
