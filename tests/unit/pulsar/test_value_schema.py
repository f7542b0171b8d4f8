"""How a schema is given, what it identifies, and what becomes of what differs."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.errors import ConfigError
from sparkcache.testing import decoded_runs, discover, read_topic
from sparkcache_pulsar import PulsarConnector, values
from sparkcache_pulsar.decoding import Decoding
from sparkcache_pulsar.schemas.spec import MAX_TEXT_BYTES, ValueDecoding
from sparkcache_pulsar.testing import Codec, Entry, Message

from .golden import PULSAR_4_0
from .spark_schema import as_spark_has_it
from .topics import TOPIC, Row, read_values, store

if TYPE_CHECKING:
    from pathlib import Path

CONNECTOR = PulsarConnector()
DEFINITION = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "int"]}],
}
INFO = {"name": "o", "schema": DEFINITION, "type": "JSON", "properties": {"a": "b"}}
TEXT = json.dumps(DEFINITION)


def decoding(**options: str) -> str:
    return CONNECTOR.decoding(options)


def parsed(text: str) -> ValueDecoding:
    found = Decoding.parse(text).values
    assert found is not None
    return found


def pair(encoding: str, key: Any = "STRING", value: Any = "INT32") -> dict[str, str]:
    def info(type_: Any) -> dict[str, Any]:
        return {"name": "", "schema": "", "type": type_, "properties": {}}

    return {
        "valueSchema": json.dumps(
            {
                "name": "KeyValue",
                "type": "KEY_VALUE",
                "schema": {"key": info(key), "value": info(value)},
                "properties": {"kv.encoding.type": encoding},
            }
        )
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "order schema.avsc"
    path.write_text("\n" + json.dumps(INFO, indent=2))
    return path


def test_without_a_schema_values_are_bytes() -> None:
    assert decoding() == ""
    assert decoding(failOnDataLoss="false") == ""
    assert read_values([b"\xff", None], {}) == [b"\xff", None]


def test_the_ways_in_which_a_schema_is_given(path: Path) -> None:
    ways = [
        {"valueSchema": TEXT, "schemaType": "json"},
        {"valueSchema": json.dumps(INFO)},
        {"valueSchema": json.dumps(INFO), "schemaType": "JSON"},
        {"valueSchema": json.dumps({**INFO, "schema": TEXT})},
        {"valueSchema": json.dumps({"version": 3, "schemaInfo": INFO})},
        {"valueSchema": json.dumps({"version": 3, "type": "JSON", "data": TEXT})},
        {"valueSchema": str(path)},
        {"valueSchema": path.as_uri()},
        {"valueSchema": f"  {json.dumps(INFO, indent=4)}\n", "mode": "failfast"},
    ]
    found = {CONNECTOR.decoding(way) for way in ways}
    assert len(found) == 1
    assert parsed(found.pop()).spec.type == "JSON"


def test_avro_is_what_avros_notation_means() -> None:
    pytest.importorskip("fastavro")
    assert parsed(decoding(valueSchema=TEXT)).spec.type == "AVRO"
    as_text = json.dumps({"type": "AVRO", "schema": DEFINITION, "properties": {}})
    assert decoding(valueSchema=TEXT) == decoding(valueSchema=as_text)


def test_what_changes_rows_changes_runs() -> None:
    """Runs of two ways to decode must not be taken for one another's."""
    other = json.dumps(INFO).replace("int", "long")
    found = [
        decoding(),
        decoding(valueSchema=json.dumps(INFO)),
        decoding(valueSchema=json.dumps(INFO), mode="PERMISSIVE"),
        decoding(valueSchema=other),
        decoding(valueSchema="INT32"),
        decoding(valueSchema="STRING"),
    ]
    assert len(set(found)) == len(found)
    for text in found:
        snapshot = discover(CONNECTOR, store(ENTRIES), TOPIC, {})
        assert snapshot.ledgers[0].ledger.decoding == ""
        if text:
            assert str(Decoding.parse(text)) == text
    options = {"valueSchema": "INT32"}
    snapshot = discover(CONNECTOR, store(ENTRIES), TOPIC, options)
    assert snapshot.ledgers[0].ledger.decoding == CONNECTOR.decoding(options)


