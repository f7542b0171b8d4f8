"""Planned consumers through Spark: every byte once, then nothing is held."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import sparkcache
from sparkcache import ConfigError
from sparkcache.cache import Policy, Settings, Ttl
from sparkcache.model import Position
from sparkcache.simulate import simulate
from sparkcache.trace import parse
from tests.spark.spark_topics import TOPIC, Node, Topic, consumers_of, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LONG = Ttl(create_s=1e6, after_read_s=None, expected_s=1e6)


@pytest.fixture
def node(spark: SparkSession, tmp_path: Path) -> Node:
    """The session's node, which is emptied of what other tests have read."""
    spark.conf.set("spark.sparkcache.maxBytes", "0")
    compute(
        write(tmp_path / "warm-up").load(spark)
    )  # to its end: nothing is on its way
    spark.conf.unset("spark.sparkcache.maxBytes")
    return Node(spark)


def compute(dataframe: DataFrame) -> None:
    dataframe.write.format("noop").mode("overwrite").save()


@pytest.fixture(
    params=[{}, {"engine": "ring"}, {"engine": "ring", "copyEntries": "false"}],
    ids=["runs", "ring", "lists"],
)
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """The session's node uses this engine, and afterwards the one before."""
    settings = {f"spark.sparkcache.{name}": it for name, it in request.param.items()}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


def test_three_planned_consumers_fetch_every_byte_once(
    spark: SparkSession, topic: Topic, node: Node, engine: None
) -> None:
    orders = topic.load(spark, minPartitions="3")
    fraud, billing = orders.filter("__entryId > 3"), orders.groupBy("__key").count()
    wanted = sorted(topic.load(spark, enabled="false").collect())
    with sparkcache.plan(orders, fraud, billing):
        assert sorted(orders.collect()) == wanted
        for consumer in (fraud, billing):
            assert node.counted().evicted_by_last_read == 0
            compute(consumer)
        counted = node.counted()
    assert counted.received_bytes == topic.size_bytes
    assert counted.requests == 3 * counted.inserts
    assert counted.evicted_by_last_read == counted.inserts
    assert counted.runs <= 0


