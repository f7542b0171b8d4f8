"""Messages of an inner batch take an offset each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcache_rocketmq.testing import Codec, Message
from tests.effort import tries

from .logs import write
from .stores import Store

INNER = (
    Message(b"one", tags="A", keys="k", flag=1),
    Message(b"", properties=(("p", "q"),)),
    Message(b"three", tags="C", has_last_separator=False),
)


@pytest.mark.parametrize("codec", Codec)
def test_they_come_with_their_own_bodies_flags_and_properties(codec: Codec) -> None:
    batch = Message(inner=INNER, codec=codec, tags="outer", reconsume_times=2)
    log = write([Message(b"before"), batch, batch, Message(b"beyond", codec=codec)])
    found = log.read()
    assert found.rows == log.rows
    assert not found.losses
    assert [row["__queueOffset"] for row in found.rows] == list(range(8))
    assert [row["__tags"] for row in found.rows[1:4]] == ["A", None, "C"]


@pytest.mark.parametrize("number", ["2", "4", "0", "", "x", "99999999", "-3"])
def test_a_number_that_is_wrong_costs_the_batch_alone(number: str) -> None:
    messages = [Message(b"before"), Message(inner=INNER), *[Message(b"beyond")] * 9]
    log = write(messages, repeats_batches=False)
    stored = f"INNER_NUM\1{number}\2".encode()
    old = b"INNER_NUM\0013\2"
    log.data = log.data.replace(old, stored.ljust(len(old), b"\2")[: len(old)])
    found = log.read()
    assert found.lost == [1, 2, 3]
    assert found.rows == log.rows[:1] + log.rows[4:]


@pytest.mark.parametrize("number", ["1", "2", "4", "9", "0", "x"])
@pytest.mark.parametrize("copy", [0, 1])
def test_a_number_that_is_wrong_in_one_place_costs_nothing(
    number: str, copy: int
) -> None:
    log = write([Message(b"before"), Message(inner=INNER), *[Message(b"beyond")] * 9])
    place, size = log.places[1 + copy]
    record = log.data[place : place + size]
    damaged = record.replace(b"INNER_NUM3", f"INNER_NUM{number}".encode())
    log.data = log.data.replace(record, damaged)
    for found in (log.read(), log.read_each(len(log.rows))):
        assert found.rows == log.rows
        assert not found.losses


@settings(max_examples=tries(25))
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
    st.integers(0, 40),
    st.integers(1, 9),
    st.sampled_from([37, 1 << 20]),
)
def test_wherever_runs_end_each_message_comes_once(
    sizes: list[int], first: int, entries: int, most: int
) -> None:
    """A batch is there once for each of its messages, as brokers tier it."""
    log = write(map(batch, sizes), first=first)
    for found in (log.read(entries, most), log.read_each(entries)):
        assert found.rows == log.rows
        assert not found.losses


@settings(max_examples=tries(25))
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
    st.integers(0, 40),
    st.integers(300, 2000),
    st.integers(1, 2000),
    st.sampled_from([1 << 30, 900]),
)
def test_wherever_extents_and_segments_end_each_message_comes_once(
    sizes: list[int],
    first: int,
    extent_bytes: int,
    run_bytes: int,
    max_segment_bytes: int,
) -> None:
    store = Store()
    writer = store.writer(first_offset=first, max_segment_bytes=max_segment_bytes)
    rows = writer.append(map(batch, sizes))
    assert store.read_each(extent_bytes, run_bytes) == (rows, [])


def test_a_record_that_seems_to_be_none_of_the_batch_is_not_there_twice() -> None:
    log = write([Message(b"before"), Message(inner=INNER), *[Message(b"beyond")] * 9])
    at = log.places[1][0] + 36
    log.data = log.data[:at] + bytes(4) + log.data[at + 4 :]
    for found in (log.read(), log.read_each(2), log.read(3)):
        offsets: list[Any] = [row["__queueOffset"] for row in found.rows]
        assert sorted([*found.lost, *offsets]) == list(range(len(log.rows)))


@settings(max_examples=tries(20))
@given(
    st.lists(st.integers(0, 6), min_size=6, max_size=12),
    st.sampled_from([1, 300, 1 << 20]),
)
def test_a_batch_may_have_expired_in_part(sizes: list[int], run_bytes: int) -> None:
    """What is left of its records has the messages that are indexed there."""
    store = Store()
    writer = store.writer(first_offset=5, max_segment_bytes=400)
    rows = writer.append(map(batch, sizes))
    expired, follows = store.named("COMMIT_LOG")[:2]
    del store.objects[expired]
    first = int(follows[-20:])
    left = [
        offset for offset, (place, _) in writer.record_ranges.items() if place >= first
    ]
    assert store.read_each(1000, run_bytes) == (rows[left[0] - 5 :], [])


@pytest.mark.parametrize("size", [1, 2, 5])
def test_where_there_is_no_consume_queue_the_last_batch_is_read_too(size: int) -> None:
    store = Store()
    rows = store.writer().append(map(batch, [3, 0, size]))
    store.remove("CONSUME_QUEUE")
    assert store.read_each(1 << 20, 1) == (rows, [])


def batch(size: int) -> Message:
    inner = tuple(Message(b"%d" % n, flag=n) for n in range(size))
    return Message(b"alone", inner=inner)


def test_a_batch_that_is_there_once_is_in_the_run_it_begins_in() -> None:
    messages = [Message(b"before"), Message(inner=INNER), Message(b"beyond")]
    log = write(messages, repeats_batches=False)
    for found in (log.read(2), log.read_each(2)):
        assert found.lost == [2, 3]
        assert found.rows == [log.rows[0], log.rows[1], log.rows[4]]
    (loss,) = log.read(2).losses
    assert (loss.expected, loss.found) == ("entry 2", "entry 4")


def test_no_more_of_a_batch_is_unfolded_than_it_announces() -> None:
    number = (("INNER_NUM", "1"),)
    body = (22).to_bytes(4, "big") + bytes(18)
    batch = Message(body * 50_000, sys_flag=0xC0, codec=Codec.ZSTD, properties=number)
    found = write([batch, Message(b"beyond")]).read()
    assert found.lost == [0]
    assert found.losses[0].found == "more"


def test_what_follows_the_last_message_is_damage() -> None:
    log = write(
        [
            Message(b"\0" * 21 + b"x", sys_flag=0xC0, properties=(("INNER_NUM", "1"),)),
            Message(b"b"),
        ]
    )
    assert log.read().lost == [0]


@pytest.mark.parametrize("entries", [1, 2, 3])
def test_a_batch_is_not_read_under_another_offset(entries: int) -> None:
    """It says its offset in its properties, too, like that of a broker."""
    log = write([Message(inner=INNER[:2]), Message(b"c"), Message(b"d")], first=1000)
    at = log.places[1001][0] + 20
    log.data = log.data[:at] + (1001).to_bytes(8, "big") + log.data[at + 8 :]
    for found in (log.read(entries), log.read_each(entries)):
        assert len(found.rows) + len(found.lost) == len(log.rows)
        assert all(row in log.rows for row in found.rows)
        assert set(found.lost) <= {1000, 1001}
