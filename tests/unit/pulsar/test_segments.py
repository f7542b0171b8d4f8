"""Indexes of the streaming format: what they say, and what is no such index."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache.errors import SourceError
from sparkcache.model import Extent
from sparkcache_pulsar.segments import Piece, parse_segment

from .streaming import ledger_info, segment_index

INFO_5, INFO_6 = ledger_info(5, 10), ledger_info(6, 8)
GOOD = segment_index(3000, [(6, INFO_6, [(0, 2000)]), (5, INFO_5, [(4, 0), (7, 900)])])
AT_6 = 24
AT_5 = AT_6 + 16 + len(INFO_6) + 20


def test_blocks_reach_to_the_next_one_of_any_ledger() -> None:
    segment = parse_segment("u", GOOD)
    assert segment.data_bytes == 3000
    assert segment.pieces == (
        Piece(5, (Extent(4, 6, 0, 900), Extent(7, 9, 900, 1100)), ends_here=True),
        Piece(6, (Extent(0, 7, 2000, 1000),), ends_here=False),
    )


def test_the_index_says_where_an_open_ledger_ends() -> None:
    info = ledger_info(6, 8, closed=False)
    (piece,) = parse_segment("u", segment_index(1000, [(6, info, [(3, 0)])])).pieces
    assert piece == Piece(6, (Extent(3, 7, 0, 1000),), ends_here=True)


def test_no_more_entries_are_expected_than_fit() -> None:
    """The last ledger may have any number of them in later segments."""
    info = ledger_info(6, 1 << 62)
    (piece,) = parse_segment("u", segment_index(152, [(6, info, [(0, 0)])])).pieces
    assert piece == Piece(6, (Extent(0, 1, 0, 152),), ends_here=False)


def changed(at: int, format_: str, value: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into(format_, data, at, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "offset", "message"),
    [
        pytest.param(b"", 0, "an index of 24 bytes or more, found 0", id="empty"),
        pytest.param(GOOD[:23], 0, "found 23 bytes", id="shorter than its head"),
        pytest.param(GOOD[:24], 24, "one ledger or more", id="no ledger"),
        pytest.param(
            changed(0, ">I", 0xDE47DE47), 0, "magic 0x3d1fb0bc", id="classic magic"
        ),
        pytest.param(changed(16, ">q", 64), 16, "headers of 128", id="header length"),
        pytest.param(changed(AT_6, ">q", -6), AT_6, "ledger -6", id="negative ledger"),
        pytest.param(changed(AT_5, ">q", 6), AT_5, "ledger 6", id="the same again"),
        pytest.param(changed(AT_6 + 8, ">i", 0), AT_6, "0 blocks", id="no blocks"),
        pytest.param(changed(AT_6 + 8, ">i", -1), AT_6, "-1 blocks", id="negative"),
        pytest.param(
            changed(AT_6 + 8, ">i", 2**31 - 1), AT_6, "2147483647 blocks", id="too many"
        ),
        pytest.param(changed(AT_6 + 12, ">i", -1), AT_6, "-1 bytes of info", id="info"),
        pytest.param(
            changed(AT_6 + 12, ">i", 2**31 - 1), AT_6, "bytes remain", id="long info"
        ),
        pytest.param(
            changed(AT_6 + 16, ">I", 0xFFFFFFFF), AT_6 + 16, "ledger info", id="no info"
        ),
        pytest.param(GOOD[:-1], AT_5, "bytes remain", id="cut in a block"),
        pytest.param(GOOD[: AT_5 + 5], AT_5, "0 bytes remain", id="cut in a ledger"),
        pytest.param(GOOD + b"x", len(GOOD), "0 bytes remain", id="longer"),
        pytest.param(changed(8, ">q", 2000), 24, "ascending", id="no room at the end"),
        pytest.param(changed(8, ">q", -1), 24, "ascending", id="negative length"),
        pytest.param(
            segment_index(3000, [(5, INFO_5, [(0, 10)])]),
            24,
            "at byte 0",
            id="offset",
        ),
        pytest.param(
            segment_index(3000, [(5, INFO_5, [(4, 0), (2, 900)])]),
            24,
            "ascending",
            id="entries descend",
        ),
        pytest.param(
            segment_index(3000, [(5, INFO_5, [(4, 0)]), (6, INFO_6, [(0, 0)])]),
            24,
            "ascending",
            id="two blocks in one place",
        ),
        pytest.param(
            segment_index(3000, [(5, INFO_5, [(-1, 0)])]), 24, "ascending", id="first"
        ),
        pytest.param(
            segment_index(3000, [(5, INFO_5, [(10, 0)])]),
            24,
            "ascending",
            id="after the end",
        ),
        pytest.param(
            segment_index(400, [(5, INFO_5, [(0, 0)]), (6, INFO_6, [(0, 200)])]),
            24,
            "room for their entries, found entries 0 to 9 of ledger 5",
            id="more entries than fit",
        ),
    ],
)
def test_what_is_inconsistent(data: bytes, offset: int, message: str) -> None:
    with pytest.raises(SourceError, match=message) as error:
        parse_segment("u", data)
    assert (error.value.uri, error.value.offset) == ("u", offset)


@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8))
def test_any_damage_is_an_error_or_a_consistent_index(at: int, new: bytes) -> None:
    data = GOOD[:at] + new + GOOD[at + len(new) :]
    try:
        segment = parse_segment("u", data)
    except SourceError:
        return
    extents = [extent for piece in segment.pieces for extent in piece.extents]
    assert sum(extent.size_bytes for extent in extents) == segment.data_bytes
    for extent in extents:
        assert 0 <= extent.first <= extent.last
        assert 128 + 12 * (extent.last - extent.first + 1) <= extent.size_bytes
