"""Hadoop's codecs: what they wrote is read, and nothing else becomes large."""

from __future__ import annotations

import bz2
import gzip
import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache_pulsar import hadoop_codecs
from sparkcache_pulsar.hadoop_codecs import CodecError

from .mapfiles import COMPRESS

SAMPLES = [b"", b"x", b"again and " * 200, bytes(range(256)) * 20]


def name(codec: str) -> str:
    return f"org.apache.hadoop.io.compress.{codec}Codec"


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_what_was_compressed_comes_back(codec: str, data: bytes) -> None:
    stored = COMPRESS[codec](data)
    assert hadoop_codecs.decompress(name(codec), stored, len(data)) == data
    assert hadoop_codecs.decompress(name(codec), memoryview(stored), 1 << 30) == data


@pytest.mark.parametrize("codec", COMPRESS)
def test_more_than_there_may_be(codec: str) -> None:
    with pytest.raises(CodecError):
        hadoop_codecs.decompress(name(codec), COMPRESS[codec](b"x" * 1000), 999)


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("cut", [1, 5, 9])
def test_what_is_cut_short(codec: str, cut: int) -> None:
    stored = COMPRESS[codec](bytes(range(256)) * 10)[:-cut]
    try:
        found = hadoop_codecs.decompress(name(codec), stored, 1 << 20)
    except CodecError:
        return
    assert len(found) < 2560, "it is for the caller to see that it is too short"


@pytest.mark.parametrize("codec", COMPRESS)
@given(st.binary(max_size=200))
def test_garbage_is_an_error_or_short(codec: str, data: bytes) -> None:
    try:
        found = hadoop_codecs.decompress(name(codec), data, 5000)
    except CodecError:
        return
    assert len(found) <= 5000


@pytest.mark.parametrize("codec", ["Lz4", "Snappy"])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">ii", 100 << 20, 1), id="a piece of 100 MiB"),
        pytest.param(struct.pack(">ii", 10, 1 << 30), id="a chunk of 1 GiB"),
        pytest.param(struct.pack(">ii", 10, -1) + bytes(9), id="a negative chunk"),
        pytest.param(struct.pack(">i", -1) + bytes(9), id="a negative piece"),
        pytest.param(struct.pack(">ii", 10, 0) * 9, id="chunks of nothing"),
        pytest.param(b"\0\0", id="half a length"),
    ],
)
def test_lengths_that_cannot_be(codec: str, data: bytes) -> None:
    with pytest.raises(CodecError, match=r"a piece that becomes|a chunk of|a length"):
        hadoop_codecs.decompress(name(codec), data, 1 << 40)


@pytest.mark.parametrize("codec", ["Lz4", "Snappy"])
def test_room_is_made_only_for_what_so_few_bytes_can_become(codec: str) -> None:
    data = struct.pack(">ii", 100 << 20, 4) + bytes(4)
    with pytest.raises(CodecError, match="a piece that becomes 104857600 bytes"):
        hadoop_codecs.decompress(name(codec), data, 1 << 40)


@pytest.mark.parametrize(
    ("codec", "compress"), [("Gzip", gzip.compress), ("BZip2", bz2.compress)]
)
def test_streams_may_follow_each_other(codec: str, compress: object) -> None:
    assert callable(compress)
    stored = compress(b"one ") + compress(b"two")
    assert hadoop_codecs.decompress(name(codec), stored, 7) == b"one two"


@pytest.mark.parametrize("codec", ["Default", "Gzip", "BZip2"])
def test_there_are_not_very_many_streams(codec: str) -> None:
    """Time would grow with the square of their number."""
    with pytest.raises(CodecError, match="more than 1024 streams"):
        hadoop_codecs.decompress(name(codec), COMPRESS[codec](b"") * 1025, 7)


@pytest.mark.parametrize("codec", ["Default", "Gzip", "BZip2", "ZStandard"])
def test_a_bomb_is_not_unfolded(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hadoop_codecs, "MAX_BYTES", 1 << 20)
    stored = COMPRESS[codec](bytes(30 << 20))
    with pytest.raises(CodecError, match="more than 1048576 bytes"):
        hadoop_codecs.decompress(name(codec), stored, 1 << 40)


def test_known_codecs() -> None:
    assert hadoop_codecs.is_known(name("Default"))
    assert not hadoop_codecs.is_known("com.hadoop.compression.lzo.LzoCodec")
