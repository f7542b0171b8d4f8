"""Queues of RocketMQ through Spark: two brokers with two queues each."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import sparkcache
from sparkcache.metrics import Metrics
from sparkcache.source.driver.node_rpc import node_metrics
from sparkcache.testing.s3_server import S3Server
from sparkcache_rocketmq.testing import Layout, Message, QueueWriter
from tests.needs import SPARK_4_2
from tests.spark.spark_topics import Stream, Topic, consumers_of, settings_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sparkcache.config import CacheConfig

pytestmark = pytest.mark.spark

MESSAGES = 200
QUEUES = [(broker, queue) for broker in ("broker-a", "broker-b") for queue in (0, 1)]
TAGS = ("TagA", "TagB", None, "TagC")


@dataclass
class Store:
    """A topic in a directory: offsets 50 to 249 of four queues, a second apart."""

    directory: Path
    a_day_later: bool = False
    objects: dict[str, bytes] = field(default_factory=dict)
    writers: dict[tuple[str, int], QueueWriter] = field(default_factory=dict)

    def write(self, messages: int, layout: Layout = Layout.POSIX) -> None:
        for broker, queue in QUEUES:
            key = broker, queue
            if key not in self.writers:
                self.writers[key] = QueueWriter(
                    self.objects,
                    queue_id=queue,
                    broker=broker,
                    layout=layout,
                    first_offset=50,
                    max_segment_bytes=20_000,
                )
            writer = self.writers[key]
            first = writer.next_offset
            later_ms = 86_400_000 if self.a_day_later else 0
            writer.append(message(n, later_ms) for n in range(first, first + messages))
        for name, data in self.objects.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(data)
            elif (size := path.stat().st_size) < len(data):
                with path.open("ab") as file:
                    file.write(data[size:])

    def load(self, spark: SparkSession, **options: Any) -> DataFrame:
        options = {"connector": "rocketmq", "runBytes": "4k"} | options
        if not {"topics", "topicsPattern"} & options.keys():
            options = {"topic": "TopicA"} | options
        reader = spark.read.format("sparkcache").options(**options)
        return reader.load(str(self.directory))

    @property
    def log_bytes(self) -> int:
        logs = (data for name, data in self.objects.items() if "COMMIT_LOG" in name)
        return sum(map(len, logs))


def message(number: int, later_ms: int = 0) -> Message:
    return Message(
        f"{number} ".encode() * 20,
        tags=TAGS[number % 4],
        keys=f"key-{number}",
        born_time_ms=number * 1000 - 1,
        store_time_ms=number * 1000 + later_ms,
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "store")
    found.write(MESSAGES)
    return found


def found_in(rows: DataFrame) -> dict[tuple[str, int], list[int]]:
    """Return the queue offsets of each queue, after a look at the values."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in rows.collect():
        offset = row["__queueOffset"]
        sent = message(offset)
        assert bytes(row["value"]) == sent.body
        assert (row["__tags"], row["__keys"]) == (sent.tags, sent.keys)
        found.setdefault((row["__broker"], row["__queueId"]), []).append(offset)
    return {queue: sorted(offsets) for queue, offsets in found.items()}


EVERYTHING = {queue: list(range(50, 50 + MESSAGES)) for queue in QUEUES}


