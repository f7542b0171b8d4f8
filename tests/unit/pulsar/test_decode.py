"""What becomes of entries: one rule each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkcache.testing import decoded_runs, read_topic
from sparkcache_pulsar.testing import Codec, Message, bytes_field, varint_field

from .decoding import CONNECTOR, batch, odd, read, rows, single
from .spark_schema import as_arrow
from .topics import TOPIC, TXN_COMMIT, at_ms, expected_rows, store


def test_columns_are_what_spark_takes() -> None:
    """Spark compares schemas by type, order and nullability."""
    types = {
        "__topic": StringType(),
        "__partition": IntegerType(),
        "__ledgerId": LongType(),
        "__entryId": LongType(),
        "__batchIndex": IntegerType(),
        "__messageId": BinaryType(),
        "__publishTime": TimestampType(),
        "__eventTime": TimestampType(),
        "__brokerPublishTime": TimestampType(),
        "__index": LongType(),
        "__key": BinaryType(),
        "__orderingKey": BinaryType(),
        "__sequenceId": LongType(),
        "__producerName": StringType(),
        "__properties": MapType(StringType(), StringType()),
        "__schemaVersion": BinaryType(),
        "__txn": StringType(),
        "__replicatedFrom": StringType(),
        "__deliverAt": TimestampType(),
        "value": BinaryType(),
    }
    struct = StructType([StructField(*column) for column in types.items()])
    spark_schema = as_arrow(struct)
    assert CONNECTOR.schema("").equals(spark_schema)
    ((_, decoded),) = decoded_runs(CONNECTOR, store([single(Message(b"x"))]), TOPIC)
    assert decoded.batches[0].schema.equals(spark_schema)
    ledger_column, entry_column = CONNECTOR.entry_columns()
    assert types[ledger_column] == types[entry_column] == LongType()
    assert types[CONNECTOR.time_column()] == TimestampType()


def test_golden_vector() -> None:
    """An entry written by hand after the protocol's description."""
    entry = bytes.fromhex(
        "0e020000000908fbd095ffbc3110290e01fe2064d00000001c0a03702d30"
        "10071880d095ffbc3122060a016b12017632046b65793168656c6c6f"
    )
    (row,), losses = read(entry)
    assert not losses
    assert row["__brokerPublishTime"] == at_ms(1_700_000_000_123)
    assert row["__publishTime"] == at_ms(1_700_000_000_000)
    assert row["__index"] == 41
    assert row["__producerName"] == "p-0"
    assert row["__sequenceId"] == 7
    assert row["__properties"] == {"k": "v"}
    assert row["__key"] == b"key1"
    assert row["value"] == b"hello"


@pytest.mark.parametrize("codec", Codec)
def test_codecs(codec: Codec) -> None:
    one, other = Message(b"hello " * 50), Message(b"")
    rows(
        batch(one, other, one, codec=codec),
        single(one, codec=codec),
        single(other, codec=codec),
        batch(codec=codec),
        batch(other, codec=Codec.NONE),
    )


def test_a_batch_of_one_is_a_batch() -> None:
    (row,) = rows(batch(Message(b"x")))
    assert row["__batchIndex"] == 0


def test_a_message_that_is_not_in_a_batch_has_no_batch_index() -> None:
    (row,) = rows(single(Message(b"x")))
    assert row["__batchIndex"] is None


def test_a_tombstone_is_null_and_an_empty_value_is_not() -> None:
    values = [row["value"] for row in rows(
        batch(Message(None), Message(b"")), single(Message(None)), single(Message(b""))
    )]  # fmt: skip
    assert values == [None, b"", None, b""]


def test_keys() -> None:
    keys = [
        Message(key="text"),
        Message(key=b"\xff\x00bytes"),
        Message(key=""),
        Message(key=b""),
        Message(),
        Message(key="", null_key=True),
    ]
    found = rows(batch(*keys), *map(single, keys))
    assert [row["__key"] for row in found] == 2 * [
        b"text", b"\xff\x00bytes", b"", b"", None, None
    ]  # fmt: skip


def test_the_key_of_a_batch_belongs_to_no_message() -> None:
    """Producers copy the first message's key there, for brokers to route by."""
    found = rows(batch(Message(key="a", ordering_key=b"o"), Message()))
    assert [row["__key"] for row in found] == [b"a", None]
    assert [row["__orderingKey"] for row in found] == [b"o", None]


def test_the_entry_has_what_a_message_leaves_out() -> None:
    entry = batch(
        Message(event_time_ms=5, sequence_id=9),
        Message(),
        sequence_id=3,
        extra_metadata=varint_field(12, 77),
    )
    found, _ = read(entry)
    assert [row["__sequenceId"] for row in found] == [9, 3]
    assert [row["__eventTime"] for row in found] == [at_ms(5), at_ms(77)]


def test_an_event_time_of_0_is_none() -> None:
    found = rows(single(Message(event_time_ms=0)), batch(Message(event_time_ms=0)))
    assert [row["__eventTime"] for row in found] == [None, None]


@pytest.mark.parametrize("millis", [2**63 - 1, 2**63, 1_700_000_000_000_000_000])
def test_a_time_that_does_not_fit_is_null(millis: int) -> None:
    found, losses = read(single(Message(b"x", event_time_ms=millis)))
    assert not losses
    assert found[0]["__eventTime"] is None


