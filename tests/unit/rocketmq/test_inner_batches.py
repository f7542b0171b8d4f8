"""Messages of an inner batch take an offset each."""

from __future__ import annotations

import pytest

from sparkcache_rocketmq.testing import Codec, Message

from .logs import Log, write

INNER = (
    Message(b"one", tags="A", keys="k", flag=1),
    Message(b"", properties=(("p", "q"),)),
    Message(b"three", tags="C", has_last_separator=False),
)


@pytest.mark.parametrize("codec", Codec)
def test_they_come_with_their_own_bodies_flags_and_properties(codec: Codec) -> None:
    batch = Message(inner=INNER, codec=codec, tags="outer", reconsume_times=2)
    log = write([Message(b"before"), batch, batch, Message(b"behind", codec=codec)])
    found = log.read()
    assert found.rows == log.rows
    assert not found.losses
    assert [row["__queueOffset"] for row in found.rows] == list(range(8))
    assert [row["__tags"] for row in found.rows[1:4]] == ["A", None, "C"]


@pytest.mark.parametrize("number", ["2", "4", "0", "", "x", "99999999", "-3"])
def test_a_number_that_is_wrong_costs_the_batch_alone(number: str) -> None:
    log = write([Message(b"before"), Message(inner=INNER), *[Message(b"behind")] * 9])
    stored = f"INNER_NUM\1{number}\2".encode()
    old = b"INNER_NUM\0013\2"
    log.data = log.data.replace(old, stored.ljust(len(old), b"\2")[: len(old)])
    found = log.read()
    assert found.lost == [1, 2, 3]
    assert found.rows == log.rows[:1] + log.rows[4:]


def as_tiered(log: Log) -> Log:
    """Write a record once for each offset it takes, as brokers do."""
    data, places = b"", {}
    for offset, (place, size) in log.places.items():
        at = len(data)
        data += log.data[place : place + 28] + at.to_bytes(8, "big")
        data += log.data[place + 36 : place + size]
        places[offset] = at, size
    return Log(data, log.rows, places)


@pytest.mark.parametrize("entries", range(1, 11))
@pytest.mark.parametrize("before", range(4))
def test_a_batch_that_is_tiered_for_each_message_may_lie_in_any_runs(
    entries: int, before: int
) -> None:
    batch = Message(inner=INNER)
    log = write([Message(b"before")] * before + [batch, batch, Message(b"behind")])
    tiered = as_tiered(log)
    for found in (tiered.read(entries), tiered.read_each(entries)):
        assert not found.losses
        assert found.rows == log.rows


@pytest.mark.parametrize("most", [1, 50, 1000])
def test_a_batch_is_waited_for(most: int) -> None:
    tiered = as_tiered(write([Message(inner=INNER), Message(inner=INNER)]))
    assert tiered.read(4, most).rows == tiered.rows


def test_of_a_batch_that_is_there_once_another_run_has_nothing() -> None:
    log = write([Message(b"before"), Message(inner=INNER), Message(b"behind")])
    for found in (log.read(2), log.read_each(2)):
        assert sorted(found.lost) == [2, 3]
        assert found.rows == [*log.rows[:2], log.rows[4]]


def test_what_is_behind_the_last_message_is_damage() -> None:
    log = write(
        [
            Message(b"\0" * 21 + b"x", sys_flag=0xC0, properties=(("INNER_NUM", "1"),)),
            Message(b"b"),
        ]
    )
    assert log.read().lost == [0]
