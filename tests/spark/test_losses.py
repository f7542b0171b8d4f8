"""`sparkcache.losses`: what queries left out, as a DataFrame and in Spark's UI."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkcache
from sparkcache.source.spark_version import has_spark
from tests.spark.browser import Browser
from tests.spark.spark_topics import ENTRIES, MESSAGES, Stream, Topic, write

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

LENIENT = {"failOnDataLoss": "false"}


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def data_of(topic: Topic, ledger: int) -> Path:
    (path,) = topic.directory.glob(f"*-ledger-{ledger}")
    return path


def losses(spark: SparkSession, topic: Topic) -> list[Row]:
    """Return what is listed for the directory of a topic."""
    root = topic.directory.as_uri()
    return [row for row in sparkcache.losses(spark).collect() if row["root"] == root]


def test_nothing_is_lost(spark: SparkSession, topic: Topic) -> None:
    topic.load(spark).count()
    assert losses(spark, topic) == []
    assert sparkcache.losses(spark).schema.simpleString() == (
        "struct<topic:string,root:string,object:string,ledger:bigint,first:bigint,"
        "last:bigint,rows:bigint,reason:string,time:timestamp>"
    )


def test_entries_that_tasks_left_out(spark: SparkSession, topic: Topic) -> None:
    before_s = time.time()
    flip_a_bit(topic.data_files[0])
    frame = topic.load(spark, **LENIENT)
    missing = topic.rows - frame.count()
    assert missing > 0
    found = losses(spark, topic)
    assert sum(row["last"] - row["first"] + 1 for row in found) * MESSAGES == missing
    for row in found:
        assert row["topic"] == topic.name
        assert row["object"] == topic.data_files[0].as_uri()
        assert "expected" in row["reason"]
        assert "found" in row["reason"]
        assert before_s - 1 <= row["time"].timestamp() <= time.time()
    frame.count()
    assert losses(spark, topic) == found, "each range is listed once"


def test_entries_that_planning_left_out(spark: SparkSession, topic: Topic) -> None:
    gone = data_of(topic, 5)
    gone.unlink()
    assert topic.load(spark, **LENIENT).count() == topic.rows * 2 // 3
    (row,) = losses(spark, topic)
    assert (row["object"], row["ledger"]) == (gone.as_uri(), 5)
    assert (row["first"], row["last"], row["rows"]) == (0, ENTRIES - 1, None)


def test_a_task_that_ends_early_reports(spark: SparkSession, topic: Topic) -> None:
    flip_a_bit(topic.data_files[0])
    frame = topic.load(spark, **LENIENT, partitionBytes="1g").coalesce(1)
    frame.limit(ENTRIES * MESSAGES).collect()
    assert losses(spark, topic)


@pytest.mark.skipif(not has_spark("4.2"), reason="streams need Spark 4.2")
def test_entries_that_a_stream_left_out(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    stream = Stream(spark, topic, tmp_path / "stream")
    limited: dict[str, Any] = {**LENIENT, "maxBytesPerTrigger": "4k"}
    query = stream.start({"processingTime": "0 seconds"}, **limited)
    while not query.recentProgress:
        time.sleep(0.1)
    query.stop()
    gone = data_of(topic, 3)
    for path in (gone, Path(f"{gone}-index")):
        path.unlink()
    stream.run(**LENIENT)
    read = len({row["__entryId"] for row in stream.rows() if row["__ledgerId"] == 3})
    (row,) = losses(spark, topic)
    assert (row["ledger"], row["first"], row["last"]) == (3, read, ENTRIES - 1)
    assert row["reason"].endswith("the topic was trimmed")


@pytest.mark.usefixtures("jdk")
def test_the_tab_shows_what_is_lost_of_a_topic(
    spark: SparkSession, tmp_path: Path, chromium: None
) -> None:
    topics = [
        write(tmp_path / name, f"persistent://lost/<b>/{name}") for name in ("a", "b")
    ]
    for topic in topics:
        data_of(topic, 3).unlink()
        topic.load(spark, **LENIENT).count()
    names = [topic.name for topic in topics]
    link = f"a[href='#topic={_encoded(topics[0])}']"
    with Browser(tmp_path) as browser:
        browser.open(f"{spark.sparkContext.uiWebUrl}/sparkcache/")
        browser.until(f'document.querySelector("#sc-losses {link}")')
        shown = [row for row in browser.rows("sc-losses") if row[1] in names]
        assert sorted(row[1:4] for row in shown) == [
            [name, "entries 3:0-23", ""] for name in names
        ]
        browser.run(f'document.querySelector("#sc-topics {link}").click()')
        browser.until("document.querySelectorAll('#sc-topics tbody tr').length === 1")
        assert [row[0] for row in browser.rows("sc-topics")] == names[:1]
        assert [row[1] for row in browser.rows("sc-losses")] == names[:1]
        assert names[0] in browser.text("sc-topic")
        browser.screenshot(tmp_path / "topic.png")
        browser.run("document.querySelector('#sc-topic a').click()")
        browser.until("document.querySelectorAll('#sc-topics tbody tr').length > 1")


def _encoded(topic: Topic) -> str:
    from urllib.parse import quote

    return quote(f"{topic.directory.as_uri()}#{topic.name}", safe="!'()*~-_.")
