"""SequenceFiles: headers, numbers and blocks, valid and invalid ones."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache.errors import SourceError
from sparkcache_pulsar.hadoop_codecs import CodecError
from sparkcache_pulsar.sequencefile import (
    BYTES,
    DataInput,
    Layout,
    block_values,
    read_block,
    read_header,
    read_vint,
)

from .mapfiles import COMPRESS, SYNC, Format, vint

CODEC = "org.apache.hadoop.io.compress.DefaultCodec"


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("00", 0),
        ("7f", 127),
        ("90", -112),
        ("8f80", 128),
        ("8e0100", 256),
        ("8710", -17),
        ("88ffffffffffffffff", 2**64 - 1),
        ("80ffffffffffffffff", -(2**64)),
    ],
)
def test_numbers(encoded: str, value: int) -> None:
    data = bytes.fromhex(encoded)
    assert read_vint(data, 0) == (value, len(data))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=9))
def test_numbers_come_back(value: int, rest: bytes) -> None:
    data = vint(value) + rest
    assert read_vint(data, 0) == (value, len(data) - len(rest))


@pytest.mark.parametrize(
    ("format_", "layout"),
    [
        (Format("records"), Layout("records", "", SYNC)),
        (Format("record"), Layout("record", CODEC, SYNC)),
        (Format("block"), Layout("block", CODEC, SYNC)),
    ],
)
def test_headers(format_: Format, layout: Layout) -> None:
    data = format_.header()
    source = DataInput("u", data + b"rest")
    assert read_header(source, BYTES) == layout
    assert source.remaining == len(b"rest")


HEADER = Format("block").header()


def replaced(old: bytes, new: bytes) -> bytes:
    assert old in HEADER
    return HEADER.replace(old, new, 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "a header of up to 0 bytes", id="empty"),
        pytest.param(replaced(b"SEQ", b"SEX"), "a SequenceFile", id="magic"),
        pytest.param(replaced(b"SEQ\6", b"SEQ\4"), "a SequenceFile", id="version"),
        pytest.param(replaced(b"LongW", b"IntgW"), "keys of .*LongWritable", id="keys"),
        pytest.param(replaced(b"Bytes", b"Texts"), "values of .*Bytes", id="values"),
        pytest.param(replaced(b"Default", b"Unknown"), "a known codec", id="codec"),
        pytest.param(replaced(b"\1\1", b"\0\1"), "uncompressed records", id="flags"),
        pytest.param(HEADER[:60], "the class of values of up to", id="cut in a name"),
        pytest.param(
            HEADER[:-1], "a sync marker of up to 15 bytes", id="cut at the end"
        ),
        pytest.param(
            replaced(b"\0\0\0\1\3who", b"\x7f\xff\xff\xff\3who"),
            "up to 4096 pairs of metadata",
            id="much metadata",
        ),
        pytest.param(b"SEQ\6\x87\x10", "found -17", id="a negative length"),
        pytest.param(
            b"SEQ\6\x88" + b"\xff" * 8, "18446744073709551615", id="a great length"
        ),
    ],
)
def test_invalid_headers(data: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message) as error:
        read_header(DataInput("u", data), BYTES)
    assert error.value.uri == "u"


LAYOUT = Layout("block", CODEC, SYNC)
RECORDS = [(key, b"value" * key) for key in range(3, 8)]
BLOCK = Format("block").block(RECORDS)


def values(data: bytes) -> list[tuple[int, bytes]]:
    block = read_block(DataInput("u", data), LAYOUT)
    found = map(bytes, block_values(block, LAYOUT))
    return list(zip(block.keys.tolist(), found, strict=True))


def made_of(*parts: bytes, count: int = 2) -> bytes:
    packed = [COMPRESS["Default"](part) for part in parts]
    return b"".join(
        [b"\xff" * 4, SYNC, vint(count), *(vint(len(p)) + p for p in packed)]
    )


KEY_SIZES, KEYS = b"\10\10", struct.pack(">qq", 1, 2)


def test_blocks() -> None:
    assert values(BLOCK) == RECORDS
    assert values(made_of(KEY_SIZES, KEYS, b"\1\2", b"abc")) == [(1, b"a"), (2, b"bc")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"\0" + BLOCK[1:], "a sync marker", id="escape"),
        pytest.param(BLOCK[:19] + b"\0" + BLOCK[20:], "a sync marker", id="marker"),
        pytest.param(made_of(count=0), "records, found 0", id="no records"),
        pytest.param(made_of(count=-5), "records, found -5", id="negative"),
        pytest.param(made_of(count=2**31), "found 2147483648", id="too many"),
        pytest.param(made_of(b"\10\11", KEYS), "keys of 8 bytes", id="other keys"),
        pytest.param(made_of(b"\10", KEYS), "keys of 8 bytes", id="less lengths"),
        pytest.param(made_of(KEY_SIZES, KEYS[:-1]), "2 keys", id="less keys"),
        pytest.param(made_of(KEY_SIZES, KEYS + b"1"), "up to 16 bytes", id="more keys"),
        pytest.param(made_of(KEY_SIZES, KEYS), "a length", id="no values"),
        pytest.param(BLOCK[:-1], "values of up to", id="cut"),
    ],
)
def test_invalid_blocks(data: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read_block(DataInput("u", data), LAYOUT)


@pytest.mark.parametrize(
    ("lengths", "stored"),
    [
        pytest.param(b"\1", b"abc", id="less lengths"),
        pytest.param(b"\1\2\3", b"abc", id="more lengths"),
        pytest.param(b"\4\xff", b"abc", id="negative"),
        pytest.param(b"\1\1", b"abc", id="more values"),
        pytest.param(b"\2\2", b"abc", id="less values"),
        pytest.param(b"\1" + vint(1 << 40), b"abc", id="great"),
    ],
)
def test_values_that_are_not_as_long_as_announced(
    lengths: bytes, stored: bytes
) -> None:
    with pytest.raises(CodecError):
        values(made_of(KEY_SIZES, KEYS, lengths, stored))


@given(st.integers(0, len(BLOCK) - 1), st.binary(min_size=1, max_size=8))
def test_any_damage_is_an_error(at: int, new: bytes) -> None:
    """Or changes nothing that counts: zlib sees the rest."""
    data = (BLOCK[:at] + new + BLOCK[at + len(new) :])[: len(BLOCK)]
    try:
        assert values(data) == RECORDS
    except (SourceError, CodecError):
        return
