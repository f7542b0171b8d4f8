"""Several executors: each has a node of its own, which is seen and ends with it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from sparkcache.jvm.jar import plugin_jar
from tests.needs import SPARK_4_1, SPARK_4_2
from tests.spark.browser import Browser
from tests.spark.spark_topics import Topic, write

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark

PROGRAM = """
import json, os, shutil, sys, threading, time, urllib.request
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession
import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.source.spark_version import has_spark

name, directory, log, half, lake = sys.argv[1:]
spark = sparkcache.configure(
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.executor.memory", "512m")
    .config("spark.executor.extraJavaOptions", os.environ["SPARK_SUBMIT_OPTS"])
    .config("spark.ui.port", "0")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", log)
    .config("spark.sql.streaming.noDataProgressEventInterval", "100")
).getOrCreate()
config = sparkcache.CacheConfig(
    max_bytes=64 << 20, ttl_create_s=3, ttl_after_read_s=0.5, homes=False
)  # without homes any executor may read a run, and so may both
sparkcache.install(spark, config)
orders = (
    spark.read.format("sparkcache").option("topic", name)
    .option("runBytes", "4k").option("minPartitions", "3")
    .option("homes", "true").load(directory)
)
with sparkcache.plan(orders, orders):
    rows = orders.count(), orders.count()
    nodes = node_metrics(spark)
loaded = sum(nodes.values(), Metrics()).received_bytes

def stream(path, job, **options):
    # It waits in the middle until a job has read what it comes to.
    has_begun, may_go_on = threading.Event(), threading.Event()

    def read(batch, number):
        print("BATCH", number, batch.count())
        if number == 0:
            has_begun.set()
            may_go_on.wait()

    found = (
        spark.readStream.format("sparkcache").options(**options)
        .options(runBytes="4k", minPartitions="2").load(path)
    )
    query = found.writeStream.foreachBatch(read).start()
    has_begun.wait()
    job.count()
    held = [node.held_bytes for node in node_metrics(spark).values()]
    may_go_on.set()
    query.processAllAvailable()
    end_s = time.monotonic() + 20
    while True:
        left = node_metrics(spark)
        still_held = [node.held_bytes for node in left.values()]
        if not any(still_held) or time.monotonic() > end_s:
            break
        time.sleep(0.1)
    found = json.dumps([held, still_held, query.isActive]).replace(" ", "")
    query.stop()
    return found

if has_spark("4.2"):
    print("TOPIC", stream(directory, orders, topic=name, maxBytesPerTrigger=half))

for _ in range(2):
    rows_of_file = pa.table({"id": range(4000)})
    write_deltalake(f"{lake}/t", rows_of_file, mode="append")
of_table = {"connector": "delta", "topic": "t"}
table = (
    spark.read.format("sparkcache").options(**of_table)
    .options(runBytes="4k", minPartitions="4").load(lake)
)
if has_spark("4.2"):
    print("TABLE", stream(lake, table, maxRowsPerTrigger=4000, **of_table))
else:
    table.count()
    while sum(node_metrics(spark).values(), Metrics()).held_bytes:
        time.sleep(0.1)  # as long as ttl_after_read_s
left = node_metrics(spark)
wanted = sorted(node.requests for node in left.values())
address = spark.sparkContext.uiWebUrl + "/sparkcache/json"
end_s = time.monotonic() + 20
while True:
    report = json.load(urllib.request.urlopen(address, timeout=20))
    requests = sorted(one["metrics"]["cache.gets"] for one in report["executors"])
    if requests == wanted or time.monotonic() > end_s:
        break
    time.sleep(0.1)