def test_the_end_of_a_plan_drops_what_was_not_read(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    orders = topic.load(spark)
    with sparkcache.plan(orders, orders):
        compute(orders)
        held = node.counted().runs
        assert held > 0
    counted = node.counted()
    assert counted.evicted_by_plan_end == held
    assert counted.runs == 0


def test_a_failing_block_ends_its_plan(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    orders = topic.load(spark)

    def fail() -> None:
        with sparkcache.plan(orders, orders):
            compute(orders)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert node.counted().runs == 0
    assert spark.conf.get("spark.sparkcache.plans", None) is None


def test_a_plan_may_end_while_jobs_are_cancelled(
    spark: SparkSession, topic: Topic, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    orders = topic.load(spark)
    spark.sparkContext.setJobGroup("cancelled", "")
    try:
        with sparkcache.plan(orders):
            context: Any = spark.sparkContext._jsc.sc()
            context.cancelJobGroupAndFutureJobs("cancelled")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert "nodes did not receive" in caplog.text
    assert "cancelled" in caplog.text
    assert spark.conf.get("spark.sparkcache.plans", None) is None


def test_plans_within_plans_count_together(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    outer, inner = topic.load(spark), topic.load(spark)
    with sparkcache.plan(outer, outer):
        compute(outer)
        with sparkcache.plan(inner):
            pass
        assert node.counted().runs > 0
        compute(outer)
        assert node.counted().received_bytes == topic.size_bytes


def test_expected_reads_follow_the_range_of_a_scan(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    everything = topic.load(spark)
    end = topic.load(spark, startingOffsets="9:0")
    with sparkcache.plan(everything, end):
        compute(everything)
        counted = node.counted()
        assert 0 < counted.runs < counted.inserts
        compute(end)
    assert node.counted().received_bytes == topic.size_bytes


def test_topics_of_the_same_name_are_kept_apart(
    spark: SparkSession, topic: Topic, node: Node, tmp_path: Path
) -> None:
    other = write(tmp_path / "other-bucket")
    with sparkcache.plan(topic.load(spark)):
        compute(other.load(spark))
        compute(topic.load(spark))
        assert node.counted().evicted_by_last_read * 2 == node.counted().inserts


@pytest.fixture
def view(spark: SparkSession, topic: Topic) -> Iterator[DataFrame]:
    orders = topic.load(spark)
    orders.createOrReplaceTempView("orders")
    yield orders
    spark.catalog.dropTempView("orders")


@pytest.mark.parametrize(
    ("query", "scans"),
    [
        pytest.param("select * from orders", 1, id="a scan"),
        pytest.param(
            "select * from orders union all select * from orders", 2, id="a union"
        ),
        pytest.param(
            "select * from orders a join orders b using (__entryId)", 2, id="a join"
        ),
        pytest.param(
            "with o as (table orders) table o union all table o",
            2,
            id="a CTE that is used twice",
        ),
        pytest.param(
            "select value from orders where __index = (select 1 from orders)",
            2,
            id="a subquery",
        ),
        pytest.param("select * from orders order by __index", 2, id="a global sort"),
        pytest.param(
            "select * from orders sort by __index", 1, id="a sort within partitions"
        ),
        pytest.param(
            "select * from orders order by __index limit 3", 1, id="the first rows"
        ),
        pytest.param(
            "select __key, count(*) from orders group by 1 order by 2",
            1,
            id="a sort of what was exchanged before",
        ),
        pytest.param("select * from orders where false", 0, id="a scan left out"),
        pytest.param("select 1", 0, id="something else"),
    ],
)
def test_scans_in_a_plan(
    spark: SparkSession, view: DataFrame, query: str, scans: int
) -> None:
    found = consumers_of(spark.sql(query))
    assert len(found) == scans
    assert all(consumer.topic.endswith("#" + TOPIC) for consumer in found)


def test_what_is_persisted_is_read_once(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    orders = topic.load(spark).persist()
    try:
        assert len(consumers_of(orders.filter("__entryId > 3"))) == 1
        orders.count()
        assert consumers_of(orders.filter("__entryId > 3")) == []
    finally:
        orders.unpersist()


def test_scans_know_their_range(spark: SparkSession, topic: Topic) -> None:
    found = consumers_of(topic.load(spark, startingOffsets="5:2", endingOffsets="9:0"))
    assert [(c.start, c.end) for c in found] == [(Position(5, 2), Position(9, 0))]


def test_a_self_join_counts_twice(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    left, right = topic.load(spark), topic.load(spark)
    joined = left.alias("a").join(
        right.alias("b"),
        ["__ledgerId", "__entryId", "__batchIndex"],
    )
    with sparkcache.plan(joined):
        assert joined.count() == topic.rows
        counted = node.counted()
    assert counted.received_bytes == topic.size_bytes
    assert counted.requests == 2 * counted.inserts


def test_plans_of_threads_do_not_undo_each_other(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    orders = topic.load(spark)

    def plan_often(_: int) -> None:
        for _ in range(4):
            with sparkcache.plan(orders) as planned:
                plans = spark.conf.get("spark.sparkcache.plans", "")
                assert plans is not None
                assert planned.id in plans

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(plan_often, range(8)))
    assert spark.conf.get("spark.sparkcache.plans", None) is None


def test_a_plan_reaches_the_sessions_of_all_its_dataframes(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    other = spark.newSession()
    with sparkcache.plan(topic.load(spark), topic.load(other)):
        plans = spark.conf.get("spark.sparkcache.plans", None)
        assert plans
        assert other.conf.get("spark.sparkcache.plans", None) == plans
    assert other.conf.get("spark.sparkcache.plans", None) is None


def test_planning_anything_but_a_dataframe_is_an_error(
    spark: SparkSession, topic: Topic
) -> None:
    orders = topic.load(spark)
    with (
        pytest.raises(ConfigError, match=r"as in plan\(a, b\), not a list"),
        sparkcache.plan([orders, orders]),  # type: ignore[arg-type]
    ):
        pass


def test_a_global_sort_reads_twice_and_fetches_once(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    in_order = topic.load(spark).select("__entryId", "__key").orderBy("__entryId")
    by_range = topic.load(spark).repartitionByRange(3, "__entryId")
    with sparkcache.plan(in_order, by_range, in_order):
        for dataframe in (in_order, by_range, in_order):
            compute(dataframe)
        counted = node.counted()
    assert counted.received_bytes == topic.size_bytes
    assert counted.requests == 6 * counted.inserts


def test_nothing_to_plan_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="needs the DataFrames"), sparkcache.plan():
        pass
    with (
        pytest.raises(ConfigError, match="none of these DataFrames"),
        sparkcache.plan(spark.range(3)),
    ):
        pass


@pytest.mark.parametrize(
    "twice",
    [
        pytest.param(lambda rows: rows.union(rows), id="a union with itself"),
        pytest.param(lambda rows: rows.union(rows).coalesce(3), id="coalesced"),
        pytest.param(
            lambda rows: rows.join(rows.select("__messageId"), "__messageId"),
            id="a self-join",
        ),
    ],
)
def test_what_a_query_reads_twice_is_evicted_after_the_second_read(
    spark: SparkSession, topic: Topic, node: Node, twice: Any
) -> None:
    rows = twice(topic.load(spark, minPartitions="3"))
    with sparkcache.plan(rows):
        compute(rows)
        counted = node.counted()
    assert counted.received_bytes == topic.size_bytes
    assert counted.requests == 2 * counted.inserts
    assert counted.evicted_by_last_read == counted.inserts
    assert counted.runs <= 0


def test_a_coalesced_scan_counts_each_of_its_partitions(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    rows = topic.load(spark, minPartitions="6").coalesce(1)
    with sparkcache.plan(rows):
        compute(rows)
        counted = node.counted()
    assert counted.evicted_by_last_read == counted.inserts == counted.requests


def test_an_exchange_that_is_reused_holds_nothing_after_its_plan(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    counts = topic.load(spark).groupBy("__entryId").count()
    both = counts.join(counts.withColumnRenamed("count", "again"), "__entryId")
    with sparkcache.plan(both):
        both.collect()
    counted = node.counted()
    assert counted.received_bytes == topic.size_bytes
    assert counted.evicted_by_last_read + counted.evicted_by_plan_end > 0
    assert counted.runs <= 0


def test_an_unused_plan_holds_nothing_after_its_end(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    rows = topic.load(spark)
    with sparkcache.plan(rows, rows, rows):
        compute(rows)
        assert node.counted().runs == node.counted().inserts > 0
    assert node.counted().runs <= 0


def test_next_read_fetches_less_than_expected_reads_where_little_fits(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    rows = topic.load(spark)
    with sparkcache.plan(rows, rows):
        compute(rows)
        whole_bytes = node.counted().held_bytes
    received = {}
    try:
        spark.conf.set("spark.sparkcache.maxBytes", str(whole_bytes // 2))
        for policy in ("next-read", "expected-reads"):
            spark.conf.set("spark.sparkcache.policy", policy)
            before = node.counted()
            with sparkcache.plan(*[rows] * 4):
                for _ in range(4):
                    compute(rows)
            received[policy] = (node.counted() - before).received_bytes
            assert node.counted().runs <= 0
    finally:
        spark.conf.unset("spark.sparkcache.maxBytes")
        spark.conf.unset("spark.sparkcache.policy")
    assert topic.size_bytes < received["next-read"] < received["expected-reads"]


def test_a_recorded_pipeline_can_be_simulated(
    spark: SparkSession, topic: Topic, node: Node, tmp_path: Path
) -> None:
    rows = topic.load(spark, minPartitions="3")
    try:
        spark.conf.set("spark.sparkcache.trace", str(tmp_path / "traces"))
        with sparkcache.plan(rows, rows):
            compute(rows)
            compute(rows)
        counted = node.counted()
    finally:
        spark.conf.unset("spark.sparkcache.trace")
        compute(rows)  # the node learns of it
    [path] = (tmp_path / "traces").iterdir()
    trace = parse(path.read_text().splitlines(), path.name)
    outcome = simulate(trace, Settings(1 << 30, 1000, LONG, Policy.NEXT_READ))
    assert outcome.reads == counted.requests
    assert outcome.loads == counted.inserts
    assert outcome.loaded_bytes == pytest.approx(topic.size_bytes, rel=0.05)


def test_actions_on_one_scan_read_its_index_once(
    spark: SparkSession, topic: Topic, node: Node
) -> None:
    orders = topic.load(spark)
    large, by_key = orders.filter("length(value) > 3"), orders.groupBy("__key").count()
    frames = [orders, large, by_key]
    with sparkcache.plan(*frames, orders):
        compute(frames[0])
        for path in topic.directory.glob("*-index"):
            path.unlink()
        for frame in frames[1:]:
            compute(frame)
        assert orders.count() == topic.rows
    assert node.counted().received_bytes == topic.size_bytes
