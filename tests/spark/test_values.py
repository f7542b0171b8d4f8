"""Values that are decoded by their schema, as a user of Spark sees them."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest

import sparkcache
from sparkcache_pulsar.testing import Entry, Message, ledger_objects, write_directory
from tests.spark.spark_topics import TOPIC, Topic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

UTC = dt.UTC
DEFINITION = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": "int"}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "total",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
            },
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "local",
            "type": {"type": "long", "logicalType": "local-timestamp-millis"},
        },
        {
            "name": "side",
            "type": {"type": "enum", "name": "Side", "symbols": ["L", "R"]},
        },
    ],
}


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "note": None if number % 3 else f"order {number}",
        "lines": list(range(number % 4)),
        "tags": {f"k{number}": "v"},
        "total": decimal.Decimal(number) / 100,
        "day": dt.date(2024, 1, 1) + dt.timedelta(number),
        "time": dt.timedelta(hours=1, seconds=number),
        "at": dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=number),
        "local": dt.datetime(2024, 1, 1, 12) + dt.timedelta(days=number),
        "side": "LR"[number % 2],
    }


def topic_of(tmp_path: Path, payloads: Sequence[bytes | None]) -> Topic:
    """A topic of entries of ten messages."""
    entries = [
        Entry(tuple(map(Message, payloads[at : at + 10]))).encode()
        for at in range(0, len(payloads), 10)
    ]
    directory = tmp_path / "bucket"
    write_directory(directory, ledger_objects(TOPIC, 3, entries))
    return Topic(directory)


def test_avro_values_are_columns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastavro = pytest.importorskip("fastavro")
    monkeypatch.setenv("TZ", "UTC")
    schema, payloads = fastavro.parse_schema(DEFINITION), []
    for number in range(50):
        stream = BytesIO()
        value = order(number)
        value["time"] //= dt.timedelta(milliseconds=1)
        fastavro.schemaless_writer(stream, schema, value)
        payloads.append(stream.getvalue())
    topic = topic_of(tmp_path, [*payloads, None])
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(DEFINITION))
    for given in (json.dumps(DEFINITION), str(file), file.as_uri()):
        found = topic.load(spark, valueSchema=given).orderBy("value.id")
        assert found.filter("value is null").count() == 1
        rows = found.filter("value is not null").select("value.*").collect()
        assert len(rows) == 50
        for number, row in enumerate(rows):
            expected = order(number)
            at = row["at"].astimezone(UTC)
            assert {**row.asDict(), "at": at} == expected
    total = topic.load(spark, valueSchema=str(file)).agg({"value.total": "sum"})
    assert total.collect()[0][0] == decimal.Decimal("12.25")


def test_consumers_with_different_schemas_share_no_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    payloads = [b'{"a":%d,"b":"%d"}' % (n, n) for n in range(30)]
    topic = topic_of(tmp_path, payloads)

    def schema(**types: str) -> str:
        fields = [{"name": name, "type": of} for name, of in types.items()]
        definition = {"type": "record", "name": "R", "fields": fields}
        return json.dumps({"type": "JSON", "schema": definition})

    one = topic.load(spark, valueSchema=schema(a="int"))
    other = topic.load(spark, valueSchema=schema(b="string"))
    plain = topic.load(spark)
    with sparkcache.plan(one, other, plain):
        assert sum(row[0] for row in one.select("value.a").collect()) == 435
        texts = {row[0] for row in other.select("value.b").collect()}
        assert texts == {str(number) for number in range(30)}
        assert {bytes(row["value"]) for row in plain.collect()} == set(payloads)


def test_values_that_do_not_decode(spark: SparkSession, tmp_path: Path) -> None:
    payloads = [b"\0\0\0" + bytes([number]) for number in range(30)]
    payloads[17] = b"no number"
    topic = topic_of(tmp_path, payloads)
    with pytest.raises(
        Exception, match=r"INT32 of 4 bytes, found 9 bytes .entries 3:1-1"
    ):
        topic.load(spark, valueSchema="INT32").collect()
    lossy = topic.load(spark, valueSchema="INT32", failOnDataLoss="false")
    assert {row["value"] for row in lossy.collect()} == {*range(10), *range(20, 30)}
    found = topic.load(spark, valueSchema="INT32", mode="PERMISSIVE").collect()
    assert {row["value"] for row in found} == {*range(30), None} - {17}
    (bad,) = (row for row in found if row["__corruptValue"] is not None)
    assert bytes(bad["__corruptValue"]) == b"no number"


def test_some_of_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(tmp_path, [b'{"a":1}', b'{"a":null}'])
    given = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    options = {"valueSchema": json.dumps(given), "schemaType": "JSON"}
    found = topic.load(spark, "value struct<a: int>, __entryId bigint", **options)
    assert [row.asDict(recursive=True) for row in found.collect()] == [
        {"value": {"a": 1}, "__entryId": 0},
        {"value": {"a": None}, "__entryId": 0},
    ]


def test_a_wrong_schema_fails_at_load(spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(tmp_path, [b""])
    with pytest.raises(Exception, match="neither a schema"):
        topic.load(spark, valueSchema="no/such/file.avsc")
