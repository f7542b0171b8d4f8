"""How settings reach planners, tasks and nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import sparkcache
from sparkcache import CacheConfig, ConfigError
from sparkcache.metrics import Metrics
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.source.driver.registration import name_of_installed, register
from tests.spark.spark_topics import Topic, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def clean(spark: SparkSession, topic: Topic) -> Iterator[None]:
    source_name = name_of_installed(spark)

    class Discovered(SparkCacheSource):
        @classmethod
        def name(cls) -> str:
            return source_name

    yield
    register(spark, Discovered)
    for key in CacheConfig().to_conf():
        spark.conf.unset(key)
    topic.load(spark).count()  # a task tells the node


@pytest.mark.usefixtures("clean")
def test_installed_configuration_reaches_planner_task_and_node(
    spark: SparkSession, topic: Topic
) -> None:
    config = CacheConfig(max_bytes=1 << 20, run_bytes=2048, partition_bytes=5000)
    sparkcache.install(spark, config)
    reader = spark.read.format("sparkcache").option("topic", topic.name)
    orders = reader.load(str(topic.directory))
    assert orders.rdd.getNumPartitions() > 2  # the planner knows partitionBytes
    assert orders.count() == topic.rows
    held = sum(node_metrics(spark).values(), Metrics())
    assert held.held_bytes <= config.max_bytes  # the node knows maxBytes

    sparkcache.install(spark, CacheConfig(max_bytes=0, run_bytes=2048))
    before = sum(node_metrics(spark).values(), Metrics())
    assert orders.count() == topic.rows  # loaded before; it follows, too
    counted = sum(node_metrics(spark).values(), Metrics()) - before
    assert counted.streamed == counted.requests > 0
    assert counted.held_bytes + before.held_bytes == 0


@pytest.mark.usefixtures("clean")
def test_a_scan_may_name_an_endpoint_that_the_session_allows(
    spark: SparkSession,
) -> None:
    """A table that others have defined must not choose who gets the credentials."""
    endpoint = "http://127.0.0.1:1"
    reader = spark.read.format("sparkcache").options(
        topic="t", endpoint=endpoint, pathStyle="true", storageAttempts="1"
    )
    sparkcache.install(spark, CacheConfig())
    with pytest.raises(PySparkException, match="not one of the S3 servers"):
        reader.load("s3://bucket").count()
    sparkcache.install(spark, CacheConfig(allowed_endpoints=endpoint))
    with pytest.raises(PySparkException, match="Could not connect"):
        reader.load("s3://bucket").count()


@pytest.mark.usefixtures("clean")
def test_installing_takes_the_conf_of_the_session(spark: SparkSession) -> None:
    spark.conf.set("spark.sparkcache.maxBytes", "3m")
    sparkcache.install(spark)
    assert spark.conf.get("spark.sparkcache.maxBytes") == "3m"
    assert spark.conf.get("spark.sparkcache.runBytes") == "2m"
    spark.conf.set("spark.sparkcache.maxbytes", "4m")
    try:
        with pytest.raises(ConfigError, match=r"did you mean spark\.sparkcache\.maxB"):
            sparkcache.install(spark)
    finally:
        spark.conf.unset("spark.sparkcache.maxbytes")


@pytest.mark.usefixtures("clean")
def test_settings_can_be_changed_one_by_one(spark: SparkSession, topic: Topic) -> None:
    orders = topic.load(spark)
    orders.count()
    assert sum(node_metrics(spark).values(), Metrics()).held_bytes > 0
    spark.conf.set("spark.sparkcache.maxBytes", "0")
    assert orders.count() == topic.rows
    assert sum(node_metrics(spark).values(), Metrics()).held_bytes == 0


@pytest.mark.usefixtures("clean")
def test_a_job_without_the_conf_changes_no_settings(
    spark: SparkSession, topic: Topic
) -> None:
    orders = topic.load(spark)
    spark.conf.set("spark.sparkcache.maxBytes", "0")
    assert orders.count() == topic.rows
    assert orders.rdd.count() == topic.rows
    assert sum(node_metrics(spark).values(), Metrics()).held_bytes == 0


@pytest.mark.usefixtures("clean")
def test_the_session_that_was_installed_first_decides_for_the_node(
    spark: SparkSession, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    sparkcache.install(spark, CacheConfig(ttl_after_read_s=600, run_bytes=2048))
    orders = topic.load(spark)
    other = spark.newSession()
    assert not caplog.records
    sparkcache.install(other, CacheConfig(max_bytes=0, policy="lru", run_bytes=2048))
    (warning,) = caplog.messages
    assert "maxBytes=1g, not 0" in warning
    assert "policy=next-read, not lru" in warning
    assert "runBytes" not in warning
    orders.count()
    before = sum(node_metrics(spark).values(), Metrics())
    for _ in range(3):
        assert topic.load(other).count() == topic.rows
        assert orders.count() == topic.rows
    after = sum(node_metrics(spark).values(), Metrics())
    assert after.requests > before.requests
    assert after.misses == before.misses, "the other session evicts nothing"
    caplog.clear()
    sparkcache.install(spark, CacheConfig(max_bytes=0, run_bytes=2048))
    assert not caplog.records
    assert orders.count() == topic.rows
    assert sum(node_metrics(spark).values(), Metrics()).held_bytes == 0


@pytest.mark.usefixtures("clean")
def test_installing_within_a_plan(spark: SparkSession, topic: Topic) -> None:
    with sparkcache.plan(topic.load(spark)):
        sparkcache.install(spark)


PROGRAM = """
import json
import sys
import time
import urllib.request
import sparkcache
from pyspark.sql import SparkSession

name, directory = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.port", "0")
    .getOrCreate()
)
try:
    spark.read.format("sparkcache").load("/nowhere")
except Exception as error:
    print(error)
orders = spark.read.format("sparkcache").option("topic", name).load(directory)
print(orders._jdf.queryExecution().executedPlan().toString())
tab = sparkcache.attach_ui(spark, every_s=0.2)


def get(path):
    with urllib.request.urlopen(spark.sparkContext.uiWebUrl + path) as answer:
        return answer.read().decode()


def requests():
    report = json.loads(get("/sparkcache/json"))
    return sum(one["metrics"]["cache.gets"] for one in report["executors"])


has_tab = "SparkCache" in get("/jobs/"), "sc-topics" in get("/sparkcache/")
print("before", requests(), *has_tab)
orders.count()
(row,) = sparkcache.stats(spark).collect()
while requests() < row["requests"]:  # it asks by itself while somebody looks
    time.sleep(0.05)
print("after", requests() == row["requests"] > 0)
try:
    sparkcache.attach_ui(spark)
except sparkcache.ConfigError as error:
    print(error)
tab.close()
with sparkcache.plan(orders):
    spark.stop()
print("stopped")
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a program printed in a session of its own."""
    topic = write(tmp_path_factory.mktemp("own") / "bucket")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, topic.name, str(topic.directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_source_is_found_without_being_registered(said: str) -> None:
    assert "option topic is missing" in said


def test_without_the_jar_scans_are_read_in_python(said: str) -> None:
    assert "(Python)" in said
    assert "read in" not in said


def test_a_session_that_was_not_configured_can_have_the_tab(said: str) -> None:
    assert "before 0 True True" in said
    assert "after True" in said
    assert "the UI of this session has the tab already" in said


def test_a_session_may_be_stopped_within_a_plan(said: str) -> None:
    assert said.endswith("\nstopped\n")
