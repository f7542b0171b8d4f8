"""An application with the reader in the JVM, which compares it with that in Python.

    python -m tests.spark.jvm_reader_driver DIRECTORY

For each of `CHECKS` it prints a line: its name and, as JSON, what went wrong, or null.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import sparkcache
from tests.spark import jvm_pushdown_checks, jvm_reader_checks
from tests.spark.jvm_reader_world import World

if TYPE_CHECKING:
    from collections.abc import Callable


CHECKS: dict[str, Callable[[World], None]] = {
    name: check
    for checks in (jvm_reader_checks, jvm_pushdown_checks)
    for name, check in vars(checks).items()
    if name.startswith("check_")
}


def main(directory: str) -> None:
    spark = sparkcache.configure(
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", f"{directory}/local")
        .config("spark.sql.shuffle.partitions", "2"),
        jvm_reader=True,
    ).getOrCreate()
    world = World(spark, Path(directory))
    world.load().count()  # where there is no node yet, this task starts it, in Python
    wanted = sys.argv[2:] or list(CHECKS)
    for name in wanted:
        wrong = None
        begun_s = time.monotonic()
        try:
            CHECKS[name](world)
        except Exception:
            wrong = traceback.format_exc()
        seconds = round(time.monotonic() - begun_s, 1)
        print(name, seconds, json.dumps(wrong), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
