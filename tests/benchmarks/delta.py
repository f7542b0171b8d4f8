"""Five consumers of one Delta table: sparkcache, Delta's own reader, and persist().

    python tests/benchmarks/delta.py [--json] [--save]

Five jobs that differ read a table of 64 MiB in 8 files, loaded once, on local[2], one
after another, from an S3 server that answers after 20 ms. Nearly all of the table is
one column, and each job needs it: of a job that does not, Delta's reader would fetch
little, while `columns` has to name what is wanted for all. delta-spark reads from the
same server through Hadoop's S3A, in the same session, as it comes: its streams keep
blocks that others ask for as well, so its file system is opened again for each way.

    seconds_over_delta      planned consumers / spark.read.format("delta")
    seconds_over_persist    / the latter with persist(MEMORY_ONLY), filled by the first
    bytes_over_first_scan   bytes of data that the server sends for all / for one scan

Bytes are those of row groups: requests for less than a footer's 64 KiB are apart, as
what an index object would be; `bytes_with_footers_over_first_scan` has them. Seconds
are medians of 5 rounds, in which the ways alternate, after a warm-up. Needs Maven, for
the jars.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from pyspark import StorageLevel
from pyspark.sql import functions as F

import sparkcache
from tests.benchmarks import record, remote
from tests.delta_jars import COORDINATES, S3A, fetch_jars

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.testing.s3_server import S3Server

TABLE = "sales/orders"
S3A_TABLE = f"s3a://{remote.BUCKET}/{TABLE}"
FILES = 8
ROWS = 8192
VALUE_BYTES = 1024
LATENCY_S = 0.02
ROUNDS = 5
FOOTER_BYTES = 64 << 10
JOBS: tuple[Callable[[DataFrame], DataFrame], ...] = (
    lambda rows: rows.agg(F.sum(F.length("value")), F.count("*")),
    lambda rows: rows.filter("hex(substring(value, 1, 1)) < '20'").agg(F.count("*")),
    lambda rows: rows.groupBy("shop").agg(F.max("id"), F.sum(F.crc32("value"))),
    lambda rows: rows.agg(F.max("at"), F.sum(F.crc32("value"))),
    lambda rows: rows.agg(F.min("id"), F.max(F.substring("value", 1, 4))),
)


def measure() -> dict[str, Any]:
    """Take times, and count bytes."""
    with (
        remote.bucket() as server,
        tempfile.TemporaryDirectory(prefix="delta-") as directory,
    ):
        jars = fetch_jars(Path(directory) / "jars", COORDINATES, *S3A)
        write(server, Path(directory) / "table")
        server.behave(latency_s=LATENCY_S)
        spark = remote.session(conf(server, jars))
        try:
            return Consumers(server, spark).measure()
        finally:
            spark.stop()


def write(server: S3Server, directory: Path) -> None:
    """Put the table into the bucket."""
    for number in range(FILES):
        random = np.random.default_rng(number)
        first = number * ROWS
        rows = {
            "id": pa.array(range(first, first + ROWS), pa.int64()),
            "shop": pa.array([f"shop-{row % 7}" for row in range(ROWS)]),
            "at": pa.array(range(first, first + ROWS), pa.timestamp("us", "UTC")),
            "value": pa.array([random.bytes(VALUE_BYTES) for _ in range(ROWS)]),
        }
        write_deltalake(directory, pa.table(rows), mode="append")
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            key = f"{TABLE}/{path.relative_to(directory)}"
            server.put(remote.BUCKET, key, path.read_bytes())


def conf(server: S3Server, jars: list[Path]) -> dict[str, str]:
    """Return what delta-spark needs to read from the server."""
    delta, s3a = "org.apache.spark.sql.delta.catalog", "spark.hadoop.fs.s3a."
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": f"{delta}.DeltaCatalog",
        f"{s3a}endpoint": server.endpoint,
        f"{s3a}endpoint.region": server.environment()["AWS_DEFAULT_REGION"],
        f"{s3a}path.style.access": "true",
        f"{s3a}access.key": "any",
        f"{s3a}secret.key": "any",
    }


class Consumers:
    """A bucket, a session, and the same jobs done in three ways."""

    def __init__(self, server: S3Server, spark: SparkSession) -> None:
        self._server = server
        self._spark = spark
        self._results = remote.Results()

    def measure(self) -> dict[str, Any]:
        """Return what the benchmark prints."""
        ways = {"planned": self.planned, "delta": self.delta, "persist": self.persisted}
        spent: dict[str, list[float]] = {way: [] for way in ways}
        sent: dict[str, list[int]] = {way: [] for way in ways}
        data = 0
        for turn in range(ROUNDS + 1):
            for way, run in ways.items():
                self.reopen()
                began = time.perf_counter()
                run()
                if turn:
                    spent[way].append(time.perf_counter() - began)
                    sent[way].append(self.sent_bytes())
                if way == "planned":
                    data = self.sent_bytes(over=FOOTER_BYTES)
        self._server.forget()
        JOBS[0](self.rows(enabled="false")).collect()
        one, one_data = self.sent_bytes(), self.sent_bytes(over=FOOTER_BYTES)
        seconds = {way: statistics.median(times) for way, times in spent.items()}
        sizes = {way: statistics.median(counts) for way, counts in sent.items()}
        return {
            "seconds_over_delta": round(seconds["planned"] / seconds["delta"], 3),
            "seconds_over_persist": round(seconds["planned"] / seconds["persist"], 3),
            "bytes_over_first_scan": round(data / one_data, 4),
            "bytes_with_footers_over_first_scan": round(sizes["planned"] / one, 4),
            "bytes_over_first_scan_delta": round(sizes["delta"] / one, 4),
            "bytes_over_first_scan_persist": round(sizes["persist"] / one, 4),
            "seconds": {way: round(taken, 3) for way, taken in seconds.items()},
            "first_scan_bytes": one,
        }

    def reopen(self) -> None:
        """Have S3A forget what its streams keep of the way before, and be connected."""
        jvm: Any = self._spark._jvm
        jvm.org.apache.hadoop.fs.FileSystem.closeAll()
        log = jvm.org.apache.hadoop.fs.Path(f"{S3A_TABLE}/_delta_log")
        conf = self._spark.sparkContext._jsc.hadoopConfiguration()
        assert log.getFileSystem(conf).exists(log)
        self._server.forget()

    def planned(self) -> None:
        """Run the jobs as planned consumers."""
        rows = self.rows()
        frames = [job(rows) for job in JOBS]
        with sparkcache.plan(*frames):
            self._results.check([frame.collect() for frame in frames])

    def delta(self) -> None:
        """Run the jobs on what Delta reads."""
        rows = self.of_delta()
        self._results.check([job(rows).collect() for job in JOBS])

    def persisted(self) -> None:
        """Run the jobs on what the first one has persisted."""
        rows = self.of_delta().persist(StorageLevel.MEMORY_ONLY)
        self._results.check([job(rows).collect() for job in JOBS])
        rows.unpersist(blocking=True)

    def rows(self, **options: str) -> DataFrame:
        """Return the table as sparkcache reads it."""
        reader = self._spark.read.format("sparkcache").option("connector", "delta")
        return reader.options(topic=TABLE, **options).load(remote.ROOT)

    def of_delta(self) -> DataFrame:
        """Return the table as Delta reads it."""
        return self._spark.read.format("delta").load(S3A_TABLE)

    def sent_bytes(self, over: int = 0) -> int:
        """Return the bytes of data files in answers above a size."""
        return sum(
            request.sent_bytes
            for request in self._server.requests()
            if request.key.endswith(".parquet") and request.sent_bytes > over
        )


if __name__ == "__main__":
    record.run("delta", measure, ("pyspark", "pyarrow", "deltalake", "moto"))
