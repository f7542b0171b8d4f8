"""Protobuf messages, as protobuf's own runtime writes them."""

from __future__ import annotations

import datetime as dt
import json
import time
from base64 import b64encode
from functools import cache
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from sparkcache.errors import ConfigError
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.schemas.decoded import Decoded
from sparkcache_pulsar.schemas.decoders import decoder
from sparkcache_pulsar.schemas.protobuf_files import message_descriptor, protobuf_spec
from sparkcache_pulsar.testing import bytes_field, varint_field
from tests.effort import tries

from .kinds import EPOCH, texts
from .spark_schema import as_spark_has_it
from .topics import read_values

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("google.protobuf")
from google.protobuf import text_format, timestamp_pb2
from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message_factory import GetMessageClass

CONNECTOR = PulsarConnector()

# fmt: off
SCALARS = {
    "double": st.floats(allow_nan=False), "float": st.floats(width=32, allow_nan=False),
    "int64": st.integers(-(2**63), 2**63 - 1), "uint64": st.integers(0, 2**64 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1), "fixed64": st.integers(0, 2**64 - 1),
    "fixed32": st.integers(0, 2**32 - 1), "bool": st.booleans(), "string": texts,
    "bytes": st.binary(max_size=9), "uint32": st.integers(0, 2**32 - 1),
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
}
# fmt: on
MICROS = st.datetimes(dt.datetime(1, 1, 2)).map(lambda one: one.replace(tzinfo=dt.UTC))


def file(text: str, *, proto2: bool = False) -> FileDescriptorProto:
    parsed = text_format.Parse(text, FileDescriptorProto())
    if not proto2:
        parsed.syntax = "proto3"
    return parsed


def field(name: str, number: int, kind: str, *more: str) -> str:
    label = "LABEL_REPEATED" if "repeated" in more else "LABEL_OPTIONAL"
    rest = " ".join(one for one in more if one != "repeated")
    if kind.startswith("."):
        rest += f' type_name: "{kind}"'
        kind = "enum" if "Side" in kind else "message"
    return (
        f'field {{ name: "{name}" number: {number} label: {label} '
        f"type: TYPE_{kind.upper()} {rest} }}"
    )


def entry(name: str, key: str, value: str) -> str:
    parts = field("key", 1, key) + field("value", 2, value)
    return f'nested_type {{ name: "{name}" {parts} options {{ map_entry: true }} }}'


SIDE = (
    'enum_type { name: "Side" value { name: "L" number: 0 } '
    'value { name: "R" number: 5 } }'
)
WIDE = file(
    'name: "wide.proto" package: "t" dependency: "google/protobuf/timestamp.proto" '
    'message_type { name: "Inner" ' + field("x", 1, "int32") + " } "
    'message_type { name: "Empty" } '
    'message_type { name: "Wide" '
    + "".join(field(f"f_{kind}", n, kind) for n, kind in enumerate(SCALARS, 1))
    + "".join(
        field(f"r_{kind}", n, kind, "repeated") for n, kind in enumerate(SCALARS, 21)
    )
    + field("side", 41, ".t.Wide.Side")
    + field("sides", 42, ".t.Wide.Side", "repeated")
    + field("inner", 43, ".t.Inner")
    + field("inners", 44, ".t.Inner", "repeated")
    + field("at", 45, ".google.protobuf.Timestamp")
    + field("by_name", 46, ".t.Wide.ByNameEntry", "repeated")
    + field("by_number", 47, ".t.Wide.ByNumberEntry", "repeated")
    + field("maybe", 48, "int32", "proto3_optional: true", "oneof_index: 1")
    + field("one", 49, "string", "oneof_index: 0")
    + field("other", 50, ".t.Empty", "oneof_index: 0")
    + entry("ByNameEntry", "string", ".t.Inner")
    + entry("ByNumberEntry", "uint64", "double")
    + SIDE
    + ' oneof_decl { name: "choice" } oneof_decl { name: "_maybe" } }'
)
OLD = file(
    'name: "old.proto" message_type { name: "Old" field { name: "id" number: 1 '
    "label: LABEL_REQUIRED type: TYPE_INT32 } "
    + field("text", 2, "string")
    + field("size", 3, "int32", 'default_value: "7"')
    + field("side", 4, ".Old.Side")
    + field("inner", 5, ".Old")
    + SIDE
    + " }"
    + 'message_type { name: "Flat" field { name: "id" number: 1 '
    "label: LABEL_REQUIRED type: TYPE_INT32 } "
    + field("text", 2, "string")
    + field("size", 3, "int32", 'default_value: "7"')
    + field("side", 4, ".Old.Side")
    + " }",
    proto2=True,
)
TIMESTAMP = FileDescriptorProto()
timestamp_pb2.DESCRIPTOR.CopyToProto(TIMESTAMP)


