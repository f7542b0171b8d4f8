"""What becomes of entries: one rule each."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
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

from sparkcache.connector import DecodedRun, RawRun
from sparkcache.model import Ledger, Loss, ObjectId, Run
from sparkcache.testing import decoded_runs, read_topic
from sparkcache_pulsar import PulsarConnector, codecs
from sparkcache_pulsar.testing import (
    Codec,
    Entry,
    Message,
    bytes_field,
    varint_field,
)

from .topics import TOPIC, TXN_COMMIT, Row, at_ms, expected_rows, store

CONNECTOR = PulsarConnector()


def read(*entries: Entry | bytes) -> tuple[list[Row], list[Loss]]:
    return read_topic(CONNECTOR, store(entries), TOPIC)


def rows(*entries: Entry) -> list[Row]:
    """Read entries of which none may be lost, and compare with what was written."""
    found, losses = read(*entries)
    assert not losses
    assert found == expected_rows(entries)
    return found


def single(message: Message, **changes: object) -> Entry:
    return replace(Entry((message,), batched=False), **changes)


def batch(*messages: Message, **changes: object) -> Entry:
    return replace(Entry(messages), **changes)


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
    spark_schema = to_arrow_schema(struct, timezone="UTC")
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


def test_in_a_batch_the_key_of_the_entry_is_nobodys() -> None:
    """Producers copy the first message's key there, for brokers to route by."""
    found = rows(batch(Message(key="a", ordering_key=b"o"), Message()))
    assert [row["__key"] for row in found] == [b"a", None]
    assert [row["__orderingKey"] for row in found] == [b"o", None]


def test_what_a_message_does_not_say_its_entry_does() -> None:
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


def test_of_properties_with_the_same_key_the_last_one_counts() -> None:
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


def test_such_a_list_means_nothing_for_a_message_that_is_in_no_batch() -> None:
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


def odd(value: bytes, extra_metadata: bytes) -> bytes:
    """An entry whose checksum is right and whose metadata says too much."""
    return single(Message(value), extra_metadata=extra_metadata).encode()


GOOD = single(Message(b"good"))
UUID = bytes_field(26, b"u")
PLAIN = single(Message(b"x"), checksum=False).encode()
SOUND = b"\0\0\0\x0a" + bytes_field(1, b"p") + b"\x10\x00\x18\x80\x80\x01"


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        pytest.param(
            GOOD.encode()[:-1] + b"?", "bytes of crc32c 0x", id="payload changed"
        ),
        pytest.param(b"", "message metadata, found the end", id="an entry of 0 bytes"),
        pytest.param(b"x", "message metadata, found the end", id="an entry of 1 byte"),
        pytest.param(b"\x0e\x01", "found the end", id="a magic number alone"),
        pytest.param(
            b"\x0e\x02\x00\x00\x00\x63abc",
            "broker metadata",
            id="short broker metadata",
        ),
        pytest.param(
            b"\x0e\x02\x00\x00\x00\x01\x08" + PLAIN,
            "broker metadata",
            id="bad broker metadata",
        ),
        pytest.param(
            b"\xff\xff\xff\xff" + PLAIN,
            "found the end of the entry",
            id="size of metadata",
        ),
        pytest.param(b"\0\0\0\x01\xff", "bytes that do not parse", id="bad metadata"),
        pytest.param(
            b"\0\0\0\x02\x10\x00", "bytes that do not parse", id="no producer name"
        ),
        pytest.param(
            odd(b"x", varint_field(8, 7)),
            "a codec of 0 to 4, found 7",
            id="unknown codec",
        ),
        pytest.param(
            odd(b"x", varint_field(8, 1)),
            "bytes of LZ4 that become 1",
            id="not compressed at all",
        ),
        pytest.param(
            single(
                Message(b"xyz"), codec=Codec.ZSTD, extra_metadata=varint_field(9, 2)
            ).encode(),
            "bytes of ZSTD that become 2",
            id="uncompressed size",
        ),
        pytest.param(
            single(
                Message(b"x"),
                codec=Codec.ZLIB,
                extra_metadata=varint_field(9, codecs.MAX_PAYLOAD_BYTES + 1),
            ).encode(),
            "a payload of up to 134217728 bytes",
            id="decompression bomb",
        ),
        pytest.param(
            batch(Message(b"x"), extra_metadata=varint_field(11, 2)).encode(),
            "a batch of 2 messages",
            id="more messages announced",
        ),
        pytest.param(
            batch(Message(b"x"), extra_metadata=varint_field(11, 0)).encode(),
            "a batch of 0 messages",
            id="less messages announced",
        ),
        pytest.param(
            batch(Message(b"x"), extra_metadata=varint_field(11, -1)).encode(),
            "a batch of -1 messages",
            id="negative number of messages",
        ),
        pytest.param(
            odd(b"", varint_field(11, 5)), "a batch of 5 messages", id="empty batch"
        ),
        pytest.param(
            odd(b"", varint_field(11, 2**31)),
            "a batch of 2147483648 messages",
            id="a batch of very many messages",
        ),
        pytest.param(
            batch(*[Message()] * 3000, producer_name="p" * 50_000).encode(),
            "bytes of rows, found 50000 bytes for each of 3000 messages",
            id="a name that would be much more than all stored bytes",
        ),
        pytest.param(
            odd(b"no batch", varint_field(11, 1)),
            "a chain of lengths that differs",
            id="no batch",
        ),
        pytest.param(
            odd(b"\0\0\0\x01\x18", varint_field(11, 1)),
            "metadata of each message",
            id="a message's metadata without a size",
        ),
        pytest.param(
            odd(b"\0\0\0\x04\x18\x00\x20\x80", varint_field(11, 1)),
            "metadata of each message",
            id="a message's bad metadata",
        ),
        pytest.param(
            odd(b"\0\0\0\x04\x18\x00\x18\x01", varint_field(11, 1)),
            "metadata of each message",
            id="a message of two sizes",
        ),
        pytest.param(
            odd(b"x", bytes_field(4, b"\x0a\x01k")),
            "properties, each with key and value",
            id="a property without a value",
        ),
        pytest.param(
            odd(b"x", bytes_field(4, b"\xff")),
            "properties, each with key and value",
            id="a bad property",
        ),
        pytest.param(
            single(Message(b"x", key="?"), extra_metadata=varint_field(17, 1)).encode(),
            "a key in base64",
            id="a key that is not base64",
        ),
        pytest.param(
            odd(b"x", bytes_field(13, b"")),
            "encryption_keys, each with key and value",
            id="encrypted for nobody",
        ),
        pytest.param(
            odd(b"x", varint_field(27, 2) + varint_field(29, 0)),
            "a chunk of a message",
            id="a chunk without the message's id",
        ),
        pytest.param(
            odd(b"x", b"".join((UUID, varint_field(27, 2), varint_field(29, 2)))),
            "chunk 2 of 2",
            id="a chunk behind the last one",
        ),
        pytest.param(
            odd(b"x", b"".join((UUID, varint_field(27, 2), varint_field(28, 2**31)))),
            "of 2147483648 bytes",
            id="a chunk of too large a message",
        ),
    ],
)
def test_what_cannot_be_delivered_is_a_loss(lost: bytes, message: str) -> None:
    two, one = batch(Message(b"a"), Message(b"b")), batch(Message(b"c"))
    found, losses = read(GOOD, two, lost, one, GOOD)
    assert [row["__entryId"] for row in found] == [0, 1, 1, 3, 4]
    assert [row["value"] for row in found] == [b"good", b"a", b"b", b"c", b"good"]
    (loss,) = losses
    assert (loss.ledger, loss.first, loss.last) == (7, 2, 2)
    assert message in str(loss)
    before = sum(12 + len(entry.encode()) for entry in (GOOD, two))
    assert loss.offset == 128 + before


