"""An application with the reader in the JVM, which compares it with that in Python.

    python -m tests.spark.jvm_reader_driver DIRECTORY

For each of `CHECKS` it prints a line: its name and, as JSON, what went wrong, or null.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import psutil
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.source.spark_version import has_spark
from sparkcache_pulsar.testing import Entry, Message, ledger_objects, write_directory
from tests.spark.spark_topics import ENTRIES, MESSAGES, TOPIC, Topic, write
from tests.spark.test_losses import flip_a_bit
from tests.spark.test_parts import write_parts
from tests.spark.test_rocketmq import MESSAGES as QUEUE_MESSAGES
from tests.spark.test_rocketmq import QUEUES, Store
from tests.unit.delta.vector_table import VectorTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

IN_JVM = "read in the JVM"
LARGE_ENTRIES = 96
_COLUMNS_TO_UDFS = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


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


def check_a_topic(world: World) -> None:
    assert is_same_in_python(world.load) == world.topic.rows
    frame = world.load(minPartitions="4")
    assert rows(frame).total() == world.topic.rows
    assert metric(frame, "Runs") > 1
    assert metric(frame, "Bytes") > world.topic.rows * 80
    assert metric(frame, "PythonRows") == 0


def check_some_columns(world: World) -> None:
    for columns in (["__key"], ["__publishTime", "value"], ["value", "__key"]):
        is_same_in_python(lambda names=columns, **given: world.load(**given)[names])
    frame = world.topic.load(world.spark, schema="__key binary, value binary")
    assert frame.columns == ["__key", "value"]
    assert rows(frame) == rows(world.load()["__key", "value"])
    assert world.load().count() == world.topic.rows
    assert world.load().filter("__entryId = 3").count() == 3 * MESSAGES
    both = world.load().select("__key").union(world.load().select("__producerName"))
    assert both.count() == 2 * world.topic.rows


def check_explain_says_where_and_why(world: World) -> None:
    found = plan_of(world.load())
    assert f"sparkcache topic='{TOPIC}', {IN_JVM}" in found, found
    off = plan_of(world.load(enabled="false"))
    assert "read in Python: enabled=false" in off, off


def check_offsets(world: World) -> None:
    between = {"startingOffsets": "5:3", "endingOffsets": "9:7"}
    found = is_same_in_python(lambda **given: world.load(**between, **given), "read in")
    assert found == (ENTRIES - 3 + 7) * MESSAGES
    inside = {"startingOffsets": "5:3", "endingOffsets": "5:4"}
    says = "read in Python: positions select rows"
    assert is_same_in_python(lambda **given: world.load(**inside, **given), says)


def check_times(world: World) -> None:
    since = {"startingTime": "1970-01-01T01:23:25Z"}  # second 5005
    found = is_same_in_python(
        lambda **given: world.load(**since, **given),
        "read in Python: startingTime or endingTime selects rows",
    )
    assert found == (ENTRIES - 5 + ENTRIES) * MESSAGES


def check_chunks_and_transactions(world: World) -> None:
    parts = write_parts(world.directory / "parts")
    cuts = {"runBytes": "1k", "partitionBytes": "1k"}
    assert is_same_in_python(lambda **given: parts.load(world.spark, **cuts, **given))
    large = {"runBytes": "1k", "partitionBytes": "1g", "minPartitions": "1"}
    assert is_same_in_python(lambda **given: parts.load(world.spark, **large, **given))


def check_losses(world: World) -> None:
    damaged = write(world.directory / "damaged")
    flip_a_bit(damaged.data_files[1])
    lenient = {"failOnDataLoss": "false"}
    found = is_same_in_python(
        lambda **given: damaged.load(world.spark, **lenient, **given)
    )
    assert damaged.rows // 2 < found < damaged.rows
    whole = damaged.load(world.spark, **lenient, partitionBytes="1g", minPartitions="1")
    assert rows(whole).total() == found
    assert 0 < metric(whole, "PythonRows") < found
    listed = sparkcache.losses(world.spark).collect()
    assert {row["object"] for row in listed} == {damaged.data_files[1].as_uri()}
    failure = error_of(damaged.load, world.spark)
    assert "SourceError" in failure, failure
    assert damaged.data_files[1].name in failure, failure


def check_rocketmq(world: World) -> None:
    store = Store(world.directory / "store")
    store.write(QUEUE_MESSAGES)
    found = is_same_in_python(lambda **given: store.load(world.spark, **given))
    assert found == len(QUEUES) * QUEUE_MESSAGES
    chosen = is_same_in_python(
        lambda **given: store.load(world.spark, tags="TagA || TagB", **given),
        "read in Python: an option of the connector selects rows",
    )
    assert chosen == found // 2


def check_delta(world: World) -> None:
    path = world.directory / "nested"
    for first in (0, 5000):
        ids = range(first, first + 5000)
        table = pa.table(
            {
                "id": ids,
                "some": [None if n % 3 else n for n in ids],
                "list": [None if n % 5 == 0 else [n] * (n % 4) for n in ids],
                "struct": [{"a": n, "b": {"c": str(n)}} for n in ids],
                "map": pa.array(
                    [[(str(n), n)] for n in ids], pa.map_(pa.string(), pa.int64())
                ),
            }
        )
        write_deltalake(path, table, mode="append")
    load = functools.partial(world.delta, path)
    assert is_same_in_python(load) == 10_000
    for columns in (["struct.b.c"], ["map", "id"], ["list"]):
        is_same_in_python(lambda names=columns, **given: load(**given).select(names))
    chosen = is_same_in_python(
        lambda **given: load(where="id < 5007", **given),
        "read in Python: an option of the connector selects rows",
    )
    assert chosen == 5007


def check_deletion_vectors(world: World) -> None:
    path = world.directory / "vectors"
    left = VectorTable(path).append([], [1, 2], [], [9])
    assert is_same_in_python(functools.partial(world.delta, path), "read in")
    found = world.delta(path).collect()
    assert sorted(row["id"] for row in found) == left


def check_types_that_are_read_in_python(world: World) -> None:
    path = world.directory / "local_times"
    write_deltalake(path, pa.table({"at": pa.array([1, 2], pa.timestamp("us", "UTC"))}))
    assert is_same_in_python(functools.partial(world.delta, path)) == 2


def check_udf(world: World) -> None:
    size = sf.udf(len, "int")
    (found,) = world.load().agg(sf.sum(size("value"))).collect()
    (expected,) = world.load().agg(sf.sum(sf.length("value"))).collect()
    assert found == expected


def check_pandas_udf_beside_columns(world: World) -> None:
    def length(values: pd.Series) -> pd.Series:
        return values.str.len()

    size: Any = pandas_udf(length, "int")  # type: ignore[call-overload]
    frame = world.load().select("*", size("value").alias("size"))
    assert rows(frame.drop("size")) == rows(world.load(enabled="false"))
    assert frame.filter("size = length(value)").count() == world.topic.rows


def check_map_in_arrow(world: World) -> None:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    frame = world.load()
    found = rows(frame.mapInArrow(same, frame.schema))
    assert found == rows(world.load(enabled="false"))


def check_persist(world: World) -> None:
    expected = rows(world.load(enabled="false"))
    for is_python in (False, True):
        frame = world.load(enabled=str(not is_python).lower()).persist()
        try:
            assert rows(frame) == expected
            assert rows(frame) == expected
        finally:
            frame.unpersist(blocking=True)


def check_joins(world: World) -> None:
    keys = world.load().select("__key", "__ledgerId", "__entryId").distinct()
    positions = world.load()["__ledgerId", "__entryId", "__batchIndex"].distinct()
    joined = world.load().join(positions, ["__ledgerId", "__entryId", "__batchIndex"])
    assert "BroadcastHashJoin" in plan_of(joined), plan_of(joined)
    assert joined.count() == world.topic.rows
    hinted = world.load().join(keys.hint("merge"), ["__key", "__ledgerId", "__entryId"])
    assert hinted.count() == world.topic.rows
    small = world.spark.range(5).withColumnRenamed("id", "__entryId")
    assert world.load().join(small, "__entryId").count() == 3 * 5 * MESSAGES


def check_sort(world: World) -> None:
    order = ["__publishTime", "__ledgerId", "__entryId", "__batchIndex"]
    found = world.load().orderBy(*order).collect()
    expected = world.load(enabled="false").orderBy(*order).collect()
    assert found == expected
    assert world.load().orderBy(*order).limit(7).collect() == expected[:7]
    assert len(world.load().limit(7).collect()) == 7


def check_two_actions_of_one_frame(world: World) -> None:
    frame = world.load()
    assert frame.count() == world.topic.rows
    assert frame.filter("__entryId < 4").count() == 3 * 4 * MESSAGES
    assert rows(frame) == rows(world.load(enabled="false"))


def check_filters_on_positions(world: World) -> None:
    for condition in (
        "__ledgerId = 5 and __entryId between 2 and 6",
        "__ledgerId in (5, 9) and __entryId >= 7",
        "__ledgerId = 5 or __entryId = 1",
        "__ledgerId is null",
        "__key = 'k1' and __entryId < 3",
    ):
        is_same_in_python(lambda sql=condition, **given: world.load(**given).where(sql))
    some = world.load().where("__ledgerId = 5 and __entryId between 2 and 6")
    rows(some)
    every = world.load()
    rows(every)
    assert 0 < metric(some, "Runs") < metric(every, "Runs") / 3
    assert size_in_bytes(some) < size_in_bytes(every) / 3


def check_filters_on_held_runs(world: World) -> None:
    every = world.load()
    rows(every)
    for condition in (
        "__publishTime > timestamp'1970-01-01 02:30:05Z'",
        "__publishTime < timestamp'1970-01-01 00:00:00Z'",
        "__key > X'FF'",
        "__key is null and __entryId = 3",
    ):
        chosen = world.load().where(condition)
        assert rows(chosen) == rows(world.load(enabled="false").where(condition))
        assert 0 < metric(chosen, "RunsLeftOut") <= metric(chosen, "Runs")
        assert metric(chosen, "Bytes") < metric(every, "Bytes")
    world.wait_until_nothing_is_pinned()


def check_a_count_maps_nothing(world: World) -> None:
    every = world.load()
    rows(every)
    counted = world.load().select()
    assert len(counted.collect()) == world.topic.rows
    assert metric(counted, "Runs") == metric(every, "Runs")
    assert metric(counted, "Bytes") == 0
    assert world.load().count() == world.topic.rows


def check_rest_of_a_partition_after_runs_left_out(world: World) -> None:
    whole = {"partitionBytes": "1g", "minPartitions": "1", "failOnDataLoss": "false"}
    damaged = write(world.directory / "damaged_later")
    flip_a_bit(damaged.data_files[-1])
    condition = "__ledgerId > 0 and __key >= X'00'"
    load = functools.partial(damaged.load, world.spark, **whole)
    rows(load())
    for of in ("__publishTime > timestamp'1970-01-01 01:30:00Z'", condition):
        expected = rows(load(enabled="false").where(of))
        found = load().where(of)
        assert rows(found) == expected
        assert metric(found, "PythonRows") > 0
    assert load().count() == rows(load(enabled="false")).total()


def check_a_count_is_not_read(world: World) -> None:
    store = Store(world.directory / "counted")
    store.write(QUEUE_MESSAGES)
    every = len(QUEUES) * QUEUE_MESSAGES
    path = world.directory / "counted_vectors"
    left = VectorTable(path).append([], [1, 2], [], [9])
    before = world.counted()
    assert store.load(world.spark).count() == every
    limits = {"topic": "broker-a/TopicA/0", "startingOffsets": "60"}
    ten_less = QUEUE_MESSAGES - 10
    assert store.load(world.spark, **limits).count() == ten_less
    counts = world.delta(path).agg(sf.count("*"), sf.count(sf.lit(1))).collect()
    assert [tuple(row) for row in counts] == [(len(left), len(left))]
    assert world.counted().misses == before.misses
    counted = world.delta(path).groupBy().count()
    assert "LocalTableScan" in plan_of(counted), plan_of(counted)
    frame = world.delta(path)
    for condition in ("id = 1", "id > 0"):
        assert frame.where(condition).count() == rows(frame.where(condition)).total()
    some = "count(*) filter (where id > 1)", "count(distinct id)", "count(*)"
    (found,) = frame.agg(*map(sf.expr, some)).collect()
    assert tuple(found) == (sum(each > 1 for each in left), len(set(left)), len(left))
    assert frame.groupBy("id").count().count() == len(set(left))
    assert frame.agg(sf.count("*"), sf.max("id")).first() == (len(left), max(left))
    with sparkcache.plan(frame):
        assert ", 1 planned consumer, " in plan_of(frame)
        assert "LocalTableScan" not in plan_of(frame.groupBy().count())
        assert frame.count() == len(left)
    assert world.counted().misses > before.misses


def check_a_limit_begins_few_tasks(world: World) -> None:
    path = world.directory / "limited"
    for first in range(5):
        write_deltalake(path, filtered_rows(1000 * first), mode="append")
    frame = world.delta(path, minPartitions="5")
    assert frame.rdd.getNumPartitions() == 5
    for limit, tasks in ((1, 1), (1000, 1), (1001, 2), (9999, 5)):
        limited = frame.limit(limit)
        local = limited.groupBy("small").count()
        assert sum(row["count"] for row in local.collect()) == min(limit, 5000)
        of_scan = scan_tasks(limited)
        assert of_scan == tasks, (limit, of_scan)
    assert frame.where("n > 10").limit(3).count() == 3


def scan_tasks(frame: DataFrame) -> int:
    """Return how many partitions the one scan of a frame has."""
    plan = frame._jdf.queryExecution().executedPlan()
    return int(plan.collectLeaves().head().inputRDD().getNumPartitions())


def check_columns_that_nobody_planned_are_not_fetched(world: World) -> None:
    path = world.directory / "wide"
    count, pad_bytes = 400, 100_000
    numbers = range(count)
    columns: dict[str, Any] = {
        "n": numbers,
        "m": numbers,
        "odd": [number % 2 for number in numbers],
        "pad": [os.urandom(pad_bytes) for _ in numbers],
    }
    write_deltalake(path, pa.table(columns))
    first, second = world.delta(path).select("n"), world.delta(path).where("odd = 1")
    second = second.agg(sf.sum("m"))
    before = world.counted().received_bytes
    with sparkcache.plan(first, second):
        assert sorted(row["n"] for row in first.collect()) == list(range(count))
        (found,) = second.collect()
        assert found[0] == sum(range(1, count, 2))
        fetched = world.counted().received_bytes - before
        assert 0 < fetched < count * pad_bytes / 10, fetched
        assert world.counted().evicted_by_last_read > 0
        other = world.delta(path).select(sf.length("pad").alias("size"))
        assert {row["size"] for row in other.collect()} == {pad_bytes}
    fetched = world.counted().received_bytes - before
    assert fetched > count * pad_bytes
    assert rows(world.delta(path).drop("pad")).total() == count
    conf = dict(world.spark.conf.getAll)
    assert "spark.sparkcache.plannedColumns" not in conf


def check_metrics_of_a_scan(world: World) -> None:
    fresh = write(world.directory / "metered")
    before = world.counted().received_bytes
    first = fresh.load(world.spark, minPartitions="2")
    rows(first)
    again = fresh.load(world.spark, minPartitions="2")
    rows(again)
    for frame in (first, again):
        found = [metric(frame, name) for name in ("Hits", "Waits", "Misses")]
        assert sum(found) == metric(frame, "Runs"), found
    assert metric(first, "Misses") > 0
    every = world.counted().received_bytes - before
    assert metric(first, "StoredBytes") == every > 0
    assert metric(again, "StoredBytes") == 0
    assert metric(again, "Misses") == metric(again, "Waits") == 0


def check_filters_on_a_table(world: World) -> None:
    path = world.directory / "filtered"
    for first in range(5):
        write_deltalake(path, filtered_rows(1000 * first), mode="append")
    load = functools.partial(world.delta, path)
    frame = load()
    every = size_in_bytes(frame)
    for condition, files in (
        ("n = 2500", 1),
        ("n > 2500 and n < 3000", 1),
        ("n in (10, 4999)", 2),
        ("text = 't3'", 1),
        ("text >= 't3' and some is not null", 2),
        ("day = date'1970-01-02'", 1),
        ("at > timestamp'1970-01-01 00:50:00Z'", 2),
        ("local <= timestamp_ntz'1970-01-01 00:10:00'", 1),
        ("price = 3000.25", 1),
        ("small = 4", 1),
        ("some is null and n < 1000", 1),
        ("odd and n < 1000", 1),
        ("x > 4000.0", 5),
        ("n = 7 or text = 't4'", 5),
        ("n <=> 3333", 1),
        ("n = 99999", 0),
        ("list is not null", 5),
    ):
        chosen = frame.where(condition)
        expected = rows(load(enabled="false").where(condition))
        assert rows(chosen) == expected, condition
        found = size_in_bytes(chosen) * 5 / every
        assert round(found) == files, (condition, found, files)
    assert rows(frame).total() == 5000  # what was left out comes back
    joined = frame.where("n < 10").join(frame.where("n >= 4990").select("odd"), "odd")
    assert joined.count() == 50
    both = frame.where("n < 10").union(frame.where("n >= 4990")).union(frame)
    assert both.count() == 5020


def filtered_rows(first: int) -> pa.Table:
    numbers = range(first, first + 1000)
    micros = [number * 10**6 for number in numbers]
    return pa.table(
        {
            "n": numbers,
            "small": pa.array([first // 1000] * 1000, pa.int8()),
            "text": [f"t{first // 1000}"] * 1000,
            "day": pa.array([first // 1000] * 1000, pa.date32()),
            "at": pa.array(micros, pa.timestamp("us", "UTC")),
            "local": pa.array(micros, pa.timestamp("us")),
            "price": pa.array(
                [Decimal(number) + Decimal("0.25") for number in numbers],
                pa.decimal128(12, 2),
            ),
            "some": [None if number % 7 else number for number in numbers],
            "odd": [number % 2 == 1 for number in numbers],
            "x": [float(number) for number in numbers],
            "list": [[number] for number in numbers],
        }
    )


def size_in_bytes(frame: DataFrame) -> int:
    """Return the size of what Spark expects to read."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    return int(str(plan.collectLeaves().head().stats().sizeInBytes()))


