"""A Spark with Delta in a separate process, which runs SQL for tests.

So the session with which the tests read has no jar of Delta. Requests are lines of
JSON, `{"sql": ..., "into": ...}`; the rows are written to the Arrow file `into`, if it
is set. `python delta_writer.py <jars, with commas> <directory>` runs until the end of
its standard input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_REPLY = "reply: "
_LIMIT_S = 120.0
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": (
        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.adaptive.enabled": "false",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass
class DeltaSpark:
    """The process with Delta, and the directory for its results."""

    process: subprocess.Popen[str]
    directory: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def __call__(self, *statements: str) -> None:
        """Run SQL statements, one after another."""
        for statement in statements:
            self._request(sql=statement)

    def rows(self, sql: str) -> pa.Table:
        """Return the rows of a query."""
        into = self.directory / f"{next(self._numbers)}.arrow"
        self._request(sql=sql, into=str(into))
        with pa.OSFile(str(into)) as file:
            return pa.ipc.open_file(file).read_all()

    def _request(self, **request: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        line = ""
        limit = threading.Timer(_LIMIT_S, self.process.kill)
        limit.start()
        try:
            while _REPLY not in line:  # VACUUM prints other lines
                line = self.process.stdout.readline()
                if not line:
                    raise AssertionError(
                        f"{request['sql']}: the process ended, or was killed after "
                        f"{_LIMIT_S} s"
                    )
        finally:
            limit.cancel()
            limit.join()
        problem = json.loads(line.partition(_REPLY)[2])
        if problem is not None:
            raise AssertionError(f"{request['sql']}: {problem}")


@contextmanager
def delta_spark(jars: Iterable[Path], directory: Path) -> Iterator[DeltaSpark]:
    """Run the process until the `with` block ends."""
    command = [sys.executable, __file__, ",".join(map(str, jars)), str(directory)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        spark = DeltaSpark(process, directory)
        spark("select 1")  # so that all its processes have started
        yield spark


def main(jars: str, directory: str) -> None:
    """Serve requests until standard input ends."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.master("local[1]").config("spark.jars", jars)
    builder = builder.config("spark.local.dir", directory)
    builder = builder.config("spark.sql.warehouse.dir", f"{directory}/warehouse")
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        request = json.loads(line)
        problem = None
        try:
            frame = spark.sql(request["sql"])
            if "into" in request:
                table = frame.toArrow()
                with pa.ipc.new_file(request["into"], table.schema) as writer:
                    writer.write_table(table)
        except Exception as error:
            problem = str(error)
        print(_REPLY + json.dumps(problem), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