def test_a_chunk_count_of_1_is_a_whole_message() -> None:
    found, losses = read(odd(b"x", varint_field(27, 1)))
    assert not losses
    assert len(found) == 1


def test_neighbours_that_are_lost_for_one_reason_are_one_loss() -> None:
    encrypted = odd(b"x", bytes_field(13, b""))
    _, losses = read(GOOD, encrypted, encrypted, encrypted, GOOD, encrypted, b"")
    assert [(loss.first, loss.last) for loss in losses] == [(1, 3), (5, 5), (6, 6)]


def decode(data: bytes, run: Run, losses: tuple[Loss, ...] = ()) -> DecodedRun:
    ledger = Ledger("pulsar", f"b#{TOPIC}", 7, ObjectId("u", 10_000, "1"))
    return CONNECTOR.decode(ledger, RawRun(run, 1000, data, losses), 1 << 20)


def test_losses_of_the_raw_run_are_passed_on() -> None:
    loss = Loss("u", 1, 7, 0, 4, "a", "b")
    assert decode(b"", Run(0, 4), (loss,)) == DecodedRun([], (loss,))


def test_frames_that_are_not_there_are_lost() -> None:
    """A raw run may come from anywhere; nobody must rely on who cut it."""
    decoded = decode(b"", Run(3, 4))
    assert [(loss.first, loss.last) for loss in decoded.losses] == [(3, 4)]
    assert "expected entry 3, found the end of the data" in str(decoded.losses[0])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_have_about_the_size_that_is_asked_for(codec: Codec) -> None:
    entries = [batch(*[Message(b"x" * 100)] * 10, codec=codec)] * 100
    for batch_bytes in (2_000, 10_000, 1 << 30):
        ((_, decoded),) = decoded_runs(
            CONNECTOR, store(entries), TOPIC, run_bytes=1 << 30, batch_bytes=batch_bytes
        )
        sizes = [one.column("value").nbytes for one in decoded.batches]
        assert sum(map(len, decoded.batches)) == 1000
        assert max(sizes) <= batch_bytes * 1.1
        assert len(sizes) <= 2 * 110_000 // batch_bytes + 1


def test_an_entry_that_is_larger_than_a_batch_is_cut() -> None:
    entries = [batch(*[Message(b"x" * 100)] * 100)]
    ((_, decoded),) = decoded_runs(CONNECTOR, store(entries), TOPIC, batch_bytes=2_000)
    assert [len(one) for one in decoded.batches] == [20] * 5
    assert pa.Table.from_batches(decoded.batches).num_rows == 100


def test_what_a_run_becomes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry may become much; all of them together would not fit."""
    monkeypatch.setattr(codecs, "MAX_RUN_BYTES", 1 << 20)
    monkeypatch.setattr(codecs, "MAX_RUN_RATIO", 1)
    monkeypatch.setattr("sparkcache_pulsar.decode._LEAST_GROUP_BYTES", 0)
    entries = [single(Message(bytes(300_000)), codec=Codec.ZSTD)] * 10
    found, losses = read(*entries)
    assert [row["__entryId"] for row in found] == [0, 1, 2, 3, 4, 5]  # by threes
    assert [(loss.first, loss.last) for loss in losses] == [(6, 9)]
    assert "expected a run that fits into memory" in str(losses[0])
