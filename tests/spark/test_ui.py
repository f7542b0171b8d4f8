"""The tab in Spark's UI, as a browser shows it."""

from __future__ import annotations

import json
import os
import struct
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

import sparkcache
from sparkcache.metric_definition import Kind
from sparkcache.metrics import METRICS, Metrics
from sparkcache.node.status import published
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.testing.s3_server import S3Server
from sparkcache_pulsar.testing import synthetic_topic
from tests.spark.browser import Browser
from tests.spark.spark_topics import TOPIC, settings_for, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.config import CacheConfig

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jdk")]

BUCKET = "offload"
EVIL = "persistent://shop/eu/<script>document.title=1<-script>"
DEADLINE_S = 15.0


@pytest.fixture
def server(install: Callable[[CacheConfig], None]) -> Iterator[S3Server]:
    with S3Server() as server, server.as_environment():
        server.create_bucket(BUCKET)
        for stored in synthetic_topic(TOPIC, 4 << 20, ledgers=4):
            server.put(BUCKET, stored.key, stored.data, stored.metadata)
        install(settings_for(server.endpoint))
        yield server


@pytest.fixture
def browser(tmp_path: Path, chromium: None) -> Iterator[Browser]:
    with Browser(tmp_path) as browser:
        yield browser


def get(spark: SparkSession, path: str) -> str:
    url = spark.sparkContext.uiWebUrl
    assert url is not None
    with urllib.request.urlopen(url + path, timeout=DEADLINE_S) as answer:
        content: bytes = answer.read()
        return content.decode()


def counted(spark: SparkSession) -> Metrics:
    return sum(node_metrics(spark).values(), Metrics())


def reported(spark: SparkSession) -> dict[str, Any]:
    """What the tab shows, once that is what the node has counted.

    Nodes that other tests have killed come before it.
    """
    end_s = time.monotonic() + DEADLINE_S
    while True:
        wanted = published(counted(spark))
        report: dict[str, Any] = json.loads(get(spark, "/sparkcache/json"))
        executor = report["executors"][-1] if report["executors"] else {"metrics": {}}
        if wanted.items() <= executor["metrics"].items():
            return report
        assert time.monotonic() < end_s, (wanted, executor["metrics"])
        time.sleep(0.1)


def load(spark: SparkSession) -> DataFrame:
    reader = spark.read.format("sparkcache").option("topic", TOPIC)
    return reader.load(f"s3://{BUCKET}")


def test_the_tab_shows_what_the_server_and_the_nodes_have_counted(
    spark: SparkSession, server: S3Server, browser: Browser
) -> None:
    rows = load(spark)
    rows.rdd.getNumPartitions()
    server.forget()
    before = counted(spark)
    with sparkcache.plan(rows, rows, rows):
        for _ in range(3):
            rows.write.format("noop").mode("overwrite").save()
        spent = counted(spark) - before
        sent = [
            c for k, c in server.counts().items() if not k.endswith(("/", "-index"))
        ]
        assert sum(count.gets for count in sent) == spent.gets == 4
        assert sum(count.sent_bytes for count in sent) == spent.received_bytes
        assert (spent.saved_gets, spent.saved_bytes) == (8, 2 * spent.received_bytes)
        report = reported(spark)
        (plan,) = [
            plan
            for plan in report["executors"][-1]["plans"]
            if not plan["is_over"] and plan["topic"] == f"s3://{BUCKET}#{TOPIC}"
        ]
        assert plan["consumers"] == 3
        assert plan["read_bytes"] == 3 * plan["end_bytes"] == 3 * spent.received_bytes

    browser.open(f"{spark.sparkContext.uiWebUrl}/jobs/")
    assert "SparkCache" in browser.run("return document.body.innerText")
    browser.open(f"{spark.sparkContext.uiWebUrl}/sparkcache/")
    browser.until("document.querySelectorAll('#sc-topics tbody tr').length")
    found = [executor["metrics"] for executor in reported(spark)["executors"]]
    total = {name: sum(metrics[name] for metrics in found) for name in found[-1]}
    requests, saved = f"{total['cache.gets']:,}", total["storage.gets.saved"]
    wanted = json.dumps(requests)
    browser.until(f"document.getElementById('sc-requests').textContent === {wanted}")
    ratio = total["cache.gets.hit"] / total["cache.gets"]
    assert browser.text("sc-ratio") == f"{100 * ratio:.1f} %"
    assert browser.text("sc-saved").startswith(f"{saved:,} GETs, ")
    assert browser.text("sc-money") == f"$ {saved / 1000 * 0.0004:.6f}"
    *gone, alive = browser.rows("sc-executors")
    assert alive[:3] == ["driver", "active", f"{found[-1]['cache.gets']:,}"]
    assert all(row[1] == "gone" for row in gone)
    topics = {row[0]: row for row in browser.rows("sc-topics")}
    assert topics[TOPIC][1] == "shop/eu"
    assert browser.run("return document.querySelectorAll('svg.sc-plot').length") == 4
    plans = {row[0]: row for row in browser.rows("sc-plans")}
    read = f"{plan['read_bytes'] / (1 << 20):.1f} MiB"
    assert plans[plan["plan"][:8]][2:] == ["3", read, "100.0 %", "over"]