def test_the_index_of_an_entry_is_that_of_its_last_message() -> None:
    one = Message(b"x")
    found = rows(
        batch(one, one, one, broker=(1, 12)), single(one, broker=(2, 13)), single(one)
    )
    assert [row["__index"] for row in found] == [10, 11, 12, 13, None]


def test_negative_numbers() -> None:
    found = rows(
        single(Message(sequence_id=-1), txn=(-1, -(2**63))),
        single(Message(), txn=(-1, -(2**63)), marker=TXN_COMMIT),
    )
    assert found[0]["__sequenceId"] == -1
    assert found[0]["__txn"] == "(-1,-9223372036854775808)"


def test_the_last_of_properties_with_the_same_key_counts() -> None:
    message = Message(properties=(("a", "1"), ("b", "2"), ("a", "3")))
    other = Message(properties=(("a", "4"),))
    found = rows(batch(message, Message(), other), single(message))
    assert [row["__properties"] for row in found] == [
        {"a": "3", "b": "2"}, {}, {"a": "4"}, {"a": "3", "b": "2"}
    ]  # fmt: skip


def test_an_empty_schema_version_is_none() -> None:
    found = rows(
        single(Message(b"x"), schema_version=b""),
        single(Message(b"x"), schema_version=b"\0\1"),
    )
    assert [row["__schemaVersion"] for row in found] == [None, b"\0\1"]


def test_text_that_is_not_utf_8_is_repaired() -> None:
    pair = bytes_field(1, b"k\xff") + bytes_field(2, b"v")
    found, losses = read(
        odd(b"x", bytes_field(4, pair)),
        single(Message(b"y"), extra_metadata=bytes_field(1, b"caf\xe9")),
    )
    assert not losses
    assert found[0]["__properties"] == {"k\ufffd": "v"}
    assert found[1]["__producerName"] == "caf\ufffd"


def test_messages_that_compaction_has_emptied() -> None:
    gone = Message(compacted_out=True)
    found = rows(batch(gone, Message(b"b"), gone, Message(b"d")))
    assert [row["__batchIndex"] for row in found] == [1, 3]


@pytest.mark.parametrize(
    ("indexes", "size", "found"),
    [
        pytest.param([1, 3], 4, [1, 3], id="only those are there"),
        pytest.param([0], 2, [0, 1], id="all are there"),
        pytest.param([0, 1], 2, [0, 1], id="all are listed"),
        pytest.param([0, 1, 2, 3], 4, None, id="more than are there"),
        pytest.param([1, 4], 4, None, id="an index beyond the batch"),
        pytest.param([1, 1], 4, None, id="an index that comes twice"),
        pytest.param([0, 2**31], 2**32, None, id="an index that is no int32"),
        pytest.param([0, -1], 4, None, id="a negative index"),
        pytest.param([0, 1, 2], 4, None, id="another number of messages"),
    ],
)
def test_a_compacted_batch_lists_what_it_still_has(
    indexes: list[int], size: int, found: list[int] | None
) -> None:
    extra = varint_field(11, size) + b"".join(varint_field(31, i) for i in indexes)
    entry = batch(Message(b"a"), Message(b"b"), extra_metadata=extra)
    read_rows, losses = read(entry, batch(Message(b"c")))
    batch_indexes = [r["__batchIndex"] for r in read_rows if r["__entryId"] == 0]
    assert batch_indexes == (found or [])
    assert bool(losses) == (found is None)
    assert read_rows[-1]["value"] == b"c"


def test_a_list_of_compacted_messages_means_nothing_outside_a_batch() -> None:
    found, losses = read(
        odd(b"x", varint_field(31, 5)), batch(Message(b"y")), odd(b"z", b"")
    )
    assert not losses
    assert [row["__batchIndex"] for row in found] == [None, 0, None]


def test_markers_are_no_messages() -> None:
    one = single(Message(b"x"))
    assert len(rows(one, replace(one, marker=21), one, replace(one, marker=0))) == 2


def test_messages_in_transactions_say_so() -> None:
    found = rows(
        single(Message(b"x"), txn=(3, 4)),
        batch(Message(b"y")),
        single(Message(), txn=(3, 4), marker=TXN_COMMIT),
    )
    assert [row["__txn"] for row in found] == ["(3,4)", None]


def test_messages_from_other_clusters_and_for_later_say_so() -> None:
    rows(
        single(Message(b"x"), replicated_from="east", deliver_at_ms=1_700_000_900_000),
        batch(Message(b"y"), replicated_from="west"),
    )


def test_entries_may_do_without_a_checksum() -> None:
    rows(
        single(Message(b"x"), checksum=False),
        batch(Message(b"x"), checksum=False, broker=(1, 2)),
    )


@pytest.mark.parametrize(
    ("topic", "partition"),
    [("persistent://t/n/x-partition-3", 3), ("persistent://t/n/x", None)],
)
def test_partition(topic: str, partition: int | None) -> None:
    entries = [single(Message(b"x")), batch(Message(b"y"))]
    found, _ = read_topic(CONNECTOR, store(entries, topic=topic), topic)
    assert found == expected_rows(entries, topic=topic)
    assert [row["__partition"] for row in found] == [partition] * 2