def check_sql(world: World) -> None:
    world.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING sparkcache "
        f"OPTIONS (topic '{TOPIC}', path '{world.topic.directory}', runBytes '4k')"
    )
    query = "SELECT count(*), count(DISTINCT __key) FROM orders"
    assert tuple(world.spark.sql(query).first() or ()) == (world.topic.rows, 4)


def check_wrong_options(world: World) -> None:
    for options in ({"startingOffsets": "x"}, {"runBytes": "much"}, {"topics": "a"}):
        failure = error_of(world.load, **options)
        assert "ConfigError" in failure, (options, failure)


def check_a_stream(world: World) -> None:
    if not has_spark("4.2"):
        return
    found: list[Any] = []
    frame = (
        world.spark.readStream.format("sparkcache")
        .options(topic=TOPIC, runBytes="4k", maxBytesPerTrigger="20k")
        .load(str(world.topic.directory))
    )
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        .option("checkpointLocation", str(world.directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(query.recentProgress) > 1
    assert Counter(map(repr, found)) == rows(world.load(enabled="false"))


def check_rows_are_unpinned_at_once(world: World) -> None:
    """No query that uses rows leaves a run to the garbage collector."""
    size = sf.udf(len, "int")
    text = [
        sf.max("__producerName"),
        sf.max("value"),
        sf.first("value"),
        sf.min("__key"),
    ]
    texts = world.load(enabled="false").agg(*text[:2]).collect()
    queries: dict[str, Callable[[], object]] = {
        "count": world.load().count,
        "rows": world.load().collect,
        "noop": world.load().write.format("noop").mode("overwrite").save,
        "limit": world.load().limit(7).collect,
        "sort": world.load().orderBy("__publishTime").collect,
        "group": world.load().groupBy("__key").agg(sf.max("value")).collect,
        "one group": world.load().agg(*text).collect,
        "explode": world.load().select(sf.explode("__properties")).collect,
        "udf": world.load().select(size("value")).collect,
        "join": world.load().join(world.load(), "__publishTime").count,
        "pandas": world.load().toPandas,
        "rdd": world.load().rdd.count,
    }
    world.spark.conf.set(_COLUMNS_TO_UDFS, "false")
    for name, query in queries.items():
        query()
        counted = world.counted()
        assert counted.pinned_runs == 0, (name, counted.pinned_runs)
        assert counted.held_bytes > 0
    for _ in range(3):
        assert world.load().agg(*text[:2]).collect() == texts


def check_texts_outlive_their_runs(world: World) -> None:
    """Aggregates keep a text of a run that is no longer mapped."""
    path = world.directory / "texts"
    texts = [f"{hash(str(n)) % 9973} {n}" for n in range(40_000)]
    write_deltalake(path, pa.table({"id": range(len(texts)), "text": texts}))
    kept = [sf.max, sf.min, sf.first, sf.last]
    several = [keep("text") for keep in kept]
    several += [sf.max_by("text", "id"), sf.max(sf.struct("text")), sf.first("id")]
    for aggregates in (several, *([keep("text")] for keep in kept)):
        whole = {"partitionBytes": "1g", "minPartitions": "1"}
        frame = world.delta(path, **whole).agg(*aggregates)
        in_python = world.delta(path, enabled="false", **whole).agg(*aggregates)
        assert frame.collect() == in_python.collect() == frame.collect()
    frame = world.delta(path, **whole)
    assert rows(frame).total() == len(texts)
    assert metric(frame, "Runs") > 9


def check_columns_are_pinned_as_long_as_they_are_used(world: World) -> None:
    """With a pandas_udf, Spark keeps columns; it gets more than one batch of them."""

    def length(values: pd.Series) -> pd.Series:
        return values.str.len()

    size: Any = pandas_udf(length, "int")  # type: ignore[call-overload]
    world.spark.conf.set(_COLUMNS_TO_UDFS, "true")
    try:
        frame = world.load().select("*", size("value").alias("size"))
        assert rows(frame.drop("size")) == rows(world.load(enabled="false"))
        assert frame.filter("size = length(value)").count() == world.topic.rows
    finally:
        world.spark.conf.set(_COLUMNS_TO_UDFS, "false")
    world.wait_until_nothing_is_pinned()


def check_no_room(world: World) -> None:
    streamed = write(world.directory / "streamed")
    key = "spark.sparkcache.maxBytes"
    world.spark.conf.set(key, "0")
    try:
        before = world.counted().streamed
        frame = streamed.load(world.spark)
        assert rows(frame) == rows(streamed.load(world.spark, enabled="false"))
        assert world.counted().streamed > before
        assert metric(frame, "PythonRows") == 0
    finally:
        world.spark.conf.unset(key)
    world.load().count()  # a task tells the node


def check_a_node_that_is_killed_meanwhile(world: World) -> None:
    directory = world.directory / "large"
    entries = [
        Entry((Message(os.urandom(64 << 10)),)).encode() for _ in range(LARGE_ENTRIES)
    ]
    write_directory(directory, ledger_objects(TOPIC, 3, entries))
    topic = Topic(directory)
    whole = {"runBytes": "64k", "partitionBytes": "1g", "minPartitions": "1"}
    (node,) = node_metrics(world.spark)
    nodes = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if "sparkcache.node" in (process.info["cmdline"] or [])
        and str(Path(node).parent) in process.info["cmdline"]
    ]

    def kill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 1:
                for pid in nodes:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.5)
            yield batch

    assert nodes
    frame = topic.load(world.spark, **whole)
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    world.spark.conf.set(key, "1")
    try:
        found = frame.mapInArrow(kill, frame.schema)
        in_python = topic.load(world.spark, **whole, enabled="false")
        assert found.collect() == in_python.collect()
    finally:
        world.spark.conf.unset(key)
    read_in_python = metric(found, "PythonRows")
    assert 0 < read_in_python < LARGE_ENTRIES, read_in_python
    assert rows(topic.load(world.spark, **whole)).total() == LARGE_ENTRIES