def of_files(*files: FileDescriptorProto) -> bytes:
    return FileDescriptorSet(file=files).SerializeToString()


WIDE_SET = of_files(TIMESTAMP, WIDE)
OLD_SET = of_files(OLD)


@cache
def message_class(files: bytes, name: str) -> Any:
    return GetMessageClass(message_descriptor(protobuf_spec(files, name)))


def decode(files: bytes, name: str, *payloads: bytes | None) -> Decoded:
    found = decoder(protobuf_spec(files, name)).decode(pa.array(payloads, pa.binary()))
    found.array.validate(full=True)
    return found


wide_values = st.fixed_dictionaries(
    {
        **{f"f_{kind}": values for kind, values in SCALARS.items()},
        **{f"r_{k}": st.lists(values, max_size=3) for k, values in SCALARS.items()},
        "side": st.sampled_from("LR"),
        "sides": st.lists(st.sampled_from("LR"), max_size=3),
        "inner": st.none() | st.fixed_dictionaries({"x": SCALARS["int32"]}),
        "inners": st.lists(st.fixed_dictionaries({"x": SCALARS["int32"]}), max_size=3),
        "at": st.none() | MICROS,
        "by_name": st.dictionaries(
            texts, st.fixed_dictionaries({"x": SCALARS["int32"]}), max_size=3
        ),
        "by_number": st.dictionaries(
            SCALARS["uint64"], st.floats(allow_nan=False), max_size=3
        ),
        "maybe": st.none() | SCALARS["int32"],
        "one": st.none() | texts,
    }
)


def build(value: dict[str, Any]) -> bytes:
    message = message_class(WIDE_SET, "t.Wide")(
        **{name: one for name, one in value.items() if name not in {"by_name", "at"}}
    )
    for key, one in value["by_name"].items():
        message.by_name[key].x = one["x"]
    if value["at"] is not None:
        since = value["at"] - EPOCH
        message.at.seconds = since // dt.timedelta(seconds=1)
        message.at.nanos = since.microseconds * 1000 + 999
    encoded: bytes = message.SerializeToString()
    return encoded


@settings(max_examples=tries(33))
@given(st.lists(st.none() | wide_values, min_size=1, max_size=4))
def test_what_is_written_is_read(values: list[Any]) -> None:
    payloads = [value and build(value) for value in values]
    options = {
        "valueSchema": b64encode(WIDE_SET).decode(),
        "messageName": "t.Wide",
        "schemaType": "PROTOBUF_NATIVE",
    }
    assert read_values(payloads, options) == [
        value and {**value, "other": None} for value in values
    ]


def test_what_proto3_leaves_out() -> None:
    """Numbers are 0 then; what has presence is null."""
    (row,) = decode(WIDE_SET, "t.Wide", b"").array.to_pylist()
    assert row["f_int32"] == 0
    assert row["f_string"] == ""
    assert row["side"] == "L"
    assert row["sides"] == []
    absent = {name for name, value in row.items() if value is None}
    assert absent == {"inner", "at", "maybe", "one", "other"}


def test_a_message_without_fields_is_there_or_not() -> None:
    found = decode(WIDE_SET, "t.Wide", bytes_field(50, b""), bytes_field(49, b"x"))
    assert [row["other"] for row in found.array.to_pylist()] == [{}, None]


def test_what_proto2_leaves_out() -> None:
    """Null, unless there is a default."""
    found = decode(OLD_SET, "Flat", b"\x08\x01", b"\x08\x01\x18\x00")
    assert found.array.to_pylist() == [
        {"id": 1, "text": None, "size": 7, "side": None},
        {"id": 1, "text": None, "size": 0, "side": None},
    ]


def test_a_number_without_a_name_is_null() -> None:
    (row,) = decode(
        WIDE_SET, "t.Wide", varint_field(41, 9) + varint_field(42, 9)
    ).array.to_pylist()
    assert (row["side"], row["sides"]) == (None, [None])
    found = decode(OLD_SET, "Flat", b"\x08\x01\x20\x09")
    assert found.array[0].as_py()["side"] is None


def test_unknown_fields_are_passed_over() -> None:
    found = decode(OLD_SET, "Flat", b"\x08\x01" + bytes_field(99, b"?"))
    assert not found.faults