def test_a_file_is_read_when_it_is_named(path: Path) -> None:
    before = decoding(valueSchema=str(path))
    path.unlink()
    assert CONNECTOR.schema(before).field("value").type.num_fields == 2
    with pytest.raises(ConfigError, match="No such file"):
        decoding(valueSchema=str(path))


def test_long_schemas_travel_compressed() -> None:
    fields = [{"name": f"field_{n}", "type": ["null", "long"]} for n in range(2_000)]
    schema = {"type": "record", "name": "R", "fields": fields}
    text = decoding(valueSchema=json.dumps(schema), schemaType="JSON")
    assert len(text) < 20_000
    assert CONNECTOR.schema(text).field("value").type.num_fields == 2_000


def test_a_schema_can_be_too_long() -> None:
    symbols = [f"{n * 2654435761 % 2**32:x}" for n in range(60_000)]
    schema = {"type": "enum", "name": "E", "symbols": symbols}
    with pytest.raises(ConfigError, match=f"at most {MAX_TEXT_BYTES}"):
        decoding(valueSchema=json.dumps(schema), schemaType="JSON")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"mode": "PERMISSIVE"}, "needs the option valueSchema", id="mode"),
        pytest.param({"schemaType": "AVRO"}, "needs the option valueSchema", id="type"),
        pytest.param(
            {"valueSchema": "INT32", "mode": "DROPMALFORMED"},
            "must be FAILFAST or PERMISSIVE",
            id="unknown mode",
        ),
        pytest.param(
            {"valueSchema": TEXT, "schemaType": "THRIFT"}, "must be one of", id="kind"
        ),
        pytest.param(
            {"valueSchema": TEXT, "schemaType": "PROTOBUF"}, "protoc", id="PROTOBUF"
        ),
        pytest.param(
            {"valueSchema": json.dumps({"type": "PROTOBUF", "schema": "{}"})},
            "protoc",
            id="PROTOBUF in the schema",
        ),
        pytest.param(
            {"valueSchema": json.dumps(INFO), "schemaType": "AVRO"},
            "the schema itself is of type JSON",
            id="two types",
        ),
        pytest.param({"valueSchema": "{"}, "not JSON", id="no JSON"),
        pytest.param({"valueSchema": "[" * 100_000}, "not JSON", id="many brackets"),
        pytest.param(
            {"valueSchema": json.dumps({**INFO, "schema": "{"})}, "not JSON", id="in it"
        ),
        pytest.param(
            {"valueSchema": "no/such.avsc"}, "neither a schema", id="no such file"
        ),
        pytest.param({"valueSchema": "/"}, "must be a file", id="a directory"),
        pytest.param({"valueSchema": "/dev/zero"}, "must be a file", id="a device"),
        pytest.param({"valueSchema": "INT33"}, "one of BOOLEAN, BYTES", id="INT33"),
        pytest.param({"valueSchema": "AUTO_CONSUME"}, "cannot be decoded", id="AUTO"),
        pytest.param({"valueSchema": "KEY_VALUE"}, "key and value", id="KEY_VALUE"),
        pytest.param({"valueSchema": "JSON"}, "valueSchema", id="JSON alone"),
        pytest.param(
            {"valueSchema": "STRING", "messageName": "A"},
            "messageName='A': the schema is of type STRING",
            id="message",
        ),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CONNECTOR.decoding(options)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparkcache\[avro\]'"):
        decoding(valueSchema=TEXT)
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparkcache\[protobuf\]'"):
        decoding(valueSchema="CgA=")


ENTRIES = [
    Entry((Message(b"\0\0\0\1"), Message(None), Message(b"\0\0\0\2"))),
    Entry((Message(b"\0\0\0\3"), Message(b"?", key="k"), Message(b"\0\0\0\4"))),
    Entry((Message(b"\0\0\0\5"),), batched=False),
]


def read(**options: str) -> tuple[list[Row], list[Any]]:
    return read_topic(CONNECTOR, store(ENTRIES), TOPIC, options)


def test_failfast_gives_up_the_entry_and_says_where() -> None:
    rows, (loss,) = read(valueSchema="INT32")
    assert [row["value"] for row in rows] == [1, None, 2, 5]
    assert "__corruptValue" not in rows[0]
    assert (loss.ledger, loss.first, loss.last) == (7, 1, 1)
    assert "entries 7:1-1 lost" in str(loss)
    assert "expected INT32 of 4 bytes, found 1 bytes" in str(loss)


