"""What those benchmarks share that read from S3 through Spark."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import sparkcache
from sparkcache.testing.s3_server import S3Server
from sparkcache_pulsar.testing import synthetic_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BUCKET = "offload"
ROOT = f"s3://{BUCKET}"
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


@contextmanager
def bucket() -> Iterator[S3Server]:
    """Serve an empty bucket, which is all that this process knows of S3."""
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        yield server


def put_topic(server: S3Server, topic: str, size_bytes: int, ledgers: int) -> int:
    """Put a topic of Pulsar's into the bucket; return the bytes of its data objects."""
    written = 0
    for stored in synthetic_topic(topic, size_bytes, ledgers=ledgers):
        server.put(BUCKET, stored.key, stored.data, stored.metadata)
        written += 0 if stored.key.endswith("-index") else len(stored.data)
    return written


def sent_bytes(server: S3Server) -> int:
    """Return how many bytes of a topic's data objects the server has sent."""
    return sum(
        counted.sent_bytes
        for key, counted in server.counts().items()
        if not key.endswith(("/", "-index"))
    )


class Results:
    """The results of jobs, which are the same however the jobs are done."""

    def __init__(self) -> None:
        self._expected: list[list[Any]] | None = None

    def check(self, results: list[list[Any]]) -> None:
        """Require the same results as the first time."""
        found = [sorted(rows) for rows in results]
        if self._expected is None:
            self._expected = found
        assert found == self._expected


def session(
    conf: Mapping[str, str] | None = None, master: str = "local[2]"
) -> SparkSession:
    """Start Spark with two cores, or on a cluster, and with further settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    builder = builder.master(master)
    for name, value in (_CONF | dict(conf or {})).items():
        builder = builder.config(name, value)
    return sparkcache.configure(builder).getOrCreate()
