"""Decompression: all codecs, and nothing but the size that was announced."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from sparkcache_pulsar import codecs
from sparkcache_pulsar.testing import Codec

PLAIN = b"".join(b"%d bottles of beer on the wall. " % n for n in range(200))
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


def decompress(
    codec: int, data: bytes, size: int
) -> tuple[bytes, tuple[str, str] | None]:
    target = np.zeros(size + 8, np.uint8)
    source = np.frombuffer(data, np.uint8)
    fault = codecs.decompress(codec, source, target[:size])
    assert not target[size:].any()
    return target[:size].tobytes(), fault


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("plain", [PLAIN, b"x", b""])
def test_what_was_compressed(codec: Codec, plain: bytes) -> None:
    assert decompress(codec, codec.compress(plain), len(plain)) == (plain, None)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("difference", [-len(PLAIN), -1, 1, 1000])
def test_another_size_than_announced(codec: Codec, difference: int) -> None:
    _, fault = decompress(codec, codec.compress(PLAIN), len(PLAIN) + difference)
    assert fault is not None
    assert codec.name in fault[0]


@pytest.mark.parametrize("codec", COMPRESSING)
def test_truncated(codec: Codec) -> None:
    _, fault = decompress(codec, codec.compress(PLAIN)[:-10], len(PLAIN))
    assert fault is not None


def test_zlib_may_have_an_end_or_not() -> None:
    """Pulsar's Java client flushes the stream but does not finish it."""
    for data in (zlib.compress(PLAIN), Codec.ZLIB.compress(PLAIN)):
        assert decompress(Codec.ZLIB, data, len(PLAIN)) == (PLAIN, None)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_empty_input(codec: Codec) -> None:
    _, fault = decompress(codec, b"", len(PLAIN))
    assert fault is not None


def test_unknown_codec() -> None:
    assert decompress(5, b"", 0)[1] == ("a codec of 0 to 4", "5")