@pytest.mark.parametrize(
    ("files", "message", "payload"),
    [
        pytest.param(OLD_SET, "Flat", b"", id="without what is required"),
        pytest.param(OLD_SET, "Flat", b"\x08", id="cut off"),
        pytest.param(OLD_SET, "Flat", b"\x08\x01\x12\x01\xff", id="no UTF-8, proto2"),
        pytest.param(WIDE_SET, "t.Wide", bytes_field(9, b"\xff"), id="no UTF-8"),
        pytest.param(
            WIDE_SET, "t.Wide", b"\x4a\xff\xff\xff\xff\x07abc", id="2**31 - 1 bytes"
        ),
        pytest.param(
            WIDE_SET, "t.Wide", b"\x4a" + b"\xff" * 9 + b"\x01", id="-1 bytes"
        ),
        pytest.param(WIDE_SET, "t.Wide", b"\x5b" * 1_000_000, id="a million groups"),
        pytest.param(WIDE_SET, "t.Wide", b"\xff" * 20, id="no tag"),
        pytest.param(
            WIDE_SET,
            "t.Wide",
            bytes_field(45, varint_field(1, 2**62)),
            id="a far time",
        ),
    ],
)
def test_invalid_messages_are_reported(
    files: bytes, message: str, payload: bytes
) -> None:
    begun = time.monotonic()
    found = decode(files, message, None, payload)
    assert time.monotonic() - begun < 1
    assert found.faults.keys() == {1}
    assert found.faults[1]
    assert found.array.null_count == 2


@settings(max_examples=tries(50))
@given(st.binary(max_size=40))
def test_arbitrary_bytes_do_no_harm(payload: bytes) -> None:
    found = decode(WIDE_SET, "t.Wide", payload)
    assert found.array[0].is_valid == (not found.faults)


def test_columns_are_what_spark_takes() -> None:
    decoding = CONNECTOR.decoding(
        {"valueSchema": b64encode(WIDE_SET).decode(), "messageName": "t.Wide"}
    )
    schema = CONNECTOR.schema(decoding)
    assert as_spark_has_it(schema).equals(schema)


def test_the_ways_in_which_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "wide.desc"
    path.write_bytes(WIDE_SET)
    text = b64encode(WIDE_SET).decode()
    definition = {
        "fileDescriptorSet": text,
        "rootMessageTypeName": "t.Wide",
        "rootFileDescriptorName": "wide.proto",
    }
    info = {"type": "PROTOBUF_NATIVE", "schema": json.dumps(definition)}
    named = {"messageName": "t.Wide"}
    ways = [
        {"valueSchema": str(path), **named},
        {"valueSchema": path.as_uri(), "schemaType": "protobuf_native", **named},
        {"valueSchema": text, **named},
        {"valueSchema": json.dumps(definition)},
        {"valueSchema": json.dumps(info)},
        {"valueSchema": json.dumps({**info, "schema": definition})},
    ]
    assert len({CONNECTOR.decoding(way) for way in ways}) == 1


def test_only_what_a_message_needs_identifies_it() -> None:
    alone = protobuf_spec(of_files(OLD), "Flat")
    assert protobuf_spec(of_files(WIDE, OLD, TIMESTAMP), "Flat") == alone
    assert protobuf_spec(of_files(WIDE, TIMESTAMP), "t.Wide") == protobuf_spec(
        WIDE_SET, "t.Wide"
    )


def test_a_set_of_one_message_needs_no_name() -> None:
    one = file('name: "o" message_type { name: "O" ' + field("x", 1, "int32") + " }")
    assert protobuf_spec(of_files(one), "").message == "O"


@pytest.mark.parametrize(
    ("files", "message", "error"),
    [
        pytest.param(OLD_SET, "Old", "Old contains itself", id="recursion"),
        pytest.param(OLD_SET, "", "messageName is missing.*Flat, Old", id="which"),
        pytest.param(OLD_SET, "Flet", "no such message; it has Flat", id="unknown"),
        pytest.param(b"", "Flat", "it has none", id="empty set"),
        pytest.param(of_files(WIDE), "t.Wide", "--include_imports", id="imports"),
        pytest.param(b"\x0a\xff", "x", "not a FileDescriptorSet", id="no set"),
        pytest.param(
            of_files(file('name: "b" message_type { name: "B" '
                          + field("x", 1, ".Nowhere") + " }")),
            "B", "valueSchema", id="unknown type",
        ),
    ],
)  # fmt: skip
def test_schemas_without_columns_are_refused(
    files: bytes, message: str, error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        decoder(protobuf_spec(files, message))