@pytest.mark.parametrize(
    ("options", "queues"),
    [
        ({"topic": "TopicA"}, QUEUES),
        ({"topic": "TopicA/1"}, QUEUES[1::2]),
        ({"topic": "broker-b/TopicA"}, QUEUES[2:]),
        ({"topic": "DefaultCluster/broker-a/TopicA/1"}, QUEUES[1:2]),
        ({"topics": "broker-a/TopicA/0, broker-b/TopicA/1"}, QUEUES[::3]),
        ({"topicsPattern": ".*/broker-a/Topic[AB]/.*"}, QUEUES[:2]),
    ],
)
def test_queues_by_name(
    spark: SparkSession,
    store: Store,
    options: dict[str, str],
    queues: list[tuple[str, int]],
) -> None:
    rows = store.load(spark, **options)
    assert found_in(rows) == {queue: EVERYTHING[queue] for queue in queues}


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        pytest.param({"startingOffsets": "0"}, [range(50, 250)] * 4, id="expired"),
        pytest.param({"startingOffsets": "240"}, [range(240, 250)] * 4, id="a start"),
        pytest.param({"startingOffsets": "250"}, [range(0)] * 4, id="the end"),
        pytest.param({"startingOffsets": "999"}, [range(0)] * 4, id="after the end"),
        pytest.param(
            {"startingOffsets": "60", "endingOffsets": "61"},
            [range(60, 61)] * 4,
            id="one of each",
        ),
        pytest.param(
            {
                "startingOffsets": '{"TopicA": 200, "broker-a/TopicA/1": "1:240"}',
                "endingOffsets": '{"TopicA/0": 202, "broker-b/TopicA/0": "latest"}',
            },
            [range(200, 202), range(240, 250), range(200, 250), range(200, 250)],
            id="JSON, the longest name counts",
        ),
        pytest.param(
            {"startingTime": "100000", "endingTime": "103000"},
            [range(100, 103)] * 4,
            id="times",
        ),
        pytest.param(
            {"startingTime": "1970-01-01T00:04:08Z", "maxTimeSkew": "0s"},
            [range(248, 250)] * 4,
            id="a time to the end",
        ),
        pytest.param(
            {"tags": "TagA || TagC", "endingOffsets": "60"},
            [[51, 52, 55, 56, 59]] * 4,
            id="tags",
        ),
        pytest.param({"tags": "*"}, [range(50, 250)] * 4, id="all tags"),
    ],
)
def test_ranges_of_the_queues(
    spark: SparkSession,
    store: Store,
    options: dict[str, str],
    offsets: list[range | list[int]],
) -> None:
    found = found_in(store.load(spark, **options))
    wanted = dict(zip(QUEUES, map(list, offsets), strict=True))
    assert found == {queue: some for queue, some in wanted.items() if some}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"topic": "TopicB"},
            "topic='TopicB': matches no tiered queue.*tiered queues: Default",
            id="no such topic",
        ),
        pytest.param({"topic": "a//b"}, "give 'TopicA', 'TopicA/3'", id="no name"),
        pytest.param({"tag": "a"}, "did you mean tags", id="misspelt"),
        pytest.param({"isolation": "x"}, "unknown option isolation", id="of Pulsar"),
        pytest.param({"tags": " "}, "such as 'TagA || TagB'", id="no tags"),
        pytest.param(
            {"startingOffsets": "first"},
            "'first' is not a position: neither a queue offset",
            id="no offset",
        ),
        pytest.param(
            {"startingOffsets": '{"TopicB": 7}'},
            "TopicB is not of this scan; give one position for all topics, or JSON",
            id="offsets of another topic",
        ),
        pytest.param(
            {"startingOffsets": '{"TopicA/7": 7}'},
            "TopicA/7 is not of this scan",
            id="offsets of another queue",
        ),
        pytest.param(
            {"startingOffsets": "1:7"},
            "'1:7' is not a position of queue 0",
            id="an offset of one queue",
        ),
        pytest.param({"metadata": "none"}, "none: expected", id="no metadata"),
    ],
)
def test_wrong_options(
    spark: SparkSession, store: Store, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        store.load(spark, **options).count()


def test_a_segment_that_grows_after_planning(spark: SparkSession, store: Store) -> None:
    """What was planned is read, and by the next scan what came later."""
    early = store.load(spark)
    java: Any = early._jdf
    java.queryExecution().toRdd().getNumPartitions()  # now it is planned
    store.write(MESSAGES)
    both = {queue: list(range(50, 50 + 2 * MESSAGES)) for queue in QUEUES}
    assert found_in(early) == EVERYTHING
    assert found_in(store.load(spark)) == both


def test_a_recreated_topic(spark: SparkSession, store: Store) -> None:
    """Of the same names, sizes and offsets, while runs of the old one are held."""
    with sparkcache.plan(store.load(spark), store.load(spark)):
        assert found_in(store.load(spark)) == EVERYTHING
        shutil.rmtree(store.directory)
        recreated = Store(store.directory, a_day_later=True)
        recreated.write(MESSAGES)
        assert recreated.objects.keys() == store.objects.keys()
        rows = recreated.load(spark).select("__storeTimestamp").collect()
    assert {row[0].day for row in rows} == {2}


def test_a_missing_segment(spark: SparkSession, store: Store) -> None:
    names = [
        name
        for name in sorted(store.objects, key=lambda name: name[-20:])
        if "broker-a/TopicA/0/COMMIT_LOG" in name
    ]
    (store.directory / names[1]).unlink()
    with pytest.raises(PySparkException, match=r"SourceError.*commit log to continue"):
        store.load(spark).count()
    found = found_in(store.load(spark, failOnDataLoss="false"))
    assert {queue: found[queue] for queue in QUEUES[1:]} == {
        queue: EVERYTHING[queue] for queue in QUEUES[1:]
    }
    left = found[QUEUES[0]]
    assert 50 < len(left) < MESSAGES
    assert set(left) < set(EVERYTHING[QUEUES[0]])


def test_each_queue_is_planned_and_evicted(spark: SparkSession, store: Store) -> None:
    """Consumers that want different tags share what is held."""
    frames = [store.load(spark, tags=tag) for tag in ("TagA", "TagB")]
    assert [len(consumers_of(frame)) for frame in frames] == [4, 4]
    before = sum(node_metrics(spark).values(), Metrics())
    with sparkcache.plan(*frames):
        counts = [frame.count() for frame in frames]
    after = sum(node_metrics(spark).values(), Metrics())
    assert counts == [4 * MESSAGES // 4] * 2
    counted = after - before
    assert counted.received_bytes == store.log_bytes
    assert counted.evicted_by_last_read == counted.inserts > 0
    assert after.held_bytes <= before.held_bytes  # what others left may have expired


@pytest.mark.parametrize("layout", Layout)
def test_every_byte_of_s3_once(
    spark: SparkSession,
    tmp_path: Path,
    layout: Layout,
    install: Callable[[CacheConfig], None],
) -> None:
    store = Store(tmp_path)
    store.write(MESSAGES, layout)
    with S3Server() as server, server.as_environment():
        server.create_bucket("store")
        for name, data in store.objects.items():
            server.put("store", f"tiered/{name}", data)
        server.forget()
        install(settings_for(server.endpoint))
        reader = spark.read.format("sparkcache").options(
            connector="rocketmq", topic="TopicA", runBytes="4k"
        )
        frames = [
            reader.option("tags", tags).load("s3://store/tiered")
            for tags in ("TagA || TagB", "TagC")
        ]
        with sparkcache.plan(*frames):
            counts = [frame.count() for frame in frames]
        requests = [one for one in server.requests() if one.method == "GET"]
    assert counts == [4 * MESSAGES // 2, 4 * MESSAGES // 4]
    of_logs = [one for one in requests if "COMMIT_LOG" in one.key]
    probes = [one for one in of_logs if one.sent_bytes <= 128]
    reads = [one for one in of_logs if one.sent_bytes > 128]
    assert sum(one.sent_bytes for one in reads) == store.log_bytes
    logs = sum("COMMIT_LOG" in name for name in store.objects)
    assert len(reads) == logs
    assert len(probes) == 2 * logs
    assert all(one.status == 206 for one in of_logs)


@SPARK_4_2
def test_a_stream_goes_on_as_queues_grow(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    stream = Stream(spark, Topic(store.directory, "TopicA"), tmp_path)
    for messages in (MESSAGES, 30):
        batches = stream.run(connector="rocketmq")
        assert [it["numInputRows"] for it in batches] == [len(QUEUES) * messages]
        store.write(30)
    found = spark.read.parquet(str(tmp_path / "rows"))
    expected = store.load(spark, endingOffsets="280")
    assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect()))
