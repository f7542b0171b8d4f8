"""`sparkcache.stats`: what was counted, as a DataFrame."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

import sparkcache
from sparkcache import ConfigError
from sparkcache.metric_definition import Kind
from sparkcache.metrics import METRICS, Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from tests.spark.spark_topics import Topic, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVIL = "persistent://stats/evil/<b>bold<-b>"


def test_a_row_for_each_node(spark: SparkSession, topic: Topic) -> None:
    topic.load(spark).count()
    counted: dict[str, Metrics] = {}
    while node_metrics(spark) != counted or not counted:  # runs expire meanwhile
        counted = node_metrics(spark)
        stats = sparkcache.stats(spark)
        (row,) = stats.collect()
    ((directory, metrics),) = counted.items()
    assert row["node"] == directory
    histograms = {n for n, m in METRICS.items() if m.kind is Kind.DISTRIBUTION}
    for name in {spec.name for spec in fields(Metrics)} - histograms:
        assert row[name] == getattr(metrics, name), name
    assert row["hit_ratio"] == metrics.hit_ratio
    assert row["load_s_mean"] == metrics.load_s.mean
    assert stats.select("requests").first() == (metrics.requests,)


def test_a_row_for_each_topic_and_group(spark: SparkSession, tmp_path: Path) -> None:
    orders = write(tmp_path / "orders", "persistent://stats/eu/orders")
    parcels = write(tmp_path / "parcels", "persistent://stats/eu/parcels")
    for topic in (orders, orders, parcels):
        assert topic.load(spark).count() == topic.rows
    by_topic = {row["topic"]: row for row in sparkcache.stats(spark, "topic").collect()}
    found = [by_topic[f"{t.directory.as_uri()}#{t.name}"] for t in (orders, parcels)]
    assert [row["received_bytes"] for row in found] == [
        orders.size_bytes,
        parcels.size_bytes,
    ]
    assert found[0]["requested_bytes"] == 2 * orders.size_bytes
    assert found[0]["saved_bytes"] == orders.size_bytes
    by_group = {row["group"]: row for row in sparkcache.stats(spark, "group").collect()}
    group = by_group["stats/eu"]
    assert group["requests"] == sum(row["requests"] for row in found)
    total = node_metrics(spark).values()
    assert sum(row["requests"] for row in by_group.values()) == sum(
        metrics.requests for metrics in total
    )


def test_notebooks_show_a_table(spark: SparkSession, tmp_path: Path) -> None:
    topic = write(tmp_path / "evil", EVIL)
    topic.load(spark).count()
    html = sparkcache.stats(spark, by="topic")._repr_html_()
    assert html is not None
    assert "stats/evil/&lt;b&gt;bold&lt;-b&gt;</td>" in html
    assert "<b>" not in html
    of_nodes = sparkcache.stats(spark)._repr_html_()
    assert of_nodes is not None
    assert "hit_ratio" in of_nodes


def test_there_are_three_ways_to_aggregate(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="use one of node, topic, group"):
        sparkcache.stats(spark, by="tenant")


def test_clear_evicts_one_topic_or_all(spark: SparkSession, tmp_path: Path) -> None:
    def runs() -> dict[str, int]:
        rows = sparkcache.stats(spark, "topic").collect()
        return {row["topic"]: row["runs"] for row in rows}

    orders = write(tmp_path / "orders", "persistent://clear/eu/orders")
    parcels = write(tmp_path / "parcels", "persistent://clear/eu/parcels")
    for topic in (orders, parcels):
        assert topic.load(spark).count() == topic.rows
    name, other = (f"{t.directory.as_uri()}#{t.name}" for t in (orders, parcels))
    assert runs()[name] > 0
    assert runs()[other] > 0
    sparkcache.clear(spark, name)
    assert runs()[name] == 0
    assert runs()[other] > 0
    sparkcache.clear(spark)
    assert set(runs().values()) == {0}
    assert orders.load(spark).count() == orders.rows
    assert runs()[name] > 0


def test_clear_names_the_topics_that_there_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = write(tmp_path / "orders", "persistent://clear/us/orders")
    assert topic.load(spark).count() == topic.rows
    with pytest.raises(ConfigError, match=r"clear\(topic='orders'\): .* no such topic"):
        sparkcache.clear(spark, "orders")
