"""Which topics a scan is of, and which of their blocks may have messages of a time."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sparkcache.connector import Selection
from sparkcache.errors import ConfigError, SourceError
from sparkcache.source.options import ScanOptions
from sparkcache.testing import MemoryStorage
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import Entry, Message
from tests.effort import tries

from .topics import TOPIC, TXN_ABORT, store

CONNECTOR = PulsarConnector()
ONE = [Entry((Message(b"x"),))]
PARTS = [f"{TOPIC}-partition-{number}" for number in (0, 2, 10)]
OTHER = "persistent://shop/us/orders"


@pytest.fixture
def storage() -> MemoryStorage:
    bucket = MemoryStorage()
    for ledger, topic in enumerate([OTHER, *reversed(PARTS)]):
        store(ONE, topic=topic, ledger=ledger, storage=bucket)
    return bucket


def select(storage: MemoryStorage, *names: str, pattern: str = "") -> list[str]:
    chosen = Selection(names, re.compile(pattern) if pattern else None)
    return list(CONNECTOR.catalog(storage, {}).select(chosen))


def test_a_partitioned_topic_is_all_its_partitions(storage: MemoryStorage) -> None:
    assert select(storage, TOPIC) == PARTS
    assert select(storage, PARTS[1]) == [PARTS[1]]
    assert select(storage, OTHER, TOPIC, PARTS[0]) == [OTHER, *PARTS]


def test_a_topic_that_was_partitioned_later(storage: MemoryStorage) -> None:
    store(ONE, topic=TOPIC, ledger=9, storage=storage)
    assert select(storage, TOPIC) == [TOPIC, *PARTS]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("persistent://shop/eu/.*", PARTS),
        ("persistent://shop/eu/orders", PARTS),
        (".*/orders", [*PARTS, OTHER]),
        (".*-partition-(0|2)", PARTS[:2]),
        (".*", [*PARTS, OTHER]),
    ],
)
def test_a_pattern(storage: MemoryStorage, pattern: str, found: list[str]) -> None:
    assert select(storage, pattern=pattern) == found


@pytest.mark.parametrize(
    ("names", "pattern"), [(["persistent://shop/eu/order"], ""), ([], "orders")]
)
def test_missing_topics(storage: MemoryStorage, names: list[str], pattern: str) -> None:
    with pytest.raises(
        ConfigError, match=r"no offloaded ledger.*found topics .*/orders"
    ):
        select(storage, *names, pattern=pattern)


def test_one_missing_topic_of_several(storage: MemoryStorage) -> None:
    with pytest.raises(ConfigError, match="persistent://shop/eu/pizzas"):
        select(storage, TOPIC, "persistent://shop/eu/pizzas")


def test_a_manifest_is_of_one_topic(storage: MemoryStorage) -> None:
    catalog = CONNECTOR.catalog(storage, {"manifest": '{"ledgers": []}'})
    with pytest.raises(ConfigError, match=r"of one topic, .* reads 3 topics, such as"):
        catalog.select(Selection((TOPIC,)))


def test_the_bucket_is_listed_once(storage: MemoryStorage) -> None:
    catalog = CONNECTOR.catalog(storage, {})
    for name in catalog.select(Selection(pattern=re.compile(".*"))):
        assert len(catalog.snapshot(name).ledgers) == 1
    assert storage.requests["list"] == 1


# Options


def options(**given: str) -> ScanOptions:
    return ScanOptions.parse({"path": "/bucket", **given})


def test_topics_by_name() -> None:
    chosen = options(topics="orders, shop/eu/orders,orders").selection
    assert chosen.names == ("persistent://public/default/orders", TOPIC)
    assert chosen.pattern is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "option topic is missing"),
        ({"topic": "a", "topicsPattern": "b"}, "topic and topicsPattern: give one"),
        ({"topicsPattern": "("}, "not a regular expression"),
        ({"topics": "a,,b"}, "not a topic's name"),
    ],
)
def test_options_that_name_no_topics(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        options(**given)


def test_offsets_of_a_topic_that_is_not_read() -> None:
    with pytest.raises(ConfigError, match=r"default/pizzas is not of this scan"):
        options(topic="orders", endingOffsets='{"pizzas": "1:1"}')
    maybe = options(topic="orders", endingOffsets='{"orders-partition-7": "1:1"}')
    for found in ("orders-partition-0", "orders"):
        with pytest.raises(ConfigError, match=r"partition-7 is not of this scan"):
            maybe.check_offsets([f"persistent://public/default/{found}"])


def test_offsets_of_each_topic() -> None:
    given = options(
        topicsPattern=".*",
        startingOffsets='{"orders": "3:1", "shop/eu/orders": "earliest"}',
        endingOffsets="9:0",
    )
    orders = given.consumer("persistent://public/default/orders")
    assert (str(orders.start), str(orders.end)) == ("3:1", "9:0")
    assert given.consumer(TOPIC).start is None


def test_offsets_of_a_topic_are_those_of_its_partitions() -> None:
    given = options(
        topic="orders", startingOffsets='{"orders": "3:1", "orders-partition-1": "5:0"}'
    )
    topic = "persistent://public/default/orders-partition"
    given.check_offsets([f"{topic}-0", f"{topic}-1"])
    assert str(given.consumer(f"{topic}-0").start) == "3:1"
    assert str(given.consumer(f"{topic}-1").start) == "5:0"


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ("7", "'7' is not a position 'ledger:entry'; give latest, a position, or JSON"),
        ('{"orders": 7}', "'7' is not a position"),
        ('{"orders": true}', "True is not a position"),
        ('{"orders": ["1:2"]}', "is not a position"),
        ('{"orders": "1:2"', "delimiter"),
        ('{"a//b": "1:2"}', "'a//b' is not a topic's name"),
    ],
)
def test_invalid_offsets(offsets: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        options(topic="orders", endingOffsets=offsets)
    assert str(caught.value).startswith(f"option endingOffsets={offsets!r}: ")
    with pytest.raises(ConfigError, match=message):
        options(topicsPattern=".*", endingOffsets=offsets)


# Times


def blocks(
    times: list[int], size: int = 1, value: bytes = b"x", **fields: Any
) -> MemoryStorage:
    """Store a message for each time, that many to a block."""
    entries = [
        Entry((Message(value, **fields),), publish_time_ms=time).encode()
        for time in times
    ]
    longest = max(map(len, entries))
    return store(entries, max_block_bytes=140 + (longest + 12) * size)


def _micros(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * 1000


def kept(
    storage: MemoryStorage, start: int | None, end: int | None, skew: str = "0s"
) -> range:
    (found,) = CONNECTOR.catalog(storage, {}).snapshot(TOPIC).ledgers
    extents = [(found.ledger, extent) for extent in found.extents]
    times = _micros(start), _micros(end)
    return CONNECTOR.prune(storage, extents, times, {"maxTimeSkew": skew})


@pytest.mark.parametrize(
    ("start", "end", "skew", "chosen"),
    [
        (None, 5_000, "0s", range(5)),
        (5_000, None, "0s", range(4, 20)),
        (5_500, None, "0s", range(5, 20)),
        (5_000, 8_000, "0s", range(4, 8)),
        (5_000, 8_000, "2s", range(2, 10)),
        (5_000, 8_000, "1h", range(20)),
        (-5, 0, "0s", range(0)),
        (50_000, 60_000, "0s", range(19, 20)),
        (8_000, 5_000, "0s", range(7, 7)),
    ],
)
def test_blocks_of_a_time(
    start: int | None, end: int | None, skew: str, chosen: range
) -> None:
    storage = blocks([second * 1000 for second in range(20)])
    assert kept(storage, start, end, skew) == chosen
    assert storage.requests["open"] <= 10


def test_times_that_fall_back_further_than_was_declared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = blocks([5_000, 4_000, 3_000, 2_000, 1_000])
    assert kept(storage, 2_500, 3_500) == range(5)
    assert "maxTimeSkew=0s" in caplog.text


def test_metadata_that_is_long() -> None:
    storage = blocks([1_000, 2_000, 3_000], properties=(("k", "v" * 9_000),))
    assert kept(storage, 3_000, None) == range(1, 3)


def test_a_block_that_begins_with_what_cannot_be_read() -> None:
    entries = [Entry((Message(b"x"),), publish_time_ms=ms).encode() for ms in (1, 2, 3)]
    entries[1] = b"\xff" * len(entries[1])
    storage = store(entries, max_block_bytes=len(entries[0]) + 152)
    assert kept(storage, 3, None) == range(3)


@pytest.mark.parametrize("bit", [23, 33, 40, 48, 54, 78])
def test_a_block_that_begins_with_a_time_that_was_damaged(bit: int) -> None:
    """Only the checksum shows it."""
    now = 1_700_000_000_000
    entries = [
        Entry((Message(b"x"),), publish_time_ms=now + 1_000 * second).encode()
        for second in range(8)
    ]
    damaged = bytearray(entries[4])
    damaged[22 + bit // 8] ^= 1 << bit % 8
    entries[4] = bytes(damaged)
    storage = store(entries, max_block_bytes=len(damaged) + 152)
    assert kept(storage, now, now + 8_000, "1h") == range(8)


@pytest.mark.parametrize("marker", [TXN_ABORT, 10])
def test_a_block_that_begins_with_what_a_broker_wrote(marker: int) -> None:
    """Whose clock is not that of producers."""
    entries = []
    for second in range(1, 9):
        mark = Entry(
            (Message(),), False, publish_time_ms=9_999_000, txn=(0, 1), marker=marker
        )
        message = Entry((Message(b"x"),), publish_time_ms=1_000 * second)
        entries += [mark.encode(), message.encode()]
    size = 140 + 12 + len(entries[0]) + 12 + len(entries[1])
    storage = store(entries, max_block_bytes=size)
    assert kept(storage, 5_000, 7_000) == range(3, 6)


def test_a_block_that_begins_with_a_large_entry() -> None:
    storage = blocks([1_000, 2_000, 3_000], value=bytes(5 << 20))
    assert kept(storage, 3_000, None) == range(1, 3)


def test_a_storage_that_fails() -> None:
    storage = blocks([1_000, 2_000])
    (found,) = CONNECTOR.catalog(storage, {}).snapshot(TOPIC).ledgers
    storage.remove(found.ledger.object.uri.removeprefix("memory://bucket/"))
    extents = [(found.ledger, extent) for extent in found.extents]
    with pytest.raises(SourceError):
        CONNECTOR.prune(storage, extents, (1_500_000, None), {})


def test_a_skew_is_a_duration() -> None:
    with pytest.raises(ConfigError, match="maxTimeSkew='long': must be a duration"):
        CONNECTOR.decoding({"maxTimeSkew": "long"})


@settings(max_examples=tries(50))
@given(
    st.lists(st.integers(0, 3_000), min_size=1, max_size=30),
    st.integers(0, 100_000),
    st.none() | st.integers(0, 100_000),
    st.none() | st.integers(0, 100_000),
    st.integers(1, 4),
)
def test_nothing_of_the_time_is_pruned(
    steps: list[int], seed: int, start: int | None, end: int | None, size: int
) -> None:
    """Where times fall back by no more than was declared."""
    times = [
        number * 1000 + (step * (seed + number)) % 3_001
        for number, step in enumerate(steps)
    ]
    skew = max(max(times[: n + 1]) - time for n, time in enumerate(times))
    storage = blocks(times, size)
    (found,) = CONNECTOR.catalog(storage, {}).snapshot(TOPIC).ledgers
    chosen = kept(storage, start, end, f"{skew}ms")
    for index, extent in enumerate(found.extents):
        for time in times[extent.first : extent.last + 1]:
            if (start is None or time >= start) and (end is None or time < end):
                assert index in chosen
