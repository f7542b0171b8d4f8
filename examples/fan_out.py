"""Three jobs over one topic, each with a Delta table as sink, planned and unplanned.

    python examples/fan_out.py [--mib 32] [--latency-ms 20] [--jars a.jar,b.jar]

Takes one to two minutes on two cores, most of it the start of Spark, and a little more
the first time, when Spark fetches the jars of Delta from Maven Central. It shows

- `sparkcache.plan` around the writes of three jobs: the first job reads the topic from
  S3, and the other two read it from the cache;
- that every sink has the same rows as without sparkcache;
- that such a table is itself a topic: two jobs read one of the sinks, with
  `connector=delta`, through the same cache.

Everything runs on this machine: an S3 server, which delays its responses a little and
counts the bytes it sends, Spark, and the tables, which are removed at the end. It needs
`pip install '.[demo,delta]' delta-spark`. If Maven Central cannot be reached, pass the
jars with --jars. The last line of the output is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shop
from bucket import BUCKET, MIB, URL, offload, sent
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table
from session import started_spark

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.testing.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOBS = {"archive": shop.archive, "fraud": shop.fraud, "billing": shop.billing}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": (
        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
    "spark.databricks.delta.snapshotPartitions": "2",  # the tables are small
}


class NoDeltaError(Exception):
    """Delta is not available for Spark; the message has the reason and a remedy."""


def with_delta(jars: str | None) -> SparkSession.Builder:
    """Return a builder whose session writes Delta. Raises NoDeltaError.

    Args:
        jars: Paths of Delta's jars, separated by commas; None to let Spark fetch the
            jars that belong to the installed delta-spark.

    """
    builder = SparkSession.builder.appName("sparkcache fan-out")
    for key, value in _DELTA.items():
        builder = builder.config(key, value)
    if jars:
        return builder.config("spark.jars", jars)
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise NoDeltaError(
            "The sinks are Delta tables, and delta-spark is not installed: "
            "pip install delta-spark,\nor pass its jars: --jars a.jar,b.jar"
        ) from error
    return configure_spark_with_delta_pip(builder)


def jars_missing(log: str) -> NoDeltaError | None:
    """Return an error if a log says that Spark could not fetch the jars."""
    problem = re.search(r"\[((?:unresolved dependency|download failed): .*)\]", log)
    return problem and NoDeltaError(
        f"Spark could not fetch the jars of Delta: {problem[1]}.\nIt uses Maven "
        "Central, or the repository that DEFAULT_ARTIFACT_REPOSITORY names. Make one "
        "reachable\nthat has them, install a version of delta-spark that it has, or "
        "pass the jars: --jars a.jar,b.jar.\nIf a download failed, ~/.m2/repository "
        "may have the description of a jar but not the jar: move it aside."
    )


class FanOut:
    """A topic in a bucket, and the sinks of jobs that read it."""

    def __init__(self, server: S3Server, spark: SparkSession, sinks: Path) -> None:
        self._server = server
        self._spark = spark
        self._sinks = sinks

    def without(self, topic: str) -> list[dict[str, Any]]:
        """Run the jobs one after another, without the cache."""
        return self._write(topic, "without", self._jobs(topic, enabled="false"))

    def planned(self, topic: str) -> list[dict[str, Any]]:
        """Run the jobs one after another as a plan, with the cache."""
        jobs = self._jobs(topic)
        with sparkcache.plan(*jobs.values()):
            return self._write(topic, "with", jobs)

    def rows(self, way: str, job: str) -> list[tuple[Any, ...]]:
        """Return the rows of a sink, sorted."""
        sink = self._spark.read.format("delta").load(self._sink(shop.TOPIC, way, job))
        return sorted(tuple(row) for row in sink.collect())

    def read_back(self) -> dict[str, int]:
        """Read the archive as a topic by two planned jobs; return the counts."""
        orders = (
            self._spark.read.format("sparkcache")
            .option("connector", "delta")
            .load(self._sink(shop.TOPIC, "with", "archive"))
        )
        customers = orders.select(F.countDistinct("customer"))
        sales = orders.groupBy("country").agg(F.count("*").alias("orders"))
        before = self._metrics()
        with sparkcache.plan(customers, sales):
            ((customers_counted,),) = customers.collect()
            orders_counted = sum(row["orders"] for row in sales.collect())
            metrics = self._metrics() - before
        return {
            "archive_orders": orders_counted,
            "archive_customers": customers_counted,
            "archive_asked_bytes": metrics.requested_bytes,
            "archive_read_bytes": metrics.received_bytes,
        }

    def _jobs(self, topic: str, **options: str) -> dict[str, DataFrame]:
        orders = (
            self._spark.read.format("sparkcache")
            .option("topic", topic)
            .option("partitionBytes", "8m")
            .options(**options)
            .load(URL)
        )
        return {name: job(orders) for name, job in JOBS.items()}

    def _write(
        self, topic: str, way: str, jobs: dict[str, DataFrame]
    ) -> list[dict[str, Any]]:
        """Write the sinks; return the bytes sent and the time taken for each."""
        written = []
        for job, frame in jobs.items():
            before, began = sent(self._server), time.perf_counter()
            frame.write.format("delta").save(self._sink(topic, way, job))
            seconds, after = time.perf_counter() - began, sent(self._server)
            written.append(
                {
                    "job": job,
                    "gets": after.gets - before.gets,
                    "bytes": after.sent_bytes - before.sent_bytes,
                    "seconds": round(seconds, 3),
                }
            )
        return written

    def _sink(self, topic: str, way: str, job: str) -> str:
        return str(self._sinks / topic.rpartition("/")[2] / way / job)

    def _metrics(self) -> Metrics:
        return sum(node_metrics(self._spark).values(), Metrics())


def run(arguments: argparse.Namespace, log: Path) -> dict[str, Any]:
    """Run the jobs both ways and read the sinks; return the results."""
    builder = with_delta(arguments.jars)
    with S3Server() as server, server.as_environment():
        print("Starting Spark with Delta ...", flush=True)
        with started_spark(builder, log) as spark:
            print("Writing the topic, warming up with a small one ...", flush=True)
            server.create_bucket(BUCKET)
            offload(server, arguments.mib * MIB // 8, range(100, 101), shop.WARM_UP)
            topic_bytes, orders = offload(server, arguments.mib * MIB, range(1, 5))
            server.behave(latency_s=arguments.latency_ms / 1000)
            fan_out = FanOut(server, spark, log.parent)
            for way in [fan_out.without, fan_out.planned] * arguments.warm_ups:
                way(shop.WARM_UP)
            print("Running three jobs without a cache ...", flush=True)
            without = fan_out.without(shop.TOPIC)
            print("Running them planned ...", flush=True)
            planned = fan_out.planned(shop.TOPIC)
            print("Reading the sinks ...", flush=True)
            rows = {job: fan_out.rows("with", job) for job in JOBS}
            equal = all(rows[job] == fan_out.rows("without", job) for job in JOBS)
            archive = fan_out.read_back()
    return {
        "rows": {job: len(stored) for job, stored in rows.items()},
        "orders": orders,
        "topic_bytes": topic_bytes,
        "bytes_without": sum(job["bytes"] for job in without),
        "bytes_with": sum(job["bytes"] for job in planned),
        "seconds_without": round(sum(job["seconds"] for job in without), 3),
        "seconds_with": round(sum(job["seconds"] for job in planned), 3),
        "rows_equal": equal,
        "without": without,
        "with": planned,
        **archive,
    }


def is_as_promised(results: dict[str, Any]) -> bool:
    """Return whether every byte was sent once, and all sinks have the right rows."""
    return bool(
        results["rows_equal"]
        and results["bytes_with"] == results["topic_bytes"]
        and results["archive_orders"] == results["rows"]["archive"] == results["orders"]
    )


def table(results: dict[str, Any]) -> Table:
    """Return the results as a table."""
    shown = Table(min_width=72)
    shown.add_column("job")
    for name in ("rows in its sink", "MiB from S3", "planned", "seconds", "planned"):
        shown.add_column(name, justify="right")
    for without, planned in zip(results["without"], results["with"], strict=True):
        shown.add_row(
            planned["job"],
            f"{results['rows'][planned['job']]:,}",
            *(f"{job['bytes'] / MIB:,.1f}" for job in (without, planned)),
            *(f"{job['seconds']:.2f}" for job in (without, planned)),
        )
    shown.add_section()
    shown.add_row(
        "all",
        f"{sum(results['rows'].values()):,}",
        *(f"{results[f'bytes_{way}'] / MIB:,.1f}" for way in ("without", "with")),
        *(f"{results[f'seconds_{way}']:.2f}" for way in ("without", "with")),
        style="bold",
    )
    return shown


def remarks(results: dict[str, Any]) -> str:
    """Return notes on the table."""
    equal = "the same rows" if results["rows_equal"] else "DIFFERENT ROWS"
    return (
        f"Planned, the sinks have {equal} as without a cache.\n"
        f"The topic has {results['topic_bytes'] / MIB:.1f} MiB. Two planned jobs then "
        "read the archive as a topic: they\nrequested "
        f"{results['archive_asked_bytes'] / MIB:.1f} MiB of its files, of which "
        f"{results['archive_read_bytes'] / MIB:.1f} MiB were fetched; "
        f"it has {results['archive_orders']:,} orders of "
        f"{results['archive_customers']:,} customers."
    )


def main() -> int:
    """Run the example; return the exit status."""
    parser = argparse.ArgumentParser(description="Three jobs with Delta sinks.")
    parser.add_argument("--mib", type=int, default=32, help="size of the topic")
    parser.add_argument(
        "--latency-ms", type=float, default=20.0, help="how long S3 takes to respond"
    )
    parser.add_argument(
        "--warm-ups", type=int, default=1, help="rounds with a small topic first"
    )
    parser.add_argument("--jars", help="Delta's jars, if Spark cannot fetch them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparkcache-fan-out-") as directory:
        log = Path(directory) / "spark.log"
        try:
            results = run(arguments, log)
        except NoDeltaError as error:
            sys.exit(str(error))
        except BaseException:
            text = log.read_text(errors="replace") if log.exists() else ""
            if problem := jars_missing(text):
                sys.exit(str(problem))
            sys.stderr.write(text)
            raise
    console = Console()
    console.print(table(results))
    console.print(remarks(results))
    print(json.dumps(results))
    return 0 if is_as_promised(results) else 1


if __name__ == "__main__":
    sys.exit(main())
