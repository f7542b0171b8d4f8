"""What the checks of the reader in the JVM share: a session, and looks at plans."""

from __future__ import annotations

import functools
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from tests.spark.spark_topics import Topic, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

IN_JVM = "read in the JVM"


@dataclass(frozen=True)
class World:
    """A session with the reader, a topic, and a directory for more."""

    spark: SparkSession
    directory: Path

    @functools.cached_property
    def topic(self) -> Topic:
        return write(self.directory / "topic")

    def load(self, **options: Any) -> DataFrame:
        return self.topic.load(self.spark, **options)

    def delta(self, path: Path, **options: Any) -> DataFrame:
        reader = self.spark.read.format("sparkcache").option("connector", "delta")
        return reader.options(runBytes="4k", **options).load(str(path))

    def counted(self) -> Metrics:
        return sum(node_metrics(self.spark).values(), Metrics())

    def wait_until_nothing_is_pinned(self) -> None:
        end_s = time.monotonic() + 20
        while True:
            self.spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]
            time.sleep(0.2)
            # A task that ends is what tells the node of runs that are unmapped.
            pinned = self.counted().pinned_runs
            if not pinned:
                return
            assert time.monotonic() < end_s, f"{pinned} runs are pinned"


def rows(frame: DataFrame) -> Counter[str]:
    """Return the rows, in any order."""
    return Counter(map(repr, frame.collect()))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def metric(frame: DataFrame, name: str) -> int:
    """Return a metric of the one scan of a frame that was computed."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return int(leaves.head().metrics().apply(f"sparkcache{name}").value())


def error_of(load: Callable[..., DataFrame], *args: Any, **options: Any) -> str:
    """Return the error of a read; nothing if there is none."""
    try:
        load(*args, **options).collect()
    except PySparkException as error:
        return str(error)
    return ""


def is_same_in_python(load: Callable[..., DataFrame], reader: str = IN_JVM) -> int:
    """Compare two reads with one in Python; return how many rows there are."""
    expected = rows(load(enabled="false"))
    frame = load()
    assert reader in plan_of(frame), plan_of(frame)
    assert rows(frame) == expected
    assert rows(load()) == expected
    return expected.total()
