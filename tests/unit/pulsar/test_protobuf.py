"""The columnar protobuf reader, against one that reads message by message."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from sparkcache_pulsar import protobuf
from sparkcache_pulsar.protobuf import Kind, Table, parse, read_varints
from sparkcache_pulsar.testing import bytes_field, varint, varint_field

NUMBER, RANGE, NUMBERS, RANGES = 1, 2, 15, 16
FIELDS = {
    NUMBER: Kind.NUMBER,
    RANGE: Kind.RANGE,
    NUMBERS: Kind.NUMBERS,
    RANGES: Kind.RANGES,
}


def parse_all(messages: list[bytes]) -> tuple[Table, bytes]:
    """Parse messages that lie between other bytes."""
    data, starts, ends = b"\xff" * 3, [], []
    for message in messages:
        starts.append(len(data))
        data += message
        ends.append(len(data))
        data += b"\xff" * 2
    padded = data + b"\xff" * protobuf.SLACK_BYTES
    buffer = np.frombuffer(padded, np.uint8)
    table = parse(buffer, np.array(starts, int), np.array(ends, int), FIELDS)
    return table, padded


def as_lists(table: Table, data: bytes, lanes: int) -> list[dict[int, Any]]:
    """Bring the columns into the form of a message."""
    found: list[dict[int, Any]] = [{} for _ in range(lanes)]
    for number, numbers in table.numbers.items():
        for lane in np.flatnonzero(numbers.present):
            found[lane][number] = int(numbers.value[lane])
    for number, ranges in table.ranges.items():
        for lane in np.flatnonzero(ranges.present):
            start, length = ranges.start[lane], ranges.length[lane]
            found[lane][number] = data[start : start + length]
    for number, repeated in table.repeated.items():
        assert (np.diff(repeated.lane) >= 0).all()
        for lane, start, length, value in zip(
            repeated.lane, repeated.start, repeated.length, repeated.number, strict=True
        ):
            is_range = FIELDS[number] is Kind.RANGES
            one = data[start : start + length] if is_range else int(value)
            found[lane].setdefault(number, []).append(one)
    return found


uint64s = st.integers(0, 2**64 - 1) | st.integers(0, 300)
fields = st.one_of(
    st.tuples(st.sampled_from([NUMBER, NUMBERS]), uint64s),
    st.tuples(st.sampled_from([RANGE, RANGES]), st.binary(max_size=200)),
    st.tuples(st.just(99), uint64s | st.binary(max_size=5)),
    st.tuples(st.just(1000), st.sampled_from(["fixed32", "fixed64"])),
)


def encode(message: list[tuple[int, Any]]) -> bytes:
    parts = []
    for number, value in message:
        match value:
            case int():
                parts.append(varint_field(number, value))
            case bytes():
                parts.append(bytes_field(number, value))
            case "fixed32":
                parts.append(varint(number << 3 | 5) + b"1234")
            case _:
                parts.append(varint(number << 3 | 1) + b"12345678")
    return b"".join(parts)


def last_or_all(message: list[tuple[int, Any]]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for number, value in message:
        if number in (NUMBER, RANGE):
            found[number] = value
        elif number in (NUMBERS, RANGES):
            found.setdefault(number, []).append(value)
    return found


@given(st.lists(st.lists(fields, max_size=6), max_size=6))
def test_any_messages(messages: list[list[tuple[int, Any]]]) -> None:
    table, data = parse_all([encode(message) for message in messages])
    assert not table.bad.any()
    assert as_lists(table, data, len(messages)) == [last_or_all(m) for m in messages]


@given(st.lists(uint64s, min_size=1))
def test_varints(values: list[int]) -> None:
    encoded = [varint(value) for value in values]
    at = np.cumsum([0, *map(len, encoded)])[:-1]
    buffer = np.frombuffer(b"".join(encoded) + bytes(protobuf.SLACK_BYTES), np.uint8)
    read, lengths = read_varints(buffer, at)
    assert read.tolist() == values
    assert lengths.tolist() == [len(one) for one in encoded]


GOOD = varint_field(NUMBER, 5) + bytes_field(RANGE, b"abc")


@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param(b"\x08", id="a number that is not there"),
        pytest.param(b"\x08\x80", id="a number that goes on"),
        pytest.param(b"\x08" + b"\xff" * 11, id="a number of eleven bytes"),
        pytest.param(b"\x08" + b"\xff" * 9 + b"\x02", id="a number beyond 64 bits"),
        pytest.param(b"\x12\x04abc", id="a range beyond the end"),
        pytest.param(b"\x12" + varint(2**63), id="a range of 2**63 bytes"),
        pytest.param(b"\x12" + varint(2**64 - 1), id="a range of -1 bytes"),
        pytest.param(b"\x80", id="a tag that goes on"),
        pytest.param(b"\x00\x00", id="field 0"),
        pytest.param(b"\x0a\x01a", id="bytes for a number"),
        pytest.param(b"\x10\x01", id="a number for bytes"),
        pytest.param(b"\x7a\x01\x01", id="packed numbers"),
        pytest.param(b"\x5b", id="a group"),
        pytest.param(b"\x5f", id="an invalid wire type"),
        pytest.param(b"\x59\x00\x00", id="a fixed64 beyond the end"),
    ],
)
def test_a_malformed_message_is_bad_and_its_neighbours_are_not(
    malformed: bytes,
) -> None:
    table, data = parse_all([GOOD, malformed, GOOD, GOOD + malformed])
    assert table.bad.tolist() == [False, True, False, True]
    found = as_lists(table, data, 4)
    assert found[0] == found[2] == {NUMBER: 5, RANGE: b"abc"}


def test_a_message_of_very_many_fields_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "MAX_FIELDS", 50)
    field = varint_field(NUMBER, 1)
    table, _ = parse_all([GOOD, field * 51, field * 50])
    assert table.bad.tolist() == [False, True, False]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_arbitrary_bytes_stay_within_their_lanes(messages: list[bytes]) -> None:
    table, data = parse_all(messages)
    found = as_lists(table, data, len(messages))
    for message, values in zip(messages, found, strict=True):
        ranges = [values.get(RANGE, b""), *values.get(RANGES, [])]
        assert all(one in message for one in ranges)


def test_no_messages() -> None:
    table, data = parse_all([])
    assert as_lists(table, data, 0) == []


def test_unknown_fields_take_a_step_for_all_lanes_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One for each number would be as many steps as lanes, each looking at all."""
    monkeypatch.setattr(protobuf, "MAX_WORK", 10 << 16)
    lanes = [
        (varint_field if number % 2 else fixed)(100 + number, 7)
        + varint_field(NUMBER, number)
        for number in range(1000)
    ]
    table, _ = parse_all(lanes)
    assert not table.bad.any()
    assert table.numbers[NUMBER].value.tolist() == list(range(1000))


def fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + value.to_bytes(8, "little")


def test_what_takes_too_many_steps_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "MAX_WORK", 10 << 16)
    fields = [varint_field(NUMBER, 1), varint_field(NUMBERS, 1)]
    table, _ = parse_all([fields[0], b"".join(fields * 9), bytes_field(RANGES, b"")])
    assert table.bad.tolist() == [False, True, True]
