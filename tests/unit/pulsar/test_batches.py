"""The chain of messages of a batch."""

from __future__ import annotations

from itertools import accumulate

import pytest

from sparkcache_pulsar.batches import message_starts
from sparkcache_pulsar.protobuf import SLACK_BYTES
from sparkcache_pulsar.testing import bytes_field, varint_field

SLACK = b"\xff" * SLACK_BYTES
SIZES = (0, 1, 127, 128, 300, 16_383, 16_384, 3_000_000)


def message(metadata: bytes, value: bytes) -> bytes:
    return len(metadata).to_bytes(4, "big") + metadata + value


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(b"", id="the size first"),
        pytest.param(bytes_field(2, b"key"), id="a key before it"),
        pytest.param(bytes_field(1, b"p") * 9 + bytes_field(2, b"k"), id="properties"),
        pytest.param(bytes_field(1, b"p" * 300), id="a long property"),
        pytest.param(bytes_field(2, b"k" * 20_000), id="a very long key"),
        pytest.param(varint_field(8, 3), id="fields in another order"),
        pytest.param(varint_field(5, 2**60), id="a long number before it"),
    ],
)
@pytest.mark.parametrize("more", [b"", varint_field(8, 2**64 - 1)])
def test_any_size_and_what_comes_before_it(metadata: bytes, more: bytes) -> None:
    messages = [
        message(metadata + varint_field(3, size) + more, b"x" * size) for size in SIZES
    ]
    starts = list(accumulate(map(len, messages), initial=0))
    assert message_starts(b"".join(messages) + SLACK, 8) == starts[:-1]


ONE = message(varint_field(3, 5), b"value")


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(ONE[:-1], id="a value that is cut off"),
        pytest.param(ONE + ONE[:5], id="metadata that is cut off"),
        pytest.param(ONE + b"\0", id="a byte too much"),
        pytest.param(b"\xff\xff\xff\xff\x18\x01x", id="metadata of 4 GiB"),
        pytest.param(message(varint_field(8, 1), b""), id="no size"),
        pytest.param(message(b"\x1d\0\0\0\0", b""), id="a fixed32"),
        pytest.param(message(varint_field(3, -1), b""), id="a negative size"),
        pytest.param(message(b"\x0a\x7f\x18\x01", b"x"), id="a key beyond the end"),
        pytest.param(message(b"\x18" + b"\xff" * 5000, b""), id="a number without end"),
        pytest.param(message(b"\x12" + b"\xff" * 5000, b""), id="a length without end"),
    ],
)
def test_a_chain_that_does_not_end_where_the_batch_does(payload: bytes) -> None:
    assert message_starts(payload + SLACK, 1000) is None


def test_no_messages() -> None:
    assert message_starts(SLACK, 0) == []


def test_the_last_message_may_be_shorter_than_what_is_looked_at() -> None:
    assert message_starts(message(varint_field(3, 0), b"") + bytes(16), 1) == [0]


@pytest.mark.parametrize(("limit", "starts"), [(2, None), (3, [0, 11, 22])])
def test_no_more_messages_are_looked_for_than_there_may_be(
    limit: int, starts: list[int] | None
) -> None:
    assert message_starts(ONE * 3 + SLACK, limit) == starts