print("EXECUTORS", json.dumps(report["executors"]).replace(" ", ""))
print("REQUESTS", *wanted)
print("NODES", *nodes)
print("RESULT", len(nodes), *rows, loaded, sum(left.values(), Metrics()).held_bytes)
logs = os.path.join(os.environ["SPARK_HOME"], "work", spark.sparkContext.applicationId)
spark.stop()
shutil.rmtree(logs)  # of its executors; the home outlasts it
"""


@dataclass(frozen=True)
class Application:
    """What an application has said, by the first word of each line, and its log."""

    said: dict[str, list[str]]
    log: Path


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Topic:
    return write(tmp_path_factory.mktemp("topic") / "bucket")


@pytest.fixture(scope="module")
def application(topic: Topic, tmp_path_factory: pytest.TempPathFactory) -> Application:
    """One with two executors, which has ended."""
    log = tmp_path_factory.mktemp("log")
    done = subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM, topic.name, str(topic.directory)),
            *(str(log), str(topic.size_bytes // 2)),
            str(tmp_path_factory.mktemp("lake")),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert "RESULT" in lines, done.stderr
    return Application(lines, log)


def test_every_executor_has_a_node(application: Application, topic: Topic) -> None:
    said = application.said
    nodes, first, second, loaded_bytes, held_bytes = map(int, said["RESULT"])
    assert nodes == 2
    assert first == second == topic.rows
    assert topic.size_bytes <= loaded_bytes <= 2 * topic.size_bytes
    assert held_bytes == 0
    assert not any(Path(directory).exists() for directory in said["NODES"])


@SPARK_4_2
@pytest.mark.parametrize("of", ["TOPIC", "TABLE"])
def test_runs_that_a_stream_has_read_on_another_executor_are_evicted(
    application: Application, of: str
) -> None:
    ((before, after, is_active),) = map(json.loads, application.said[of])
    assert is_active
    assert min(before) > 0
    assert after == [0, 0]


@pytest.mark.usefixtures("jdk")
def test_the_tab_has_a_row_for_every_executor(application: Application) -> None:
    (report,) = map(json.loads, application.said["EXECUTORS"])
    assert sorted(one["executor"] for one in report) == ["0", "1"]
    requests = sorted(one["metrics"]["cache.gets"] for one in report)
    assert requests == [int(number) for number in application.said["REQUESTS"]]
    assert not any(one["is_gone"] for one in report)


@SPARK_4_1
@pytest.mark.usefixtures("jdk")
def test_what_is_asked_for_has_a_home(application: Application) -> None:
    """At least from the second query on: the first may find no executor."""
    (report,) = map(json.loads, application.said["EXECUTORS"])
    found = [one["metrics"] for one in report]
    placed = [one["cache.gets.home"] + one["cache.gets.away"] for one in found]
    assert 0 < sum(placed) <= sum(one["cache.gets"] for one in found)
    at_home = [one for one in found if one["cache.gets.home"]]
    assert all(one["cache.home.bytes"] > 0 for one in at_home)


@pytest.mark.usefixtures("jdk", "chromium")
def test_the_history_server_has_the_same_tab(
    application: Application, topic: Topic, tmp_path: Path
) -> None:
    (report,) = map(json.loads, application.said["EXECUTORS"])
    with history_server(application.log, tmp_path) as url, Browser(tmp_path) as browser:
        (listed,) = json.loads(fetch(f"{url}/api/v1/applications"))
        browser.open(f"{url}/history/{listed['id']}/jobs/")
        assert "SparkCache" in browser.run("return document.body.innerText")
        browser.open(f"{url}/history/{listed['id']}/sparkcache/")
        browser.until("document.querySelectorAll('#sc-topics tbody tr').length")
        rows = {row[0]: row[2] for row in browser.rows("sc-executors")}
        assert {row[1] for row in browser.rows("sc-executors")} == {"ended"}
        wanted = {one["executor"]: one["metrics"]["cache.gets"] for one in report}
        assert rows == {name: str(count) for name, count in wanted.items()}
        homes = {row[0]: row[2:4] for row in browser.rows("sc-homes")}
        assert homes == {
            one["executor"]: [
                str(one["metrics"][f"cache.gets.{place}"]) for place in ("home", "away")
            ]
            for one in report
        }
        topics = {row[0]: row[1:3] for row in browser.rows("sc-topics")}
        assert topics.keys() == {topic.name, "t"}
        assert topics[topic.name][0] == "shop/eu"
        assert sum(int(served) for _, served in topics.values()) == sum(wanted.values())
        browser.run(
            "[...document.querySelectorAll('#sc-topics a')]"
            ".find(link => link.textContent === arguments[0]).click()",
            topic.name,
        )
        browser.until("document.querySelectorAll('#sc-topics tbody tr').length === 1")
        pictures = Path(os.environ.get("SPARKCACHE_PICTURES", tmp_path))
        browser.screenshot(pictures / "history.png")


@contextmanager
def history_server(log: Path, directory: Path) -> Iterator[str]:
    """A History Server with our jar; its address."""
    home = Path(pyspark.__file__).parent
    port = free_port()
    options = f"-Dspark.history.fs.logDirectory={log} -Dspark.history.ui.port={port}"
    options += f" {os.environ['SPARK_SUBMIT_OPTS']}"
    server = subprocess.Popen(
        [home / "bin" / "spark-class", "org.apache.spark.deploy.history.HistoryServer"],
        env=os.environ
        | {"SPARK_DAEMON_CLASSPATH": str(plugin_jar()), "SPARK_HISTORY_OPTS": options},
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        end_s = time.monotonic() + 60
        while "attempts" not in fetch(f"{url}/api/v1/applications"):
            assert time.monotonic() < end_s, "the History Server lists no application"
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait()


def fetch(url: str) -> str:
    """What is answered; nothing if nobody does."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            content: bytes = answer.read()
            return content.decode()
    except OSError:
        return ""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
