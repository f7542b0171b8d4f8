"""What goes wrong around a query: the right rows come, or a clear error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as sf

from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.source.spark_version import has_spark
from sparkcache_pulsar.testing import synthetic_topic, write_directory
from tests.spark.spark_topics import MESSAGES, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def wrong_magic(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 0xFF
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


def nodes(spark: SparkSession) -> list[Path]:
    return [Path(name) for name in node_metrics(spark)]


def processes_of(directory: Path) -> list[int]:
    """Return the node that serves a directory, and its loaders, its children."""
    parents = {}
    for process in psutil.process_iter(["cmdline", "ppid"]):
        command = process.info["cmdline"] or []
        if "sparkcache.node" in command and str(directory.parent) in command:
            parents[process.pid] = process.info["ppid"]
    return sorted(parents, key=lambda pid: parents[pid] in parents)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(remove, id="an index without its data"),
        pytest.param(truncate, id="data that was cut off"),
        pytest.param(wrong_magic, id="data that begins otherwise"),
        pytest.param(flip_a_bit, id="a bit that flipped"),
    ],
)
def test_damaged_data(
    spark: SparkSession, topic: Topic, damage: Callable[[Path], None]
) -> None:
    damaged = topic.data_files[0]
    damage(damaged)
    with pytest.raises(PySparkException, match=f"SourceError.*{damaged.name}"):
        topic.load(spark).count()
    lenient = topic.load(spark, failOnDataLoss="false")
    assert topic.rows // 2 < lenient.count() < topic.rows


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(truncate, id="an index that was cut off"),
        pytest.param(wrong_magic, id="an index that begins otherwise"),
    ],
)
def test_damaged_index(
    spark: SparkSession, topic: Topic, damage: Callable[[Path], None]
) -> None:
    index = Path(f"{topic.data_files[0]}-index")
    damage(index)
    with pytest.raises(AnalysisException, match=f"SourceError.*{index.name}"):
        topic.load(spark).count()


def test_lost_entries_are_counted(spark: SparkSession, topic: Topic) -> None:
    def lost_entries() -> int:
        return sum(m.lost_entries for m in node_metrics(spark).values())

    topic.load(spark).count()
    before = lost_entries()
    flip_a_bit(topic.data_files[0])
    rows = topic.load(spark, failOnDataLoss="false").count()
    lost = lost_entries() - before
    assert lost > 0
    assert rows == topic.rows - lost * MESSAGES


def test_data_without_index_is_an_unfinished_upload(
    spark: SparkSession, topic: Topic
) -> None:
    Path(f"{topic.data_files[0]}-index").unlink()
    assert topic.load(spark).count() == topic.rows * 2 // 3


def test_foreign_files_are_ignored(spark: SparkSession, topic: Topic) -> None:
    (topic.directory / "README-index").write_text("hello")
    (topic.directory / "deep" / "er").mkdir(parents=True)
    (topic.directory / "deep" / "er" / "x-ledger-7-index").write_bytes(b"")
    assert topic.load(spark).count() == topic.rows


@pytest.mark.skipif(not has_spark("4.1"), reason="Spark 4.0 plans every action again")
def test_object_overwritten_after_planning(spark: SparkSession, topic: Topic) -> None:
    orders = topic.load(spark)
    assert orders.rdd.getNumPartitions() == 1  # it is planned now
    overwritten = topic.data_files[-1]
    flip_a_bit(overwritten)
    with pytest.raises(PySparkException, match="it was overwritten"):
        orders.count()


def test_node_killed_between_queries(spark: SparkSession, topic: Topic) -> None:
    orders = topic.load(spark)
    assert orders.count() == topic.rows
    (directory,) = nodes(spark)
    for pid in processes_of(directory)[:1]:
        os.kill(pid, signal.SIGKILL)
    assert orders.count() == topic.rows
    assert orders.count() == topic.rows
    assert nodes(spark) == [directory]


@pytest.mark.parametrize("victim", ["node", "loader"])
def test_killed_while_a_query_reads(
    spark: SparkSession, topic: Topic, tmp_path: Path, victim: str
) -> None:
    orders = topic.load(spark, minPartitions="6", runBytes="1k")
    orders.count()
    (directory,) = nodes(spark)
    node, *loaders = processes_of(directory)
    doomed = node if victim == "node" else loaders[0]
    marker = tmp_path / "killed"

    def kill_on_the_way(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal

        for batch in batches:
            if not marker.exists():
                marker.touch()
                os.kill(doomed, signal.SIGKILL)
            yield batch

    through = orders.select("value").mapInArrow(kill_on_the_way, "value binary")
    assert through.count() == topic.rows
    assert marker.exists()
    assert orders.agg(sf.countDistinct("value")).collect()[0][0] == topic.rows
    assert nodes(spark) == [directory]


def test_worker_killed_while_it_reads(tmp_path: Path) -> None:
    """In an application of its own, which tries a task again.

    The topic is larger than all that lies between its reader and the next worker.
    """
    topic = Topic(tmp_path / "bucket")
    size_bytes = 64 << 20
    objects = synthetic_topic(topic.name, size_bytes, max_block_bytes=16 << 20)
    write_directory(topic.directory, objects)
    program = f"""
import os, sys
from contextlib import suppress
from pathlib import Path
import psutil
from pyspark.sql import SparkSession
import sparkcache
from sparkcache.source.driver.node_rpc import node_metrics

spark = sparkcache.configure(
    SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false"),
    jvm_reader=False,  # it is a worker that maps what it reads
).getOrCreate()
orders = (
    spark.read.format("sparkcache").option("topic", {topic.name!r})
    .load({str(topic.directory)!r})
)
marker = Path({str(tmp_path / "killed")!r})

def kill_readers():
    for process in psutil.process_iter(["environ"]):
        application = (process.info["environ"] or {{}}).get("APPLICATION")
        if application != str(marker) or process.pid == os.getpid():
            continue
        with suppress(psutil.Error):
            paths = [region.path for region in process.memory_maps()]
            if any("memfd:sparkcache" in path for path in paths):
                process.kill()
                return True

def slow(batches):
    import time
    for batch in batches:
        if not marker.exists() and kill_readers():
            marker.touch()
        yield batch

with sparkcache.plan(orders, orders):
    count = orders.select("value").mapInArrow(slow, "value binary").count()
    held = sum(metrics.runs for metrics in node_metrics(spark).values())
    again = orders.count()
left = sum(metrics.held_bytes for metrics in node_metrics(spark).values())
print("RESULT", count, again, held, left, marker.exists())
spark.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env=os.environ
        | {
            "PYSPARK_PYTHON": sys.executable,
            "APPLICATION": str(tmp_path / "killed"),
        },
    )
    result = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert result, done.stderr
    count, again, held, left, killed = result[0].split()[1:]
    assert int(count) == int(again) == size_bytes // 1024
    assert int(held) > 0
    assert int(left) == 0
    assert killed == "True"
