"""Files for Prometheus, OpenTelemetry and Grafana fit what a driver publishes."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from sparkcache.metric_definition import Kind
from sparkcache.metrics import METRICS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.spark_topics import Topic

pytestmark = pytest.mark.spark

CONF = Path(__file__).parents[2] / "conf"
DEADLINE_S = 15.0


def relabelled(name: str, rules: list[dict[str, Any]]) -> dict[str, str] | None:
    """What Prometheus makes of a metric's name; None if it drops it."""
    labels = {"__name__": name}
    for rule in rules:
        assert rule["source_labels"] == ["__name__"]
        match = re.fullmatch(rule["regex"], labels["__name__"])
        if rule.get("action") == "keep":
            if match is None:
                return None
        elif match is not None:
            text = rule["replacement"].replace("$1", match[1])
            labels[rule["target_label"]] = text
    return labels


@pytest.fixture
def scraped(spark: SparkSession, topic: Topic) -> list[str]:
    """Names of the metrics that the driver publishes for Prometheus."""
    assert topic.load(spark).count() == topic.rows
    end_s = time.monotonic() + DEADLINE_S
    while True:
        url = f"{spark.sparkContext.uiWebUrl}/metrics/prometheus"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            names = re.findall(r"^(\w+)[{]", answer.read().decode(), flags=re.MULTILINE)
        if any("_executor_driver_cache_gets_Value" in name for name in names):
            return names
        assert time.monotonic() < end_s, "nothing was reported"
        time.sleep(0.1)


def test_metrics_are_scraped_by_their_names_and_shown(
    spark: SparkSession, scraped: list[str]
) -> None:
    (job,) = yaml.safe_load((CONF / "prometheus.yml").read_text())["scrape_configs"]
    rules = job["metric_relabel_configs"]
    found = [labels for name in scraped if (labels := relabelled(name, rules))]
    app = spark.sparkContext.applicationId.replace("-", "_")
    assert {(labels["app"], labels["executor"]) for labels in found} == {
        (app, "driver")
    }
    names = {labels["__name__"] for labels in found}
    for metric in METRICS.values():
        name = metric.name
        suffix = "_p99" if metric.kind is Kind.DISTRIBUTION else ""
        assert f"sparkcache_{name.replace('.', '_')}{suffix}" in names
    panels = json.loads((CONF / "grafana.json").read_text())["panels"]
    shown = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"sparkcache_\w+", target["expr"])
    }
    assert len(shown) > 20
    assert shown <= names


def test_the_collector_scrapes_what_prometheus_does() -> None:
    collector = yaml.safe_load((CONF / "otel-collector.yaml").read_text())
    scraping = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    text = json.dumps(scraping).replace("$$", "$")
    prometheus = yaml.safe_load((CONF / "prometheus.yml").read_text())
    assert json.loads(text) == prometheus["scrape_configs"]
    (pipeline,) = collector["service"]["pipelines"].values()
    assert set(pipeline["receivers"]) <= collector["receivers"].keys()
    assert set(pipeline["exporters"]) <= collector["exporters"].keys()
