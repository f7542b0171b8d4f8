"""The reader of one protobuf message, against the columnar one and a writer."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from sparkcache_pulsar.protobuf import SLACK_BYTES, Kind, parse
from sparkcache_pulsar.testing import bytes_field, varint, varint_field
from sparkcache_pulsar.wire import fields, place, signed

NUMBER, RANGE = 3, 1000
_FIXED = {4: varint(7 << 3 | 5) + b"1234", 8: varint(7 << 3 | 1) + b"12345678"}

values = st.one_of(
    st.tuples(st.just(NUMBER), st.integers(0, 2**64 - 1) | st.integers(0, 300)),
    st.tuples(st.just(RANGE), st.binary(max_size=300)),
    st.tuples(st.just(7), st.sampled_from([None])),
)


def encode(number: int, value: int | bytes | None) -> bytes:
    if value is None:
        return _FIXED[8]
    if isinstance(value, int):
        return varint_field(number, value)
    return bytes_field(number, value)


def read(data: bytes, begin: int, end: int) -> list[tuple[int, int | bytes | None]]:
    return [
        (number, data[slice(*value)] if isinstance(value, tuple) else value)
        for number, value in fields(data, begin, end)
    ]


@given(st.lists(values))
def test_what_was_written_is_read(
    written: list[tuple[int, int | bytes | None]],
) -> None:
    message = b"".join(encode(number, value) for number, value in written)
    assert read(b"\xff" + message + b"\xff", 1, 1 + len(message)) == written


def read_numbers(message: bytes) -> list[int]:
    found = fields(message, 0, len(message))
    return [signed(value) for number, value in found if number == NUMBER]


@given(st.binary(max_size=20))
def test_what_the_other_reader_refuses_is_refused(message: bytes) -> None:
    table = parse(
        np.frombuffer(message + bytes(SLACK_BYTES), np.uint8),
        np.array([0]),
        np.array([len(message)]),
        {NUMBER: Kind.NUMBER},
    )
    if table.bad[0]:
        with pytest.raises(ValueError):
            read_numbers(message)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\x18", id="no value"),
        pytest.param(b"\x18\x80", id="a number that does not end"),
        pytest.param(b"\x0a\x05abcd", id="too few bytes"),
        pytest.param(b"\x09\x00", id="too few bytes of a fixed length"),
        pytest.param(b"\x00\x00", id="field 0"),
        pytest.param(b"\x0b", id="a group"),
        pytest.param(b"\x18" + b"\x80" * 10 + b"\x01", id="more than 64 bits"),
    ],
)
def test_what_is_malformed(message: bytes) -> None:
    with pytest.raises(ValueError):
        list(fields(message, 0, len(message)))


def test_values_are_of_the_kind_that_is_wanted() -> None:
    assert signed(2**64 - 1) == -1
    assert place((3, 4)) == (3, 4)
    for value in (None, (1, 2)):
        with pytest.raises(ValueError, match="not a number"):
            signed(value)
    with pytest.raises(ValueError, match="not bytes"):
        place(7)
