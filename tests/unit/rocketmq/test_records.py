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
MALFORMED = {
    "no name": ("\1v\2A\1b\2", {"A": "b"}, b"\1v"),
    "neither": ("\2\2\1\2A\1b\2", {"A": "b"}, b""),
    "no separator within": ("abc\2A\1b\2", {"A": "b"}, b"abc"),
    "no separator within the last": ("A\1b\2abc", {"A": "b"}, b"abc"),
    "a name of many bytes and no value": (100 * "a" + "\2", {}, 40 * b"a"),
}
PROPERTIES = {
    "none": ("", {}, None),
    "no last separator": ("TAGS\1T\2A\1b", {"TAGS": "T", "A": "b"}, "T"),
    "tags last, without a separator": ("A\1b\2TAGS\1T", {"TAGS": "T", "A": "b"}, "T"),
    "no value": EMPTY,
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


@pytest.mark.parametrize("rule", MALFORMED)
@pytest.mark.parametrize("others", [False, True])
def test_malformed_properties_are_a_loss(rule: str, others: bool) -> None:
    stored, _, found = MALFORMED[rule]
    plain = [Message(properties=(("X", "y"),), has_last_separator=False)]
    log = write(
        [
            *plain * others,
            Message(stored_properties=stored.encode()),
            *plain * others,
        ],
        first=7,
    )
    (loss,) = log.read().losses
    offset = 7 + others
    assert (loss.first, loss.last, loss.offset) == (
        offset,
        offset,
        log.places[offset][0],
    )
    assert loss.expected == "properties of the form 'name 01 value 02'"
    assert loss.found == repr(found)
    assert [row["__queueOffset"] for row in log.read().rows] == [7, 9] * others


@pytest.mark.parametrize("rule", MALFORMED)
def test_in_an_inner_batch_malformed_properties_are_ignored(rule: str) -> None:
    """The checksum of the body covers them, so the producer sent them like that."""
    stored, expected, _ = MALFORMED[rule]
    inner = Message(b"a", stored_properties=stored.encode()), Message(b"b", tags="T")
    found = write([Message(inner=inner)]).read()
    assert [row["__properties"] for row in found.rows] == [expected, {"TAGS": "T"}]
    assert not found.losses


def test_malformed_properties_lose_one_record_of_compressed_ones() -> None:
    messages = [Message(b"%d" % n, tags="T", codec=Codec.ZSTD) for n in range(5)]
    messages[2] = Message(b"2", stored_properties=b"T", codec=Codec.ZSTD)
    log = write(messages)
    assert log.read().lost == [2]
    assert log.read().rows == [*log.rows[:2], *log.rows[3:]]


def test_names_that_begin_as_that_of_inner_batches() -> None:
    names = "INNER_NUMBER", "INNER_NUN", "INNER_NU"
    log = write([Message(properties=tuple((name, "2") for name in names))])
    found = log.read()
    assert found.rows == log.rows
    assert not found.losses


YEAR_10000_MS = 253_402_300_800_000
REFUSED = {
    "a port of too many bits": (
        Message(born_host="1.2.3.4:65536"),
        "a port of at most 65535",
        "65536",
    ),
    "a port below 0": (
        Message(store_host="[::1]:-1"),
        "a port of at most 65535",
        "-1",
    ),
    "stored before 1970": (
        Message(store_time_ms=-1),
        "a store time from 1970 to 9999, in ms",
        "-1",
    ),
    "reconsumed less than 0 times": (
        Message(reconsume_times=-1),
        "reconsume times of at least 0",
        "-1",
    ),
    "a codec of a body that is not compressed": (
        Message(b"b", sys_flag=0x300),
        "a compression type only if the body is compressed",
        "768",
    ),
    "the number of messages of an inner batch that is none": (
        Message(b"b", properties=(("INNER_NUM", "2"),)),
        "no property INNER_NUM outside of inner batches",
        "one",
    ),
    "one flag of an inner batch": (
        Message(b"b", sys_flag=0x80),
        "both flags of an inner batch, or neither",
        "128",
    ),
    "the other flag of an inner batch": (
        Message(b"b", sys_flag=0x40),
        "both flags of an inner batch, or neither",
        "64",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_broker_writes_is_a_loss(what: str) -> None:
    message, expected, reason = REFUSED[what]
    log = write([Message(b"a"), message, Message(b"c")])
    found = log.read()
    (loss,) = found.losses
    assert (loss.first, loss.last, loss.offset) == (1, 1, log.places[1][0])
    assert loss.uri == log.ledger.object.uri
    assert (loss.expected, loss.found) == (expected, reason)
    assert found.rows == [log.rows[0], log.rows[2]]


def test_a_store_time_after_9999_is_a_loss() -> None:
    log = write([Message(store_time_ms=YEAR_10000_MS - 1)] * 2)
    at = log.places[1][0] + 56
    log.data = log.data[:at] + struct.pack(">q", YEAR_10000_MS) + log.data[at + 8 :]
    (loss,) = log.read().losses
    assert (loss.first, loss.found) == (1, str(YEAR_10000_MS))
    assert log.read().rows == log.rows[:1]


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
            Message(flag=most, reconsume_times=0, born_host="0.0.0.0:0"),
            Message(flag=least, reconsume_times=most, sys_flag=0x0E, store_time_ms=0),
            Message(born_time_ms=-1, prepared_offset=-1),
            Message(store_time_ms=YEAR_10000_MS - 1, store_host="1.2.3.4:65535"),
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
