"""Checks of what the reader in the JVM leaves out: runs, columns, partitions."""

from __future__ import annotations

import functools
import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import functions as sf

import sparkcache
from tests.benchmarks.scale_plans import Stage, scan_of
from tests.spark.jvm_reader_world import (
    World,
    is_same_in_python,
    metric,
    plan_of,
    rows,
)
from tests.spark.spark_topics import write
from tests.spark.test_losses import flip_a_bit
from tests.spark.test_rocketmq import MESSAGES as QUEUE_MESSAGES
from tests.spark.test_rocketmq import QUEUES, Store
from tests.unit.delta.vector_table import VectorTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    plans = [sparkcache.plan(first), sparkcache.plan(second)]
    for plan in plans:
        plan.__enter__()
    for plan in plans:  # as threads do, which end in any order
        plan.__exit__(None, None, None)
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
    planned = [fresh.load(world.spark) for _ in range(3)]
    with sparkcache.plan(*planned):
        for frame, left in zip(planned, (3, 2, 1), strict=True):
            rows(frame)
            assert metric(frame, "ExpectedReads") == left
    assert metric(again, "ExpectedReads") == 0


def check_actions_of_a_plan_read_no_index_again(world: World) -> None:
    own = write(world.directory / "unlisted")
    every = own.load(world.spark)
    jobs = [every, every.select("value"), every.filter("length(value) > 3")]
    jobs.append(every.groupBy("__key").count())
    with sparkcache.plan(*jobs):
        rows(jobs[0])
        for path in own.directory.glob("*-index"):
            path.unlink()
        for job in jobs[1:]:
            job.collect()


def check_partitions_of_many_runs_cost_less_than_a_kilobyte(world: World) -> None:
    frame = world.load(runBytes="1k").select("value")
    plan = frame._jdf.queryExecution().executedPlan()
    stage = Stage(world.spark, lambda: scan_of(plan))
    (size,) = stage.partition_bytes
    assert size < 1024, size
    assert stage.total_bytes > size + 1024, stage.total_bytes
    assert rows(frame).total() == world.topic.rows
    assert metric(frame, "PythonRows") == 0


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
