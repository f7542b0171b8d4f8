"""Chunked messages and transactions over the ends of runs, partitions and ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import sparkcache
from sparkcache_pulsar.testing import (
    Entry,
    Message,
    StoredObject,
    ledger_objects,
    write_directory,
)
from tests.needs import SPARK_4_2
from tests.spark.spark_topics import TOPIC, Stream, Topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COMMIT, ABORT = 21, 22
LEDGERS = 12
CUTS = {"runBytes": "1k", "partitionBytes": "1k"}


def value(number: int) -> bytes:
    return f"{number} ".encode() * 600


@pytest.fixture
def parts(tmp_path: Path) -> Topic:
    return write_parts(tmp_path / "bucket")


def write_parts(directory: Path) -> Topic:
    """Write large messages, each in three ledgers; a third of them are aborted."""
    entries: list[list[bytes]] = [[] for _ in range(LEDGERS)]
    for number in range(LEDGERS - 3):
        txn = (0, number)
        entry = Entry((Message(value(number)),), batched=False, txn=txn)
        for at, chunk in enumerate(entry.encode_chunks(500, f"m{number}")):
            entries[number + at].append(chunk)
        kind = ABORT if number % 3 == 0 else COMMIT
        marker = Entry((Message(),), batched=False, txn=txn, marker=kind)
        entries[-1].append(marker.encode())
    undecided = Entry((Message(b"undecided"),), batched=False, txn=(9, 9))
    entries[0].append(undecided.encode())
    stored: list[StoredObject] = []
    for ledger, written in enumerate(entries):
        stored += ledger_objects(TOPIC, ledger, written, max_block_bytes=800)
    write_directory(directory, stored)
    return Topic(directory)


def values(found: DataFrame) -> list[bytes]:
    return sorted(bytes(row["value"]) for row in found.select("value").collect())


COMMITTED = sorted(value(number) for number in range(LEDGERS - 3) if number % 3)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_each_is_one_row(spark: SparkSession, parts: Topic, enabled: str) -> None:
    found = parts.load(spark, **CUTS, enabled=enabled)
    assert found.rdd.getNumPartitions() > LEDGERS
    assert values(found) == COMMITTED


def test_each_planned_consumer_gets_each(spark: SparkSession, parts: Topic) -> None:
    frames = [parts.load(spark, **CUTS) for _ in range(3)]
    with sparkcache.plan(*frames):
        assert [values(frame) for frame in frames] == [COMMITTED] * 3


def test_transaction_states_are_shown_on_request(
    spark: SparkSession, parts: Topic
) -> None:
    found = parts.load(spark, **CUTS, isolation="read_uncommitted")
    counted = {row[0]: row[1] for row in found.groupBy("__txnState").count().collect()}
    assert counted == {"committed": 6, "aborted": 3, "undecided": 1}


def test_offsets_are_those_of_the_last_chunk(spark: SparkSession, parts: Topic) -> None:
    """Whose beginning lies before them, and whose outcome after them."""
    every = parts.load(spark, **CUTS).select("__ledgerId", "__entryId", "value")
    for at in range(0, LEDGERS, 4):
        part = parts.load(
            spark, **CUTS, startingOffsets=f"{at}:0", endingOffsets=f"{at + 4}:0"
        )
        wanted = every.where(f"__ledgerId >= {at} and __ledgerId < {at + 4}")
        assert values(part) == values(wanted)


@pytest.fixture
def of_parts(spark: SparkSession, parts: Topic, tmp_path: Path) -> Stream:
    return Stream(spark, parts, tmp_path)


def written(stream: Stream) -> list[bytes]:
    return sorted(bytes(row["value"]) for row in stream.rows())


@SPARK_4_2
def test_batches_end_within_messages_and_transactions(of_parts: Stream) -> None:
    found = of_parts.run(
        **CUTS, maxBytesPerTrigger="4k", failOnDataLoss="false", enabled="true"
    )
    assert len(found) > 2
    assert written(of_parts) == COMMITTED


@SPARK_4_2
def test_a_stream_does_not_pass_over_what_is_undecided(of_parts: Stream) -> None:
    """It fails until the end of the transaction is there, then goes on."""
    with pytest.raises(
        StreamingQueryException, match="no end in any ledger offloaded so far"
    ):
        of_parts.run(**CUTS)
    marker = Entry((Message(),), batched=False, txn=(9, 9), marker=COMMIT).encode()
    objects = ledger_objects(TOPIC, LEDGERS, [marker])
    write_directory(of_parts.topic.directory, objects)
    of_parts.run(**CUTS)
    assert written(of_parts) == sorted([*COMMITTED, b"undecided"])
