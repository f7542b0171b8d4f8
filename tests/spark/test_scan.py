"""What a user of `format("sparkcache")` sees: rows, ranges, columns, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from tests.spark.spark_topics import ENTRIES, LEDGER_IDS, MESSAGES, TOPIC, Topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = """
__topic __partition __ledgerId __entryId __batchIndex __messageId __publishTime
__eventTime __brokerPublishTime __index __key __orderingKey __sequenceId
__producerName __properties __schemaVersion __txn __replicatedFrom
__deliverAt value
""".split()  # noqa: SIM905 - in the order of the schema, to be read


def positions(dataframe: DataFrame) -> set[tuple[int, int]]:
    rows = dataframe.select("__ledgerId", "__entryId").distinct().collect()
    return {(row[0], row[1]) for row in rows}


def all_positions() -> set[tuple[int, int]]:
    return {(ledger, entry) for ledger in LEDGER_IDS for entry in range(ENTRIES)}


def everything(_: tuple[int, int]) -> bool:
    return True


def nothing(_: tuple[int, int]) -> bool:
    return False


def test_rows_are_those_that_were_written(spark: SparkSession, topic: Topic) -> None:
    found = topic.load(spark)
    assert found.columns == COLUMNS
    rows = found.orderBy("__ledgerId", "__entryId", "__batchIndex").collect()
    assert len(rows) == topic.rows
    expected = [
        (ledger, entry, number, f"{ledger * 1000 + entry}/{number} ".encode() * 8)
        for ledger in LEDGER_IDS
        for entry in range(ENTRIES)
        for number in range(MESSAGES)
    ]
    got = [
        (r["__ledgerId"], r["__entryId"], r["__batchIndex"], r["value"]) for r in rows
    ]
    assert [(*place, bytes(value)) for *place, value in got] == expected
    assert {row["__topic"] for row in rows} == {TOPIC}
    assert {bytes(row["__key"]) for row in rows} == {b"key-%d" % n for n in range(4)}


def test_rows_are_the_same_without_a_node(spark: SparkSession, topic: Topic) -> None:
    with_node, without = topic.load(spark), topic.load(spark, enabled="false")
    assert with_node.collect() == without.collect()
    assert without.count() == topic.rows


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({}, everything, id="everything by default"),
        pytest.param(
            {"startingOffsets": "earliest", "endingOffsets": "latest"},
            everything,
            id="earliest to latest is everything",
        ),
        pytest.param(
            {"startingOffsets": "5:7"},
            lambda p: p >= (5, 7),
            id="the start is included",
        ),
        pytest.param(
            {"endingOffsets": "5:7"}, lambda p: p < (5, 7), id="an end, not included"
        ),
        pytest.param(
            {"startingOffsets": "4:0", "endingOffsets": "9:1"},
            lambda p: (4, 0) <= p < (9, 1),
            id="a missing ledger is a place, too",
        ),
        pytest.param(
            {"startingOffsets": f'{{"{TOPIC}": "9:3"}}'},
            lambda p: p >= (9, 3),
            id="offsets by topic, as JSON",
        ),
        pytest.param({"startingOffsets": "10:0"}, nothing, id="beyond the end"),
        pytest.param(
            {"startingOffsets": "5:3", "endingOffsets": "5:3"},
            nothing,
            id="an empty range",
        ),
        pytest.param(
            {"startingTime": "5003000", "endingTime": "9002000"},
            lambda p: 5003 <= p[0] * 1000 + p[1] < 9002,
            id="times in milliseconds",
        ),
        pytest.param(
            {"startingTime": "1970-01-01T01:23:23Z"},
            lambda p: p[0] * 1000 + p[1] >= 5003,
            id="a time as text",
        ),
        pytest.param({"minPartitions": "11"}, everything, id="more partitions"),
        pytest.param({"runBytes": "1k"}, everything, id="runs of one entry"),
        pytest.param({"partitionBytes": "1k"}, everything, id="one run, one task"),
    ],
)
def test_ranges(
    spark: SparkSession,
    topic: Topic,
    options: dict[str, str],
    wanted: Callable[[tuple[int, int]], bool],
) -> None:
    found = topic.load(spark, **options)
    assert positions(found) == set(filter(wanted, all_positions()))
    assert found.count() == MESSAGES * len(positions(found))


def test_min_partitions(spark: SparkSession, topic: Topic) -> None:
    assert topic.load(spark).rdd.getNumPartitions() == 1
    assert topic.load(spark, minPartitions="6").rdd.getNumPartitions() >= 6
    many = topic.load(spark, minPartitions="100000", runBytes="1k")
    assert 12 <= many.rdd.getNumPartitions() <= 72  # a run is not cut
    assert many.count() == topic.rows


def test_a_schema_chooses_columns(spark: SparkSession, topic: Topic) -> None:
    found = topic.load(spark, schema="value binary, __entryId bigint")
    assert found.columns == ["value", "__entryId"]
    assert found.agg(sf.max("__entryId")).collect()[0][0] == ENTRIES - 1
    assert found.count() == topic.rows


def test_limit_stops_early_and_harms_nothing(spark: SparkSession, topic: Topic) -> None:
    assert len(topic.load(spark).limit(3).collect()) == 3
    assert topic.load(spark).count() == topic.rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"startingOfsets": "1:1"}, "did you mean startingOffsets", id="misspelt"
        ),
        pytest.param({"colour": "red"}, "unknown option colour", id="unknown"),
        pytest.param(
            {"maxBytes": "1g"}, "set spark.sparkcache.maxBytes", id="of the node"
        ),
        pytest.param(
            {"connector": "kafka"}, "installed: delta, pulsar", id="connector"
        ),
        pytest.param({"topic": ""}, "option topic is missing", id="no topic"),
        pytest.param(
            {"startingOffsets": "7"}, "a position 'ledger:entry'", id="offset"
        ),
        pytest.param({"endingOffsets": '{"x": "1:1"}'}, "JSON such as", id="JSON"),
        pytest.param({"startingTime": "9" * 20}, "a time such as", id="far future"),
        pytest.param({"startingTime": "soon"}, "a time such as", id="time"),
        pytest.param({"failOnDataLoss": "maybe"}, "true or false", id="truth"),
        pytest.param({"minPartitions": "0"}, "above 0", id="number"),
        pytest.param({"runBytes": "many"}, "a size such as", id="size"),
        pytest.param({"runBytes": "1"}, "must be at least 1k", id="too small"),
    ],
)
def test_wrong_options_fail_at_load(
    spark: SparkSession, topic: Topic, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException) as error:
        topic.load(spark, **options)
    assert "ConfigError" in str(error.value)
    assert message in str(error.value)


def test_sql_can_create_views_but_no_tables(spark: SparkSession, topic: Topic) -> None:
    options = f"OPTIONS (topic '{topic.name}', path '{topic.directory}')"
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW orders USING"):
        spark.sql(f"CREATE TABLE of_topic USING sparkcache {options}")
    spark.sql(f"CREATE TEMPORARY VIEW of_topic USING sparkcache {options}")
    try:
        assert spark.table("of_topic").count() == topic.rows
    finally:
        spark.catalog.dropTempView("of_topic")


def test_a_wrong_path_is_named(spark: SparkSession) -> None:
    reader = spark.read.format("sparkcache").option("topic", TOPIC)
    with pytest.raises(AnalysisException, match="ftp://host"):
        reader.load("ftp://host/dir")
    with pytest.raises(AnalysisException, match="path is missing"):
        reader.load()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        pytest.param("valeu binary", "there is no column valeu", id="no such column"),
        pytest.param("value string", "column value is binary", id="another type"),
    ],
)
def test_a_wrong_schema_is_named(
    spark: SparkSession, topic: Topic, schema: str, message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        topic.load(spark, schema=schema).count()


def test_the_error_for_an_unknown_topic_names_the_known_ones(
    spark: SparkSession, topic: Topic
) -> None:
    with pytest.raises(AnalysisException, match="shop/eu/orders"):
        topic.load(spark, topic="persistent://shop/eu/order").count()


def test_empty_directory(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    with pytest.raises(AnalysisException, match="NoSuchTopicError: option topic"):
        Topic(tmp_path / "bucket").load(spark).count()


def test_missing_directory(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="SourceError"):
        Topic(tmp_path / "bucket").load(spark).count()
