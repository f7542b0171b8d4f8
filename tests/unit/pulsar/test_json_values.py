"""JSON as producers write it, described in Avro's notation."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import time
from typing import Any

import hypothesis.strategies as st
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings

from sparkcache_pulsar.schemas.decoded import Decoded
from sparkcache_pulsar.schemas.decoders import decoder
from sparkcache_pulsar.schemas.spec import JSON, Spec
from tests.effort import tries

from .kinds import EPOCH, Kind, records
from .topics import read_values

ENCODER = msgspec.json.Encoder(decimal_format="number")


def decode(schema: Any, *payloads: bytes | None) -> Decoded:
    found = decoder(Spec(JSON, json.dumps(schema))).decode(
        pa.array(payloads, pa.binary())
    )
    found.array.validate(full=True)
    return found


def record(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": of} for name, of in types.items()]
    return {"type": "record", "name": "R", "fields": fields}


@settings(max_examples=tries(75))
@given(records, st.data())
def test_what_is_written_is_read(kind: Kind, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | kind.values, min_size=1, max_size=6))
    payloads = [value and ENCODER.encode(value[1]) for value in values]
    options = {"valueSchema": json.dumps(kind.schema), "schemaType": "JSON"}
    rows = read_values(payloads, options)
    assert rows == [value and value[2] for value in values]


def test_fields_may_be_missing_or_unknown_or_null() -> None:
    schema = record(a="int", b={"type": "array", "items": "string"}, **{"class": "int"})
    found = decode(
        schema, b'{"x":[{"a":"?"}],"class":3}', b"{}", b'{"a":null,"b":["x",null]}'
    )
    assert not found.faults
    assert found.array.to_pylist() == [
        {"a": None, "b": None, "class": 3},
        {"a": None, "b": None, "class": None},
        {"a": None, "b": ["x", None], "class": None},
    ]


def test_the_last_of_two_fields_with_one_name_counts() -> None:
    assert decode(record(a="int"), b'{"a":1,"a":2}').array.to_pylist() == [{"a": 2}]


def test_doubles_that_are_no_numbers() -> None:
    doubles = record(a="double", b={"type": "array", "items": ["null", "float"]})
    found = decode(doubles, b'{"a":"NaN","b":["-Infinity",null,1]}', b'{"a":2,"b":[]}')
    assert not found.faults
    first, second = found.array.to_pylist()
    assert math.isnan(first["a"])
    assert first["b"] == [-math.inf, None, 1]
    assert second == {"a": 2, "b": []}


def test_a_date_is_a_number_of_days() -> None:
    found = decode(record(a={"type": "int", "logicalType": "date"}), b'{"a":1}')
    assert found.array.to_pylist() == [{"a": EPOCH.date() + dt.timedelta(1)}]


def test_a_decimal_may_have_fewer_digits_than_its_type() -> None:
    cents = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    found = decode(record(a=cents), b'{"a":1}', b'{"a":1.50}', b'{"a":"2.5"}')
    assert [row["a"] for row in found.array.to_pylist()] == [
        decimal.Decimal(text) for text in ("1", "1.5", "2.5")
    ]


CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
EVERYTHING = record(
    i="int",
    n="long",
    s="string",
    d=CENTS,
    e={"type": "enum", "name": "E", "symbols": ["L"]},
    b="bytes",
    a={"type": "array", "items": "int"},
    m={"type": "map", "values": "double"},
    t={"type": "long", "logicalType": "timestamp-millis"},
)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"i":1', id="cut off"),
        pytest.param(b'{"i":1}{}', id="more than one"),
        pytest.param(b"3", id="no object"),
        pytest.param(b"\x02\x04", id="no JSON"),
        pytest.param(b'{"i":2147483648}', id="an int of 32 bits"),
        pytest.param(b'{"n":9223372036854775808}', id="a long of 64 bits"),
        pytest.param(b'{"n":' + b"9" * 1_000_000 + b"}", id="a million digits"),
        pytest.param(b'{"i":1.5}', id="an int with a fraction"),
        pytest.param(b'{"i":"1"}', id="an int in quotes"),
        pytest.param(b'{"s":"\xff"}', id="no UTF-8"),
        pytest.param(b'{"s":"\\ud800"}', id="half a surrogate"),
        pytest.param(b'{"s":1}', id="a string that is a number"),
        pytest.param(b'{"d":1e400000000}', id="a decimal of 400 million digits"),
        pytest.param(b'{"d":1e-400000000}', id="a tiny decimal"),
        pytest.param(b'{"d":"NaN"}', id="a decimal that is no number"),
        pytest.param(b'{"d":1.555}', id="a decimal with more digits"),
        pytest.param(b'{"d":1000}', id="a decimal that is larger"),
        pytest.param(b'{"e":"R"}', id="an unknown symbol"),
        pytest.param(b'{"e":0}', id="a symbol by number"),
        pytest.param(b'{"b":"?"}', id="no base64"),
        pytest.param(b'{"a":{}}', id="an array that is an object"),
        pytest.param(b'{"m":{"x":"y"}}', id="a double that is text"),
        pytest.param(b'{"m":{"x":1e999}}', id="a double that is too large"),
        pytest.param(b'{"t":9223372036854775807}', id="a far time"),
        pytest.param(b'{"?":' + b"[" * 1_000_000, id="a million brackets"),
        pytest.param(b'{"a":' * 100_000, id="a hundred thousand objects"),
    ],
)
def test_invalid_values_are_reported(payload: bytes) -> None:
    begun = time.monotonic()
    found = decode(EVERYTHING, b'{"i":7}', payload, b'{"i":8}')
    assert time.monotonic() - begun < 1
    assert found.faults.keys() == {1}
    assert found.faults[1]
    assert [row and row["i"] for row in found.array.to_pylist()] == [7, None, 8]


@settings(max_examples=tries(50))
@given(st.binary(max_size=30))
def test_arbitrary_bytes_do_no_harm(payload: bytes) -> None:
    found = decode(EVERYTHING, payload)
    assert found.array[0].is_valid == (not found.faults)
