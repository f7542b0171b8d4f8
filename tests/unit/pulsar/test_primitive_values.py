"""Pulsar's primitive schemas, after the classes of its Java client."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.schemas.decoded import Decoded
from sparkcache_pulsar.schemas.primitives import TYPES, primitive
from tests.effort import tries

from .kinds import EPOCH
from .spark_schema import as_spark_has_it
from .topics import read_values

CONNECTOR = PulsarConnector()
DAY = dt.date(1970, 1, 1)


def at(**since_1970: float) -> dt.datetime:
    return EPOCH + dt.timedelta(**since_1970)


def decode(type_: str, *payloads: bytes | None) -> Decoded:
    found = primitive(type_).decode(pa.array(payloads, pa.binary()))
    found.array.validate(full=True)
    return found


@pytest.mark.parametrize(
    ("type_", "payload", "value"),
    [
        ("INT8", "ff", -1),
        ("INT16", "0102", 258),
        ("INT32", "80000000", -(2**31)),
        ("INT64", "0000000000000100", 256),
        ("FLOAT", "3fc00000", 1.5),
        ("DOUBLE", "3ff8000000000000", 1.5),
        ("BOOLEAN", "00", False),
        ("BOOLEAN", "01", True),
        ("BOOLEAN", "ff", True),
        ("STRING", "c3a9", "é"),
        ("STRING", "", ""),
        ("BYTES", "ff00", b"\xff\x00"),
        ("NONE", "", b""),
        ("DATE", "00000000000003e8", at(seconds=1)),
        ("TIMESTAMP", "ffffffffffffffff", at(milliseconds=-1)),
        ("TIME", "00000000000003e8", dt.timedelta(seconds=1)),
        ("TIME", "ffffffffffffffff", dt.timedelta(days=1, milliseconds=-1)),
        ("INSTANT", "00000000000000013b9ac9ff", at(seconds=1, microseconds=999999)),
        ("INSTANT", "ffffffffffffffff00000000", at(seconds=-1)),
        ("LOCAL_DATE", "0000000000000001", DAY + dt.timedelta(1)),
        ("LOCAL_DATE", "ffffffffffffffff", DAY - dt.timedelta(1)),
        ("LOCAL_TIME", "00000000000003e8", dt.timedelta(microseconds=1)),
        (
            "LOCAL_DATE_TIME",
            "000000000000000100000000000003e8",
            dt.datetime(1970, 1, 2, 0, 0, 0, 1),
        ),
    ],
)
def test_values(type_: str, payload: str, value: Any) -> None:
    payloads = [None, bytes.fromhex(payload), None]
    assert read_values(payloads, {"valueSchema": type_}) == [None, value, None]


WRONG = [
    *[(type_, b"") for type_ in sorted(TYPES - {"STRING", "BYTES", "NONE"})],
    *[(type_, b"\0" * 17) for type_ in sorted(TYPES - {"STRING", "BYTES", "NONE"})],
    ("STRING", b"\xff"),
    ("INSTANT", b"\0" * 8 + b"\x7f\0\0\0"),
    ("INSTANT", b"\x7f" + b"\0" * 11),
    ("TIMESTAMP", b"\x7f" + b"\xff" * 7),
    ("DATE", b"\x80" + b"\0" * 7),
    ("LOCAL_DATE", b"\0\0\0\1" + b"\0" * 4),
    ("LOCAL_TIME", b"\xff" * 8),
    ("LOCAL_TIME", struct.pack(">q", 86_400_000_000_000)),
    ("LOCAL_DATE_TIME", b"\0" * 8 + b"\xff" * 8),
    ("LOCAL_DATE_TIME", b"\x7f" + b"\0" * 15),
]


@pytest.mark.parametrize(("type_", "payload"), WRONG)
def test_invalid_values_are_reported(type_: str, payload: bytes) -> None:
    found = decode(type_, None, payload, None)
    assert found.faults.keys() == {1}
    assert found.array.null_count == 3


@pytest.mark.parametrize("type_", sorted(TYPES))
def test_columns_are_what_spark_takes(type_: str) -> None:
    schema = CONNECTOR.schema(CONNECTOR.decoding({"valueSchema": type_.lower()}))
    assert as_spark_has_it(schema).equals(schema)


@settings(max_examples=tries(50))
@given(
    st.sampled_from(
        [("INT8", "b"), ("INT16", "h"), ("INT32", "i"), ("INT64", "q"),
         ("FLOAT", "f"), ("DOUBLE", "d")]
    ),
    st.lists(st.none() | st.binary(max_size=9), max_size=6),
)  # fmt: skip
def test_numbers(type_: tuple[str, str], payloads: list[bytes | None]) -> None:
    name, code = type_
    found = decode(name, *payloads)
    size = struct.calcsize(code)
    for row, payload in enumerate(payloads):
        value = found.array[row].as_py()
        if payload is None or len(payload) != size:
            assert value is None
            assert (row in found.faults) == (payload is not None)
        else:
            (expected,) = struct.unpack(f">{code}", payload)
            assert value == expected or math.isnan(expected)


def test_a_schema_info_of_a_primitive() -> None:
    info = {"name": "x", "schema": "", "type": "INT32", "properties": {}}
    assert read_values([b"\0\0\0\x07"], {"valueSchema": json.dumps(info)}) == [7]
