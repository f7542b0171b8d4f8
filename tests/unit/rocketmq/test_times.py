"""Which extents may have messages of a time."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sparkcache.errors import SourceError
from sparkcache_rocketmq import RocketMQConnector
from sparkcache_rocketmq.discovery import Catalog
from sparkcache_rocketmq.testing import Message
from tests.effort import tries

from .stores import TOPIC, Store, extents

CONNECTOR = RocketMQConnector()


def queue(store_times_ms: list[int], first_offset: int = 0, **how: Any) -> Store:
    """Store a message for each time."""
    store = Store()
    writer = store.writer(first_offset=first_offset, max_segment_bytes=2000)
    writer.append([Message(b"x", store_time_ms=time, **how) for time in store_times_ms])
    return store


def kept(
    store: Store,
    start_ms: int | None,
    end_ms: int | None,
    skew: str = "0s",
    extent_bytes: int = 1,
) -> list[int]:
    """Return the offsets that are left of all."""
    storage = store.storage()
    found = extents(Catalog(storage, {}, "", extent_bytes).snapshot(TOPIC))
    storage.requests.clear()
    start_us = None if start_ms is None else start_ms * 1000
    end_us = None if end_ms is None else end_ms * 1000
    options = {"maxTimeSkew": skew}
    chosen = CONNECTOR.prune(storage, found, (start_us, end_us), options)
    assert storage.requests["open"] <= 2 * len(found).bit_length()
    return [
        offset
        for _, extent in found[chosen.start : chosen.stop]
        for offset in range(extent.first, extent.last + 1)
    ]


@pytest.mark.parametrize(
    ("start", "end", "skew", "found"),
    [
        (None, 5_000, "0s", range(5)),
        (5_000, None, "0s", range(4, 20)),
        (5_500, None, "0s", range(5, 20)),
        (5_000, 8_000, "0s", range(4, 8)),
        (5_000, 8_000, "2s", range(2, 10)),
        (5_000, 8_000, "1h", range(20)),
        (-5, 0, "0s", range(0)),
        (50_000, 60_000, "0s", range(19, 20)),
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1:1", "[fe80::1]:1"])
def test_extents_of_a_time(
    start: int | None, end: int | None, skew: str, found: range, host: str
) -> None:
    """Wherever the host that stands before the time leaves it."""
    store = queue([second * 1000 for second in range(20)], born_host=host)
    assert kept(store, start, end, skew) == list(found)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        pytest.param(10, None, range(100, 200), id="10: from 100 on"),
        pytest.param(11, None, range(100, 200), id="11, lower: from 100 on"),
        pytest.param(None, 12, range(100, 200), id="11, upper: up to 199"),
        pytest.param(11, 12, range(100, 200), id="11, both: from 100 to 199"),
        pytest.param(12, None, range(0), id="12: from 200 on"),
        pytest.param(None, 11, range(0), id="before 11: none"),
    ],
)
def test_times_that_are_all_equal(
    start: int | None, end: int | None, found: range
) -> None:
    """What RocketMQ's own look-up returns for them."""
    store = queue([11] * 100, first_offset=100)
    left = kept(store, start, end)
    is_wanted = (start is None or start <= 11) and (end is None or end > 11)
    assert [offset for offset in left if is_wanted] == list(found)
    assert len(left) >= len(found)
    assert is_wanted or len(left) <= 1


@settings(max_examples=tries(33))
@given(
    st.lists(st.integers(0, 3_000), min_size=1, max_size=60),
    st.none() | st.integers(0, 60_000),
    st.none() | st.integers(0, 60_000),
    st.sampled_from([1, 300, 1000]),
)
def test_nothing_of_the_time_is_left_out(
    steps: list[int], start: int | None, end: int | None, extent_bytes: int
) -> None:
    """Where times fall back by no more than was declared."""
    stored = [number * 1000 + step for number, step in enumerate(steps)]
    skew = max(max(stored[: n + 1]) - time for n, time in enumerate(stored))
    left = kept(queue(stored), start, end, f"{skew}ms", extent_bytes)
    for offset, time in enumerate(stored):
        if (start is None or time >= start) and (end is None or time < end):
            assert offset in left


def test_times_that_fall_back_further_than_was_declared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = queue([5_000, 4_000, 3_000, 2_000, 1_000])
    assert kept(store, 2_500, 3_500) == [0, 1, 2, 3, 4]
    assert "maxTimeSkew=0s" in caplog.text


@pytest.mark.parametrize("at", [4, 12])
def test_an_extent_that_begins_with_damage_may_have_any_time(at: int) -> None:
    store = queue([1_000, 2_000, 3_000])
    (name,) = store.named("COMMIT_LOG")
    data = bytearray(store.objects[name])
    data[98 + at] ^= 1
    store.objects[name] = bytes(data)
    assert kept(store, 3_000, None) == [0, 1, 2]


def test_a_storage_that_fails() -> None:
    storage = queue([1_000, 2_000]).storage()
    found = extents(Catalog(storage, {}, "", 1).snapshot(TOPIC))
    uri = found[0][0].object.uri
    storage.remove(uri.removeprefix("memory://bucket/"))
    with pytest.raises(SourceError):
        CONNECTOR.prune(storage, found, (1_500_000, None), {})