def check_the_ring(world: World) -> None:
    key = "spark.sparkcache.engine"
    world.spark.conf.set(key, "ring")
    try:
        is_same_in_python(world.load, "read in Python: engine=ring")
    finally:
        world.spark.conf.unset(key)
    is_same_in_python(world.load)


def check_plans_of_an_installed_session(world: World) -> None:
    sparkcache.install(world.spark, sparkcache.CacheConfig(max_bytes=64 << 20))
    planned = write(world.directory / "planned")
    frame = planned.load(world.spark, runBytes="4k")
    assert IN_JVM in plan_of(frame)
    world.wait_until_nothing_is_pinned()
    before = world.counted()
    with sparkcache.plan(frame, frame):
        assert frame.count() == planned.rows
        between = world.counted() - before
        assert between.gets == between.reads > 0
        assert between.evicted_by_last_read == 0
        assert frame.count() == planned.rows
        world.wait_until_nothing_is_pinned()
        counted = world.counted() - before
    assert (counted.gets, counted.reads) == (between.gets, 2 * between.reads)
    assert counted.evicted_by_last_read > 0
    assert rows(world.load()) == rows(world.load(enabled="false"))


def check_a_second_session(world: World) -> None:
    expected = rows(world.topic.load(world.spark, enabled="false"))
    sparkcache.install(world.spark)
    second = world.spark.newSession()
    sparkcache.install(second)
    sparkcache.install(second, sparkcache.CacheConfig(run_bytes=4 << 10))
    frame = world.topic.load(second)
    assert IN_JVM in plan_of(frame)
    assert rows(frame) == expected
    assert rows(world.topic.load(world.spark)) == expected


CHECKS: dict[str, Callable[[World], None]] = {
    name: check for name, check in list(globals().items()) if name.startswith("check_")
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
