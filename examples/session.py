"""A session for the examples, whose JVM logs to a file."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sparkcache

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_LOG4J = """
rootLogger.level = error
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""


@contextmanager
def started_spark(
    builder: SparkSession.Builder, log: Path, master: str = "local[2]"
) -> Iterator[SparkSession]:
    """Start a session with two cores or on a cluster, whose JVM logs to a file."""
    log4j = log.with_suffix(".properties")
    log4j.write_text(_LOG4J)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            "spark.driver.extraJavaOptions", f"-Dlog4j.configurationFile=file:{log4j}"
        )
    )
    with errors_to(log):
        spark = sparkcache.configure(builder).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def errors_to(log: Path) -> Iterator[None]:
    """Redirect standard error to a file, also for processes started in the block."""
    original = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
