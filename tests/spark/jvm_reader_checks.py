"""Checks that the reader in the JVM returns the rows that Python reads.

Each is a function of a `World` that fails if something is wrong.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import psutil
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf

import sparkcache
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.source.spark_version import has_spark
from sparkcache_pulsar.testing import Entry, Message, ledger_objects, write_directory
from tests.spark.jvm_reader_world import (
    IN_JVM,
    World,
    error_of,
    is_same_in_python,
    metric,
    plan_of,
    rows,
)
from tests.spark.spark_topics import ENTRIES, MESSAGES, TOPIC, Topic, write
from tests.spark.test_losses import flip_a_bit
from tests.spark.test_parts import write_parts
from tests.spark.test_rocketmq import MESSAGES as QUEUE_MESSAGES
from tests.spark.test_rocketmq import QUEUES, Store
from tests.unit.delta.vector_table import VectorTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


LARGE_ENTRIES = 96
_COLUMNS_TO_UDFS = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


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


def check_small_ledgers(world: World) -> None:
    """Their runs lie in memory that they share."""
    directory = world.directory / "small"
    for ledger in range(1, 101):
        entry = Entry((Message(b"%d" % ledger), Message(b"b"))).encode()
        write_directory(directory, ledger_objects(TOPIC, ledger, [entry]))
    frame = Topic(directory).load(world.spark)
    expected = sorted([*(b"%d" % ledger for ledger in range(1, 101)), *[b"b"] * 100])
    with sparkcache.plan(frame, frame, frame):
        for _ in range(2):
            found = frame.select("value").collect()
            assert sorted(bytes(row["value"]) for row in found) == expected
        values = frame.select("value")
        values.collect()
        assert metric(values, "Runs") == 100
        assert metric(values, "PythonRows") == 0


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


def check_vectors_share_no_buffer(world: World) -> None:
    """Vectors without nulls share memory, but each task sets the indexes of its own."""
    gateway: Any = world.spark.sparkContext._gateway
    jvm: Any = world.spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    ones = loader.loadClass("sparkcache.RunColumn$Ones")
    (method,) = [one for one in ones.getDeclaredMethods() if one.getName() == "atLeast"]
    method.setAccessible(True)
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = jvm.java.lang.Long(1000)
    first, second = method.invoke(None, arguments), method.invoke(None, arguments)
    assert first.memoryAddress() == second.memoryAddress()
    first.writerIndex(125)
    second.writerIndex(0)
    assert first.readableBytes() == 125


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
