"""Whatever is written to a queue is what is read of it, however it is cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcache_rocketmq.testing import Codec, Message
from tests.effort import tries

from .logs import write

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\1\2"),
    min_size=1,
    max_size=20,
)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TIME_MS = st.integers(-60_000_000_000_000, 250_000_000_000_000)
STORE_TIME_MS = st.integers(0, 250_000_000_000_000)
PORT = st.integers(0, (1 << 16) - 1)
HOST = st.one_of(
    st.builds("{}:{}".format, st.ip_addresses(v=4), PORT),
    st.builds("[{}]:{}".format, st.ip_addresses(v=6), PORT),
)
NAMES = TEXT.filter(lambda name: name not in ("TAGS", "KEYS", "UNIQ_KEY", "INNER_NUM"))
PROPERTIES = st.lists(st.tuples(NAMES, TEXT), max_size=4).map(tuple)
COMMON = {
    "body": st.binary(max_size=300),
    "tags": st.none() | TEXT,
    "keys": st.none() | TEXT,
    "unique_key": st.none() | TEXT,
    "properties": PROPERTIES,
    "flag": INT32,
    "has_last_separator": st.booleans(),
}
MESSAGES = st.builds(
    Message,
    **COMMON,
    codec=st.sampled_from(Codec),
    born_time_ms=TIME_MS,
    store_time_ms=STORE_TIME_MS,
    born_host=HOST,
    store_host=HOST,
    reconsume_times=st.integers(0, (1 << 31) - 1),
    inner=st.just(()) | st.lists(st.builds(Message, **COMMON), max_size=3).map(tuple),
)


@settings(max_examples=tries(25))
@given(
    st.lists(MESSAGES, min_size=1, max_size=12),
    st.integers(0, (1 << 60)),
    st.sampled_from([1, 50, 1 << 20]),
)
def test_round_trip(messages: list[Message], first: int, most: int) -> None:
    log = write(messages, topic="Töpic", queue_id=9, first=first)
    found = log.read(most=most)
    assert found.rows == log.rows
    assert not found.losses


@settings(max_examples=tries(20))
@given(st.lists(MESSAGES, min_size=1, max_size=12), st.integers(1, 5))
def test_runs_of_any_size(messages: list[Message], entries: int) -> None:
    log = write([message for message in messages if not message.inner] or [Message()])
    for found in (log.read(entries), log.read_each(entries)):
        assert found.rows == log.rows
        assert not found.losses
