"""From segments, which have entries of several ledgers, to the ledgers of a topic."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache import testing
from sparkcache.errors import ConfigError, SourceError
from sparkcache.model import Extent
from sparkcache.testing import MemoryStorage, read_topic
from sparkcache.testing.memory_storage import MemoryStream
from sparkcache_pulsar import PulsarConnector

from .streaming import (
    Block,
    manifest,
    numbered,
    segment_objects,
    store_segment,
)
from .topics import TOPIC, store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.connector import Snapshot
    from sparkcache.model import Loss, ObjectId

LENIENT = {"failOnDataLoss": "false"}
CONNECTOR = PulsarConnector()


def discover(storage: MemoryStorage, options: Mapping[str, str]) -> Snapshot:
    return testing.discover(CONNECTOR, storage, TOPIC, options)


def read(
    storage: MemoryStorage, options: Mapping[str, str], run_bytes: int = 1 << 20
) -> tuple[list[str], list[Loss]]:
    """Return the values, which say ledger and entry, and the losses while reading."""
    rows, losses = read_topic(CONNECTOR, storage, TOPIC, options, run_bytes=run_bytes)
    for row in rows:
        assert row["value"].decode() == f"{row['__ledgerId']}:{row['__entryId']}"
    return [row["value"].decode() for row in rows], losses


def entries(ledger: int, first: int, stop: int) -> list[str]:
    return [f"{ledger}:{number}" for number in range(first, stop)]


@pytest.mark.parametrize("run_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("padding", [0, 1, 3, 4, 11, 12, 13, 5000])
def test_ledgers_in_several_segments(padding: int, run_bytes: int) -> None:
    """Without padding only the index separates one block from the next."""
    storage = MemoryStorage()
    counts = {5: 6, 6: 9, 7: 4}
    first = [numbered(5, 0, 4, padding), numbered(5, 4, 6), numbered(6, 0, 2, padding)]
    second = [numbered(6, 2, 5, padding), numbered(6, 5, 8, padding)]
    third = [numbered(6, 8, 9, padding), numbered(7, 0, 4, padding)]
    for seed, blocks in enumerate([second, third, first]):  # uuids in any order
        store_segment(storage, blocks, counts, seed=seed)
    values, losses = read(storage, manifest(5, 6, 7), run_bytes)
    assert values == [*entries(5, 0, 6), *entries(6, 0, 9), *entries(7, 0, 4)]
    assert not losses


def test_ledgers_are_addressed_exactly() -> None:
    storage = MemoryStorage()
    blocks = [numbered(5, 0, 4, 7), numbered(5, 4, 6), numbered(6, 0, 2, 3)]
    store_segment(storage, blocks, {5: 6, 6: 9})
    sizes = [len(block.encode()) for block in blocks]
    five, six = discover(storage, manifest(5, 6)).ledgers
    assert five.ledger.object == six.ledger.object
    assert five.extents == (
        Extent(0, 3, 0, sizes[0]),
        Extent(4, 5, sizes[0], sizes[1]),
    )
    assert six.extents == (Extent(0, 1, sizes[0] + sizes[1], sizes[2]),)


@pytest.mark.parametrize("padding", [0, 1, 12, 200])
def test_where_the_last_ledger_ends_is_read_once(padding: int) -> None:
    """Its info has nine entries; two of them are here, the others are to come."""
    storage = MemoryStorage()
    store_segment(storage, [numbered(5, 0, 2, padding)], {5: 9}, seed=99)
    for _ in range(2):
        (found,) = discover(storage, manifest(5)).ledgers
        assert [(extent.first, extent.last) for extent in found.extents] == [(0, 1)]
    assert storage.requests["open"] == 1


def test_a_topic_may_change_its_format() -> None:
    storage = MemoryStorage()
    store(list(numbered(4, 0, 3).entries), ledger=4, storage=storage)
    store_segment(storage, [numbered(5, 0, 2), numbered(6, 0, 1)], {5: 2, 6: 1})
    store(list(numbered(7, 0, 2).entries), ledger=7, storage=storage)
    expected = [
        *entries(4, 0, 3),
        *entries(5, 0, 2),
        *entries(6, 0, 1),
        *entries(7, 0, 2),
    ]
    assert read(storage, manifest(4, 5, 6, 7)) == (expected, [])


def test_a_ledger_of_both_formats_is_read_once_and_says_whose_its_neighbours_are() -> (
    None
):
    storage = MemoryStorage()
    store(list(numbered(5, 0, 2).entries), ledger=5, storage=storage)
    store_segment(storage, [numbered(5, 0, 2), numbered(6, 0, 2)], {5: 2, 6: 4})
    store_segment(storage, [numbered(6, 2, 4), numbered(7, 0, 1)], {6: 4, 7: 1}, seed=1)
    values, _ = read(storage, {})
    assert values == [*entries(5, 0, 2), *entries(6, 0, 4), *entries(7, 0, 1)]


def test_user_metadata_may_say_whose_they_are() -> None:
    storage = MemoryStorage()
    data, index = segment_objects([numbered(5, 0, 2)], {5: 2})
    key = "00000000-0000-0000-0000-000000000001"
    storage.put(key, data)
    storage.put(
        f"{key}-index", index, {"managedLedgerName": "shop/eu/persistent/orders"}
    )
    assert read(storage, {})[0] == entries(5, 0, 2)


def test_segments_of_no_topic_are_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = store(list(numbered(4, 0, 3).entries), ledger=4)
    key = store_segment(storage, [numbered(5, 0, 2)], {5: 2})
    assert read(storage, {})[0] == entries(4, 0, 3)
    assert f"1 segments in the streaming format, such as {key}" in caplog.text
    assert "set the option manifest" in caplog.text


def test_a_bucket_of_nothing_else_asks_for_a_manifest() -> None:
    storage = MemoryStorage()
    store_segment(storage, [numbered(5, 0, 2)], {5: 2})
    with pytest.raises(
        ConfigError, match=r"found no topics; also found 1 segments .* manifest"
    ):
        discover(storage, {})


def test_a_segment_without_an_index_is_unfinished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage()
    store_segment(storage, [numbered(5, 0, 2)], {5: 4})
    key = store_segment(storage, [numbered(5, 2, 4)], {5: 4}, seed=1)
    storage.remove(f"{key}-index")
    with caplog.at_level(logging.INFO):
        assert read(storage, manifest(5)) == (entries(5, 0, 2), [])
    assert f"{key}: expected an index of these data" in caplog.text


@pytest.mark.parametrize(
    ("pieces", "chosen"),
    [
        pytest.param([(0, 4), (0, 4)], [(0, 3)], id="the same twice"),
        pytest.param([(0, 2), (0, 4)], [(0, 3)], id="the longer one"),
        pytest.param([(0, 4), (1, 3)], [(0, 3)], id="one within another"),
        pytest.param([(0, 3), (1, 2), (3, 4)], [(0, 2), (3, 3)], id="and one after"),
        pytest.param([(0, 3), (2, 4)], [(0, 1), (2, 3)], id="two that overlap"),
        pytest.param([(2, 4), (0, 2), (0, 2)], [(0, 1), (2, 3)], id="in any order"),
    ],
)
def test_segments_that_were_repeated(
    pieces: list[tuple[int, int]], chosen: list[tuple[int, int]]
) -> None:
    storage = MemoryStorage()
    for seed, (first, stop) in enumerate(pieces):
        store_segment(storage, [numbered(5, first, stop)], {5: 4}, seed=seed)
    found = discover(storage, manifest(5)).ledgers
    extents = [extent for of in found for extent in of.extents]
    assert [(extent.first, extent.last) for extent in extents] == chosen
    assert read(storage, manifest(5)) == (entries(5, 0, 4), [])


@pytest.mark.parametrize(
    ("pieces", "listed", "lost"),
    [
        pytest.param([(2, 4)], {}, [(0, 1)], id="at the beginning"),
        pytest.param([(0, 1), (3, 4)], {}, [(1, 2)], id="in the middle"),
        pytest.param(
            [(0, 2)], {"isOffloaded": True, "entries": 4}, [(2, 3)], id="at the end"
        ),
        pytest.param([(0, 2)], {"entries": 4}, [], id="at the end, not offloaded yet"),
    ],
)
def test_entries_in_no_segment_are_lost(
    pieces: list[tuple[int, int]],
    listed: dict[str, object],
    lost: list[tuple[int, int]],
) -> None:
    storage = MemoryStorage()
    for seed, (first, stop) in enumerate(pieces):
        # Another ledger after it: so the index says where this one ends.
        ends = [numbered(5, first, stop), numbered(50 + seed, 0, 1)]
        store_segment(storage, ends, {5: stop, 50 + seed: 1}, seed=seed)
    options = manifest(5, **listed)
    losses = discover(storage, {**options, **LENIENT}).losses
    assert [(loss.ledger, loss.first, loss.last) for loss in losses] == [
        (5, first, last) for first, last in lost
    ]
    if lost:
        first, last = lost[0]
        with pytest.raises(SourceError, match=f"entries {first} to {last} of ledger 5"):
            discover(storage, options)


def test_of_a_broken_segment_what_is_stored_is_read() -> None:
    storage = MemoryStorage()
    store_segment(storage, [numbered(5, 0, 2), numbered(6, 0, 2)], {5: 2, 6: 4})
    key = store_segment(
        storage, [numbered(6, 2, 4), numbered(7, 0, 1)], {6: 4, 7: 1}, seed=1
    )
    storage.put(key, storage.get(f"memory://bucket/{key}").data[:-1])
    with pytest.raises(SourceError, match=f"{key} at byte .*, as its index says"):
        discover(storage, manifest(5, 6, 7))
    options = {**manifest(5, 6, 7), **LENIENT}
    snapshot = discover(storage, options)
    lost = [(loss.ledger, loss.first, loss.last) for loss in snapshot.losses]
    assert lost == [(7, 0, 0)]
    assert read(storage, options)[0] == [*entries(5, 0, 2), *entries(6, 0, 4)]


def test_a_segment_that_is_longer_than_its_index_says() -> None:
    storage = MemoryStorage()
    key = store_segment(
        storage, [numbered(5, 0, 2), numbered(6, 0, 2, padding=99)], {5: 2, 6: 4}
    )
    storage.put(key, storage.get(f"memory://bucket/{key}").data + b"more")
    options = {**manifest(5, 6), **LENIENT}
    (loss,) = discover(storage, options).losses
    assert (loss.entries, loss.uri) == (
        "all entries from 6:2 on",
        f"{storage.root}/{key}",
    )
    assert read(storage, options)[0] == [*entries(5, 0, 2), *entries(6, 0, 2)]


def test_a_broken_segment_beside_a_whole_one_does_no_harm() -> None:
    storage = MemoryStorage()
    blocks = [numbered(5, 0, 2), numbered(6, 0, 2)]
    key = store_segment(storage, blocks, {5: 2, 6: 2})
    store_segment(storage, blocks, {5: 2, 6: 2}, seed=1)
    storage.remove(key)
    values, _ = read(storage, manifest(5, 6))
    assert values == [*entries(5, 0, 2), *entries(6, 0, 2)]


class FailingStorage(MemoryStorage):
    """Deletes an object as soon as it is to be read."""

    doomed = ""

    def open(self, object_id: ObjectId, offset: int, size_bytes: int) -> MemoryStream:
        if object_id.uri.endswith(self.doomed) and self.doomed:
            self.remove(self.doomed)
            self.remove(f"{self.doomed}-index")
            self.doomed = ""
        return super().open(object_id, offset, size_bytes)


def test_a_segment_that_is_deleted_meanwhile() -> None:
    storage = FailingStorage()
    store_segment(storage, [numbered(5, 0, 3)], {5: 5})
    storage.doomed = store_segment(storage, [numbered(6, 0, 3)], {6: 4}, seed=77)
    assert [found.ledger.id for found in discover(storage, manifest(5, 6)).ledgers] == [
        5
    ]


def test_an_unreadable_index_could_be_of_any_topic() -> None:
    storage = store(list(numbered(4, 0, 3).entries), ledger=4)
    key = store_segment(storage, [numbered(5, 0, 2)], {5: 2})
    index = storage.get(f"memory://bucket/{key}-index").data
    storage.put(f"{key}-index", index[:-1])
    broken = f"{key}-index at byte 24: expected .*, found ledger 5"
    with pytest.raises(SourceError, match=broken):
        discover(storage, {})
    with pytest.raises(SourceError, match=r"entries 0 to 1 of ledger 5"):
        discover(storage, manifest(4, 5, isOffloaded=True, entries=2))
    assert len(discover(storage, LENIENT).losses) == 1
    # With a manifest it is known to be nothing that is missed.
    assert read(storage, manifest(4))[0] == entries(4, 0, 3)


GOOD = numbered(5, 0, 6)


def with_data(data: bytes) -> MemoryStorage:
    """A segment whose data were damaged after they were stored."""
    storage = MemoryStorage()
    key = store_segment(storage, [GOOD], {5: 6}, closed=False)
    storage.put(key, data)
    return storage


@pytest.mark.parametrize(
    ("at", "format_", "value", "message"),
    [
        (0, ">I", 0xFBDBABCB, "0xfbdbabcb"),
        (4, ">q", 1 << 40, "of 1099511627776 bytes"),
        (12, ">q", -1, "block of -1 bytes"),
        (20, ">q", 1, "from entry 1"),
        (28, ">q", 6, "of ledger 6"),
    ],
)
def test_a_block_header_that_is_not_as_the_index_says(
    at: int, format_: str, value: int, message: str
) -> None:
    data = bytearray(GOOD.encode())
    struct.pack_into(format_, data, at, value)
    values, losses = read(with_data(bytes(data)), manifest(5))
    assert values == []
    (loss,) = losses
    assert (loss.ledger, loss.first, loss.last, loss.offset) == (5, 0, 5, 0)
    assert message in loss.found
    assert "0x26a66d32" in loss.expected


@given(st.integers(0, len(GOOD.encode()) - 1), st.binary(min_size=1, max_size=16))
def test_any_damage_leaves_every_entry_delivered_or_lost(at: int, new: bytes) -> None:
    data = GOOD.encode()
    storage = with_data((data[:at] + new + data[at + len(new) :])[: len(data)])
    rows, losses = read_topic(CONNECTOR, storage, TOPIC, manifest(5), run_bytes=150)
    seen = {row["__entryId"] for row in rows}
    lost = {at for loss in losses for at in range(loss.first, loss.last + 1)}
    assert seen | lost == set(range(6))
    assert not seen & lost


def test_a_missing_end_is_reported_when_it_is_read() -> None:
    """A frame of another entry is no end: what may follow it is lost, not left out."""
    storage = MemoryStorage()
    wrong = Block(5, 7, (b"x" * 50,)).encode()[128:]
    block = Block(5, 0, numbered(5, 0, 3).entries, len(wrong))
    key = store_segment(storage, [block], {5: 6})
    storage.put(key, block.encode()[: -len(wrong)] + wrong)
    values, losses = read(storage, manifest(5))
    assert values == entries(5, 0, 3)
    assert [(loss.first, loss.last) for loss in losses] == [(3, 5)]
    assert "a frame of entry 7" in losses[0].found


def test_what_a_gap_and_a_broken_segment_have_in_common_is_lost_once() -> None:
    storage = MemoryStorage()
    key = store_segment(storage, [numbered(5, 0, 3)], {5: 6})
    store_segment(storage, [numbered(5, 3, 6)], {5: 6}, seed=1)
    storage.remove(key)
    options = manifest(5, isOffloaded=True, entries=6)
    (loss,) = discover(storage, {**options, **LENIENT}).losses
    assert (loss.first, loss.last) == (0, 2)
    assert key in loss.uri


def test_a_block_without_a_known_end_hides_no_segment_after_it() -> None:
    """By its index it might have all entries that are left."""
    storage = MemoryStorage()
    blocks = [numbered(5, 0, 3), numbered(5, 3, 4, padding=99)]
    key = store_segment(storage, blocks, {5: 6})
    store_segment(storage, [numbered(5, 4, 6)], {5: 6}, seed=1)
    data = bytearray(storage.get(f"memory://bucket/{key}").data)
    data[len(blocks[0].encode())] ^= 1
    storage.put(key, bytes(data), {"s3managedledgeroffloaderformatversion": "1"})
    values, losses = read(storage, {**manifest(5), **LENIENT})
    assert values == entries(5, 0, 3) + entries(5, 4, 6)
    assert [(loss.first, loss.last) for loss in losses] == [(3, 3)]