def test_permissive_keeps_the_bytes() -> None:
    rows, losses = read(valueSchema="INT32", mode="PERMISSIVE")
    assert not losses
    assert [(row["value"], row["__corruptValue"]) for row in rows] == [
        (1, None), (None, None), (2, None), (3, None), (None, b"?"), (4, None),
        (5, None),
    ]  # fmt: skip
    assert rows[4]["__key"] == b"k"


def test_an_entry_of_which_nothing_is_left_makes_no_batch() -> None:
    options = {"valueSchema": "INT32"}
    bad = [Entry((Message(b"?"),)), Entry((Message(b"?"),))]
    ((_, decoded),) = decoded_runs(CONNECTOR, store(bad), TOPIC, options)
    assert decoded.batches == []
    assert [(loss.first, loss.last) for loss in decoded.losses] == [(0, 1)]


@pytest.mark.parametrize("schema", ["INT32", TEXT, pair("INLINE")["valueSchema"]])
def test_an_entry_without_messages_makes_no_batch(schema: str) -> None:
    options = {"valueSchema": schema, "schemaType": "JSON" if schema == TEXT else ""}
    empty = [Entry((), codec=Codec.LZ4), Entry((Message(compacted_out=True),))]
    assert read_topic(CONNECTOR, store(empty), TOPIC, options) == ([], [])


@pytest.mark.parametrize("at_once_bytes", [1, 10, 1 << 20])
def test_large_entries_are_decoded_by_and_by(
    monkeypatch: pytest.MonkeyPatch, at_once_bytes: int
) -> None:
    monkeypatch.setattr(values, "AT_ONCE_BYTES", at_once_bytes)
    payloads = [None if n % 7 == 3 else struct.pack(">i", n) for n in range(100)]
    payloads[50] = b"?"
    messages = tuple(Message(one, key=str(n)) for n, one in enumerate(payloads))
    expected = [None if n % 7 == 3 or n == 50 else n for n in range(100)]
    options = {"valueSchema": "INT32", "mode": "PERMISSIVE"}
    rows, _ = read_topic(CONNECTOR, store([Entry(messages)]), TOPIC, options)
    assert [row["value"] for row in rows] == expected
    assert [n for n, row in enumerate(rows) if row["__corruptValue"]] == [50]
    options = pair("SEPARATED") | {"mode": "PERMISSIVE"}
    rows, _ = read_topic(CONNECTOR, store([Entry(messages)]), TOPIC, options)
    assert [row["value"] and row["value"]["key"] for row in rows] == [
        None if n == 50 else str(n) for n in range(100)
    ]


def test_batches_are_cut_as_before() -> None:
    messages = (Message(b"\0\0\0\1"),) * 1000
    storage, options = (
        store([Entry(messages, codec=Codec.LZ4)]),
        {"valueSchema": "INT32"},
    )
    for batch_bytes in (1_000, 1 << 20):
        ((_, decoded),) = decoded_runs(
            CONNECTOR, storage, TOPIC, options, batch_bytes=batch_bytes
        )
        assert sum(map(len, decoded.batches)) == 1000


def inline(key: bytes | None, value: bytes | None) -> bytes:
    parts = [
        struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
        for part in (key, value)
    ]
    return b"".join(parts)


def test_inline_pairs() -> None:
    payloads = [
        inline(b"a", b"\0\0\0\7"), inline(None, None), None, inline(b"", None)
    ]  # fmt: skip
    assert read_values(payloads, pair("INLINE")) == [
        {"key": "a", "value": 7},
        {"key": None, "value": None},
        None,
        {"key": "", "value": None},
    ]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(inline(b"a", b"\0\0\0\7")[:-1], id="cut off"),
        pytest.param(inline(b"a", b"\0\0\0\7") + b"?", id="a byte left over"),
        pytest.param(inline(b"a", b"\0"), id="no INT32"),
        pytest.param(inline(b"\xff", b"\0\0\0\7"), id="no STRING"),
        pytest.param(b"\x7f\xff\xff\xff" + b"a" * 9, id="a key of 2**31 - 1 bytes"),
        pytest.param(b"\xff\xff\xff\xfe" + b"a" * 9, id="a key of -2 bytes"),
    ],
)
def test_invalid_pairs_are_reported(payload: bytes) -> None:
    options = pair("INLINE") | {"mode": "PERMISSIVE"}
    entries = [Entry((Message(payload), Message(inline(b"a", b"\0\0\0\7"))))]
    (bad, good), losses = read_topic(CONNECTOR, store(entries), TOPIC, options)
    assert not losses
    assert (bad["value"], bad["__corruptValue"]) == (None, payload)
    assert (good["value"], good["__corruptValue"]) == ({"key": "a", "value": 7}, None)


