"""Runs that arrive damaged are requested again; those that are stored so are not."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sparkcache import connector as connectors
from sparkcache.fetch.checked_load import CheckedLoad
from sparkcache.fetch.load import Load, begin
from sparkcache.testing import MemoryStorage
from sparkcache.testing.reading import discover
from sparkcache_pulsar.testing import Entry, Message, ledger_objects

if TYPE_CHECKING:
    from sparkcache.connector import ByteStream, DecodedRun

TOPIC = "persistent://shop/eu/orders"
ENTRIES, VALUE_BYTES = 40, 1000
RUN_BYTES = 4 << 10


class Damaged:
    """A byte stream that changes the byte at an offset on its way."""

    def __init__(self, stream: ByteStream, offset: int, flip: int) -> None:
        self._stream = stream
        self._offset = offset
        self._flip = flip

    @property
    def position(self) -> int:
        return self._stream.position

    def read(self, size_bytes: int) -> bytes:
        begin = self.position
        data = bytearray(self._stream.read(size_bytes))
        if begin <= self._offset < begin + len(data):
            data[self._offset - begin] ^= self._flip
        return bytes(data)

    def close(self) -> None:
        self._stream.close()


class Way:
    """The way from a storage, which damages some responses.

    Args:
        damages: For each response, the offset of a damaged byte; None for none.

    """

    def __init__(self, damages: list[int | None]) -> None:
        self.storage = MemoryStorage()
        entries = [
            Entry((Message(bytes([entry]) * VALUE_BYTES),)).encode()
            for entry in range(ENTRIES)
        ]
        for stored in ledger_objects(TOPIC, 3, entries):
            self.storage.put(stored.key, stored.data, stored.metadata)
        self.damages = damages
        self.requested: list[Load] = []

    def request(self, load: Load) -> ByteStream:
        self.requested.append(load)
        stream = begin(self.storage, load)
        number = len(self.requested)
        offset = self.damages[number - 1] if number <= len(self.damages) else None
        return stream if offset is None else Damaged(stream, offset, number)

    def store_damaged(self, offset: int) -> None:
        (key,) = (
            stored.uri.removeprefix(f"{self.storage.root}/")
            for stored in self.storage.list()
            if not stored.uri.endswith("-index")
        )
        stored = self.storage.get(f"{self.storage.root}/{key}")
        data = bytearray(stored.data)
        data[offset] ^= 0xFF
        self.storage.put(key, bytes(data), stored.metadata)

    def read(self) -> list[DecodedRun]:
        connector = connectors.find("pulsar")
        (ledger_map,) = discover(connector, self.storage, TOPIC, {}).ledgers
        (extent,) = ledger_map.extents
        load = Load(
            ledger_map.ledger,
            extent,
            tuple(connector.runs(extent, RUN_BYTES)),
            extent.offset,
            extent.offset + extent.size_bytes,
        )
        checked = CheckedLoad(connector, load, self.request, 1 << 20)
        with closing(checked):
            return [checked.decode(raw) for raw in checked]


def values(runs: list[DecodedRun]) -> list[int]:
    """The entries that were read, by the first byte of their values."""
    return [
        value[0]
        for run in runs
        for batch in run.batches
        for value in batch["value"].to_pylist()
    ]


def lost(runs: list[DecodedRun]) -> list[int]:
    return [
        entry
        for run in runs
        for loss in run.losses
        for entry in range(loss.first, loss.last + 1)
    ]


@pytest.mark.parametrize(
    ("damages", "requests"),
    [
        pytest.param([], 1, id="nothing"),
        pytest.param([500], 2, id="in the first run"),
        pytest.param([25_000], 2, id="in the middle"),
        pytest.param([25_000, 26_000], 3, id="in two responses"),
        pytest.param([10_000, 25_000], 3, id="in two runs"),
    ],
)
def test_what_is_damaged_on_the_way_is_requested_again(
    damages: list[int | None], requests: int
) -> None:
    way = Way(damages)
    runs = way.read()
    assert values(runs) == list(range(ENTRIES))
    assert lost(runs) == []
    assert len(way.requested) == requests
    for first, second in zip(way.requested, way.requested[1:], strict=False):
        assert second.end == first.end
        assert len(second.runs) <= len(first.runs)


def test_only_the_rest_of_a_load_is_requested_again() -> None:
    way = Way([25_000])
    way.read()
    whole, rest = way.requested
    assert 25_000 - RUN_BYTES - 2 * VALUE_BYTES < rest.offset <= 25_000
    assert rest.runs == whole.runs[-len(rest.runs) :]


def test_what_is_stored_damaged_is_requested_once_more_in_a_load() -> None:
    way = Way([])
    for offset in (5_000, 15_000, 25_000):
        way.store_damaged(offset)
    runs = way.read()
    assert len(lost(runs)) == 3
    assert sorted(values(runs) + lost(runs)) == list(range(ENTRIES))
    assert len(way.requested) == 2


def test_what_arrives_damaged_each_time_is_lost_in_the_end() -> None:
    way = Way([25_000] * 9)
    runs = way.read()
    assert len(lost(runs)) == 1
    assert len(way.requested) == 3
