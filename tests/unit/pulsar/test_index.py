"""Index objects: what they say, and that nothing inconsistent passes."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache.errors import SourceError
from sparkcache.model import UNKNOWN_END, Extent
from sparkcache_pulsar.index import parse_index
from sparkcache_pulsar.testing import index_object, ledger_metadata

from .topics import TOPIC

METADATA = ledger_metadata(TOPIC, [b"x" * 100] * 10)
BLOCKS = [(0, 0), (4, 1000), (8, 2000)]
GOOD = index_object(2500, BLOCKS, METADATA)


def test_golden_vector() -> None:
    """Written by hand after the format's description: one entry of 58 bytes."""
    data = bytes.fromhex(
        "de47de470000003e0000000000000100000000000000008000000001"
        "0000000a08011001183a200028030000000000000000000000010000000000000000"
    )
    index = parse_index("u", data)
    assert index.managed_ledger is None
    assert index.data_bytes == 256
    assert index.extents == (Extent(0, 0, 0, 256),)


def test_blocks_reach_to_the_next_one() -> None:
    index = parse_index("u", GOOD)
    assert index.managed_ledger == "shop/eu/persistent/orders"
    assert index.extents == (
        Extent(0, 3, 0, 1000),
        Extent(4, 7, 1000, 1000),
        Extent(8, 9, 2000, 500),
    )


def test_the_older_name_of_the_topic_is_understood() -> None:
    metadata = ledger_metadata(TOPIC, [b""] * 10, "psr/managed-ledger")
    index = parse_index("u", index_object(2500, BLOCKS, metadata))
    assert index.managed_ledger == "shop/eu/persistent/orders"


def changed(at: int, format_: str, value: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into(format_, data, at, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "expected an index of 32 bytes or more", id="empty"),
        pytest.param(GOOD[:31], "found 31 bytes", id="shorter than its head"),
        pytest.param(
            changed(0, ">I", 0x3D1FB0BC), "expected magic 0xde47de47", id="magic"
        ),
        pytest.param(changed(16, ">q", 64), "block headers of 128 bytes", id="header"),
        pytest.param(changed(24, ">i", 4), "found 4 blocks", id="too many blocks"),
        pytest.param(changed(24, ">i", 0), "found 0 blocks", id="no blocks"),
        pytest.param(changed(24, ">i", -1), "found -1 blocks", id="negative blocks"),
        pytest.param(GOOD[:-1], "found 3 blocks", id="truncated"),
        pytest.param(GOOD + b"x", "found 3 blocks", id="longer"),
        pytest.param(changed(32, ">I", 0), "ledger metadata", id="metadata"),
        pytest.param(
            index_object(2500, BLOCKS, b""), "last entry id", id="no metadata"
        ),
    ],
)
def test_what_is_inconsistent(data: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        parse_index("u", data)


@pytest.mark.parametrize(
    ("data", "message", "good", "last"),
    [
        pytest.param(
            index_object(2500, [(1, 0)], METADATA),
            "a first block with",
            0,
            9,
            id="entry 0",
        ),
        pytest.param(
            index_object(2500, [(0, 1)], METADATA),
            "a first block with",
            0,
            9,
            id="byte 0",
        ),
        pytest.param(
            index_object(2500, [(0, 0), (8, 1000), (4, 2000)], METADATA),
            "entries 8 to 3 in bytes",
            1,
            9,
            id="first ids descend",
        ),
        pytest.param(
            index_object(2500, [(0, 0), (4, 2000), (8, 1000)], METADATA),
            "in bytes 2000 to 999",
            1,
            9,
            id="offsets descend",
        ),
        pytest.param(
            index_object(2000, BLOCKS, METADATA),
            "in bytes 2000 to 1999",
            2,
            9,
            id="short data",
        ),
        pytest.param(
            index_object(2500, BLOCKS, ledger_metadata(TOPIC, [b""] * 8)),
            "entries 8 to 7",
            2,
            UNKNOWN_END,
            id="last entry before the last block",
        ),
        pytest.param(
            index_object(2500, BLOCKS, ledger_metadata(TOPIC, [b""] * 99)),
            "room for their entries",
            2,
            98,
            id="more entries than fit",
        ),
    ],
)
def test_blocks_before_an_inconsistent_one_are_good(
    data: bytes, message: str, good: int, last: int
) -> None:
    index = parse_index("u", data)
    assert len(index.extents) == good
    assert index.last == last
    assert message in str(index.fault)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_changed_byte_is_an_error_or_a_consistent_index(at: int, flip: int) -> None:
    data = bytearray(GOOD)
    data[at] ^= flip
    try:
        index = parse_index("u", bytes(data))
    except SourceError:
        return
    end = next_entry = 0
    for extent in index.extents:
        assert (extent.first, extent.offset) == (next_entry, end)
        assert extent.first <= extent.last
        next_entry, end = extent.last + 1, extent.offset + extent.size_bytes
    if index.fault is None:
        assert (next_entry, end) == (index.last + 1, index.data_bytes)
    else:
        assert next_entry <= index.last