def test_separated_pairs() -> None:
    """A tombstone has a key, too."""
    messages = (
        Message(b"\0\0\0\7", key="a"),
        Message(None, key=b"b"),
        Message(b"\0\0\0\x08"),
        Message(b"\0\0\0\x09", key=b"\xff"),
        Message(None, key=b"\xff"),
    )
    entries = [Entry(messages)]
    options = pair("SEPARATED") | {"mode": "PERMISSIVE"}
    rows, _ = read_topic(CONNECTOR, store(entries), TOPIC, options)
    assert [(row["value"], row["__corruptValue"]) for row in rows] == [
        ({"key": "a", "value": 7}, None),
        ({"key": "b", "value": None}, None),
        ({"key": None, "value": 8}, None),
        (None, b"\0\0\0\x09"),
        (None, b""),
    ]
    rows, (loss,) = read_topic(
        CONNECTOR, store([*entries, replace(entries[0], messages=messages[:1])]),
        TOPIC, pair("SEPARATED"),
    )  # fmt: skip
    assert [row["__entryId"] for row in rows] == [1]
    assert "expected a KEY_VALUE pair, found key: not a STRING" in str(loss)


def test_the_other_ways_in_which_pairs_are_given() -> None:
    """The REST interface has definitions, whose types are in the properties."""
    properties = {
        "key.schema.type": "STRING",
        "value.schema.type": "JSON",
        "kv.encoding.type": "SEPARATED",
    }
    data = json.dumps({"key": "", "value": DEFINITION})
    rest = {"type": "KEY_VALUE", "data": data, "properties": properties}
    printed = json.loads(pair("SEPARATED", value="JSON")["valueSchema"])
    printed["schema"]["value"]["schema"] = DEFINITION
    assert decoding(valueSchema=json.dumps(rest)) == decoding(
        valueSchema=json.dumps(printed)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(pair("ELSEWHERE"), "kv.encoding.type is 'ELSEWHERE'", id="how"),
        pytest.param(pair("INLINE", key="KEY_VALUE"), "key and value", id="in another"),
        pytest.param(pair("INLINE", key="PROTOBUF"), "cannot be decoded", id="kind"),
    ],
)
def test_pairs_that_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CONNECTOR.decoding(options)


def test_columns_of_pairs_are_what_spark_takes() -> None:
    schema = CONNECTOR.schema(CONNECTOR.decoding(pair("INLINE")))
    assert as_spark_has_it(schema).equals(schema)


def golden(name: str, options: dict[str, str]) -> list[Any]:
    """Read what Pulsar's own client wrote with a schema."""
    expected = PULSAR_4_0.messages(name)
    topic = expected[0]["topic"]
    rows, losses = read_topic(CONNECTOR, PULSAR_4_0.storage, topic, options)
    assert not losses
    assert len(rows) == len(expected)
    return [row["value"] for row in rows]


def test_pulsars_own_strings() -> None:
    found = golden("schema-string", {"valueSchema": "STRING"})
    assert found == ["with a schema version", "", None]


def test_pulsars_own_json() -> None:
    """Of two versions of the schema; the later one reads both."""
    fields = [
        {"name": "name", "type": ["null", "string"]},
        {"name": "number", "type": "int"},
    ]
    schema = {"type": "record", "name": "Second", "fields": fields}
    options = {"valueSchema": json.dumps(schema), "schemaType": "JSON"}
    assert golden("schema-json", options) == [
        {"name": "first", "number": None},
        {"name": "second", "number": 2},
    ]


@pytest.mark.parametrize("name", ["schema-pair-single", "schema-pair-batched"])
def test_pulsars_own_pairs(name: str) -> None:
    found = golden(name, pair("SEPARATED", value="STRING"))
    assert found[:3] == [
        {"key": "key", "value": "value"},
        {"key": None, "value": "key is null"},
        {"key": "value is null", "value": None},
    ]
