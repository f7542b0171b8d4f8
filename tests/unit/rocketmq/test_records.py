"""Every form that a record may have is read as it was written."""

from __future__ import annotations

import itertools
import struct
import tracemalloc

import pytest

from sparkcache_rocketmq import codecs
from sparkcache_rocketmq.testing import V1, V2, Codec, Message

from .golden_record import GOLDEN, GOLDEN_MESSAGE
from .logs import write

HOSTS = {"IPv4": "10.1.2.3:10911", "IPv6": "[2001:db8::7]:10911"}


def test_the_golden_record() -> None:
    log = write([GOLDEN_MESSAGE], queue_id=3, first=100)
    assert log.data == GOLDEN
    (row,) = log.read().rows
    assert row == log.rows[0]
    assert row["__queueOffset"] == 100
    assert row["__tags"] == "T0"
    assert row["__keys"] == "k100"
    assert row["__flag"] == 7
    assert row["__bornHost"] == "127.0.0.1:10911"
    assert row["__storeHost"] == "10.1.2.3:10911"
    assert row["value"] == b"w" * 200


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("born", HOSTS)
@pytest.mark.parametrize("store", HOSTS)
def test_hosts_of_both_kinds_in_both_versions(
    version: int, born: str, store: str
) -> None:
    message = Message(
        b"body",
        tags="T",
        version=version,
        born_host=HOSTS[born],
        store_host=HOSTS[store],
        born_time_ms=1_600_000_000_001,
        store_time_ms=1_600_000_000_002,
    )
    log = write([message, Message(b"other"), message])
    assert log.read().rows == log.rows


def test_all_kinds_side_by_side() -> None:
    kinds = itertools.product([V1, V2], HOSTS.values(), HOSTS.values(), Codec)
    log = write(
        Message(b"b" * 50, version=v, born_host=b, store_host=s, codec=codec)
        for v, b, s, codec in kinds
    )
    assert log.read().rows == log.rows


@pytest.mark.parametrize("length", [1, 127, 128, 255])
def test_topics_of_any_length(length: int) -> None:
    log = write([Message(b"v")], topic="t" * length)
    assert struct.unpack_from(">I", log.data, 4)[0] == (V2 if length > 127 else V1)
    assert log.read().rows == log.rows


EMPTY: tuple[str, dict[str, str], None] = "KEYS\1\2TAGS\1\2", {}, None
PROPERTIES = {
    "none": ("", {}, None),
    "no last separator": ("TAGS\1T\2A\1b", {"TAGS": "T", "A": "b"}, "T"),
    "tags last, without a separator": ("A\1b\2TAGS\1T", {"TAGS": "T", "A": "b"}, "T"),
    "no value": EMPTY,
    "no name": ("\1v\2A\1b\2", {"A": "b"}, None),
    "neither": ("\2\2\1\2A\1b\2", {"A": "b"}, None),
    "no separator within": ("abc\2A\1b\2", {"A": "b"}, None),
    "a value with the separator of names": ("A\1b\1c\2", {"A": "b\1c"}, None),
    "two of a name": ("TAGS\1S\2TAGS\1T\2", {"TAGS": "T"}, "T"),
    "the second of a name is empty": ("TAGS\1S\2TAGS\1\2", {"TAGS": "S"}, "S"),
    "not ASCII": ("TAGS\1täg\2ключ\1值\2", {"TAGS": "täg", "ключ": "值"}, "täg"),
    "as many as there may be": ("A\1" + 32764 * "b" + "\2", {"A": 32764 * "b"}, None),
    "a name that begins as another": (
        "TAGS2\1S\2TAG\1R\2",
        {"TAGS2": "S", "TAG": "R"},
        None,
    ),
}


@pytest.mark.parametrize("rule", PROPERTIES)
@pytest.mark.parametrize("others", [False, True])
def test_properties(rule: str, others: bool) -> None:
    stored, expected, tags = PROPERTIES[rule]
    before = [Message(properties=(("X", "y"),), has_last_separator=False)]
    messages = [
        *before * others,
        Message(stored_properties=stored.encode()),
        *before * others,
    ]
    rows = write(messages).read().rows
    row = rows[others]
    assert row["__properties"] == expected
    assert row["__tags"] == tags
    for other in (rows[0], rows[-1]) if others else ():
        assert other["__properties"] == {"X": "y"}


def test_what_is_not_utf_8_is_replaced() -> None:
    log = write([Message(tags="T", properties=(("A", "b"),)), Message(tags="ok")])
    damaged = log.data.replace(b"TAGS\1T\2A\1b", b"TAGS\1\xff\2A\1\xfe")
    log.data = damaged
    first, second = log.read().rows
    assert (first["__tags"], second["__tags"]) == ("\ufffd", "ok")
    assert first["__properties"] == {"TAGS": "\ufffd", "A": "\ufffd"}


@pytest.mark.parametrize("body", [b"", b"x", bytes(1 << 20)])
@pytest.mark.parametrize("codec", Codec)
def test_bodies(codec: Codec, body: bytes) -> None:
    log = write(
        [Message(body, codec=codec), Message(b"plain"), Message(body, codec=codec)]
    )
    assert log.read().rows == log.rows


def test_numbers_at_their_limits() -> None:
    most, least = (1 << 31) - 1, -(1 << 31)
    log = write(
        [
            Message(flag=most, reconsume_times=least, born_host="0.0.0.0:0"),
            Message(flag=least, reconsume_times=most, sys_flag=0x0E, store_time_ms=0),
            Message(born_time_ms=-1, prepared_offset=-1),
        ],
        first=1 << 60,
    )
    assert log.read().rows == log.rows


def test_a_compression_type_that_is_unknown_is_named() -> None:
    log = write([Message(b"a"), Message(b"b", sys_flag=0x401), Message(b"c")])
    found = log.read()
    assert [row["value"] for row in found.rows] == [b"a", b"c"]
    (loss,) = found.losses
    assert (loss.first, loss.last, loss.offset) == (1, 1, log.places[1][0])
    assert (loss.expected, loss.found) == ("a compression type of 0 to 3", "4")


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_body_of_another_codec_is_a_loss(codec: Codec) -> None:
    log = write([Message(b"not compressed", sys_flag=codec), Message(b"b")])
    found = log.read()
    assert found.lost == [0]
    assert found.rows == log.rows[1:]


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_body_that_ends_too_early_is_a_loss(codec: Codec) -> None:
    body = codec.compress(bytes(range(256)) * 100)
    log = write([Message(body[:-6], sys_flag=codec), Message(b"b")])
    assert log.read().lost == [0]


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_bomb_is_a_loss(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "MAX_BODY_BYTES", 1 << 20)
    log = write(
        [
            Message(bytes((1 << 20) + 1), codec=codec),
            Message(bytes(1 << 20), codec=codec),
        ]
    )
    tracemalloc.start()
    found = log.read()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.lost == [0]
    assert found.rows == log.rows[1:]
    assert peak < 16 << 20


def test_bodies_of_a_run_that_become_too_much_together_are_losses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codecs, "MAX_RUN_BYTES", 2500)
    log = write([Message(bytes(1000), codec=Codec.ZLIB)] * 5)
    found = log.read()
    assert found.rows == log.rows[:3]
    (loss,) = found.losses
    assert (loss.first, loss.last) == (3, 4)