def test_a_topic_that_is_a_script_is_text_and_the_page_updates_itself(
    spark: SparkSession, tmp_path: Path, browser: Browser
) -> None:
    topic = write(tmp_path / "bucket", EVIL)
    browser.open(f"{spark.sparkContext.uiWebUrl}/sparkcache/")
    title = browser.run("return document.title")
    assert topic.load(spark).count() == topic.rows
    browser.until(
        "Array.from(document.querySelectorAll('#sc-topics td'))"
        f".some(cell => cell.textContent === {json.dumps(EVIL)})"
    )
    assert browser.run("return document.title") == title
    assert (
        browser.run("return document.querySelectorAll('#sc-topics script').length") == 0
    )


def test_pictures_are_made(
    spark: SparkSession, server: S3Server, tmp_path: Path, browser: Browser
) -> None:
    """Those in the README, if SPARKCACHE_PICTURES says where to put them."""
    rows = load(spark)
    others = []
    for number, name in enumerate(("eu/parcels", "eu/payments", "us/orders")):
        topic = write(tmp_path / name, f"persistent://shop/{name}", 100 * number)
        others.append(topic.load(spark))
    browser.open(f"{spark.sparkContext.uiWebUrl}/sparkcache/")
    with sparkcache.plan(*[rows] * 3, *[other for other in others for _ in range(2)]):
        for frame in (rows, *others, rows, *others):
            frame.write.format("noop").mode("overwrite").save()
        reported(spark)
        browser.until("document.querySelectorAll('#sc-plans tbody tr').length >= 4")
        browser.until(
            "document.getElementById('sc-plans').innerText.includes('66.7 %')"
        )
        picture = Path(os.environ.get("SPARKCACHE_PICTURES", tmp_path)) / "tab.png"
        browser.screenshot(picture)
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack_from(">II", data, 16)
    assert width >= 1300
    assert height >= 700


def test_tables_are_sorted_by_what_is_clicked(
    spark: SparkSession, tmp_path: Path, browser: Browser
) -> None:
    for number, name in enumerate("bac"):
        topic = write(tmp_path / name, f"persistent://sort/ns/{name}")
        for _ in range(number + 1):
            topic.load(spark).count()
    reported(spark)
    browser.open(f"{spark.sparkContext.uiWebUrl}/sparkcache/")
    rows = "[...document.querySelectorAll('#sc-topics tbody tr')]"
    of_test = "row => row.textContent.includes('//sort/ns/')"
    browser.until(f"{rows}.filter({of_test}).length === 3")
    click = "document.querySelectorAll('#sc-topics th')[arguments[0]].click()"

    def order() -> str:
        names = [row[0] for row in browser.rows("sc-topics")]
        return "".join(name[-1] for name in names if "//sort/ns/" in name)

    browser.run(click, 0)
    assert order() == "abc"
    browser.run(click, 2)
    assert order() == "bac"
    browser.run(click, 2)
    assert order() == "cab"


def test_an_error_in_the_plugin_stays_in_the_plugin(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    nothing = jvm.java.util.HashMap()
    plugin = jvm.org.apache.spark.sparkcache.SparkCachePlugin()
    executor = plugin.executorPlugin()
    executor.onTaskSucceeded()  # before it has begun, as if that had failed
    executor.shutdown()
    executor.init(None, nothing)
    executor.onTaskSucceeded()
    executor.shutdown()
    driver = plugin.driverPlugin()
    assert set(driver.init(None, None)) == {"python"}
    for message in (None, "no report", nothing):
        assert driver.receive(message) is None
    driver.shutdown()
    with pytest.raises(Py4JError, match="does not exist"):
        driver.nothing()  # so what was called was there


def test_the_first_of_very_many_executors_are_summed_up(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    name = "org.apache.spark.sparkcache.Reports"
    (constructor,) = loader.loadClass(name).getDeclaredConstructors()
    constructor.setAccessible(True)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    nothing = gateway.new_array(jvm.java.lang.Object, 0)
    reports = constructor.newInstance(nothing)
    for number in range(70):
        metrics = {"cache.gets": 1, "cache.held.bytes": 10, "cache.hit.ratio": 0.5}
        status = {"node": "n", "metrics": metrics, "topics": [], "plans": []}
        reports.put(str(number), json.dumps(status), number)
        if number < 60:
            reports.remove(str(number))
    report = json.loads(reports.json())["executors"]
    assert len(report) == 50 + 1 + 10
    (earlier,) = [one for one in report if one["executor"] == "earlier"]
    assert earlier["metrics"]["cache.gets"] == 10
    assert earlier["metrics"]["cache.held.bytes"] == 0
    assert reports.total("cache.gets") == 70
    assert reports.total("cache.held.bytes") == 10 * 10
    assert reports.executors() == 10
    assert sum(point[1] for point in json.loads(reports.json())["points"][-1:]) == 70


def test_metrics_are_in_sparks_own_metrics_system(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = write(tmp_path / "bucket")
    topic.load(spark).count()
    report = reported(spark)["executors"]
    gauges = json.loads(get(spark, "/metrics/json"))["gauges"]
    found = {
        key.partition(".SparkCachePlugin.")[2]: gauge["value"]
        for key, gauge in gauges.items()
        if ".SparkCachePlugin." in key
    }
    assert found["executors"] == 1
    for name in (m.name for m in METRICS.values() if m.kind is Kind.COUNTER):
        counted_by_all = sum(executor["metrics"][name] for executor in report)
        assert found[f"executor.driver.{name}"] == counted_by_all, name
        assert found[f"total.{name}"] == counted_by_all, name
    for name in ("cache.size", "cache.held.bytes", "cache.hit.ratio"):
        assert found[f"executor.driver.{name}"] == report[-1]["metrics"][name], name
    assert "total.cache.hit.ratio" not in found
