"""A Spark with Delta, in a process of its own: it takes SQL and says what came of it.

So the session that the tests read with has no jar of Delta's. It is spoken to in lines
of JSON, `{"sql": ..., "into": ...}`: the rows go to a file of Arrow's, if one is named.
`python delta_writer.py <jars, with commas> <directory>` ends with its standard input.
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

_ANSWER = "answer: "
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
    """The other process, and where it writes."""

    process: subprocess.Popen[str]
    directory: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def __call__(self, *statements: str) -> None:
        """Run statements of SQL, one after another."""
        for statement in statements:
            self._ask(sql=statement)

    def rows(self, sql: str) -> pa.Table:
        """Return what a query finds."""
        into = self.directory / f"{next(self._numbers)}.arrow"
        self._ask(sql=sql, into=str(into))
        with pa.OSFile(str(into)) as file:
            return pa.ipc.open_file(file).read_all()

    def _ask(self, **request: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        line = ""
        limit = threading.Timer(_LIMIT_S, self.process.kill)
        limit.start()
        try:
            while _ANSWER not in line:  # VACUUM prints something of its own
                line = self.process.stdout.readline()
                if not line:
                    raise AssertionError(
                        f"{request['sql']}: the process ended, or was ended after "
                        f"{_LIMIT_S} s"
                    )
        finally:
            limit.cancel()
            limit.join()
        answer = json.loads(line.partition(_ANSWER)[2])
        if answer is not None:
            raise AssertionError(f"{request['sql']}: {answer}")


@contextmanager
def delta_spark(jars: Iterable[Path], directory: Path) -> Iterator[DeltaSpark]:
    """Run that process for as long as it is needed."""
    command = [sys.executable, __file__, ",".join(map(str, jars)), str(directory)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        found = DeltaSpark(process, directory)
        found("select 1")  # so that all its processes are there
        yield found


def main(jars: str, directory: str) -> None:
    """Serve until standard input ends."""
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
            found = spark.sql(request["sql"])
            if "into" in request:
                table = found.toArrow()
                with pa.ipc.new_file(request["into"], table.schema) as writer:
                    writer.write_table(table)
        except Exception as error:
            problem = str(error)
        print(_ANSWER + json.dumps(problem), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
