"""Small loads that are done together give what each would give by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkcache import connector as connectors
from sparkcache.errors import SourceError
from sparkcache.fetch.checked_load import CheckedLoad
from sparkcache.fetch.load import Load, begin
from sparkcache.fetch.run_statistics import run_statistics
from sparkcache.fetch.together import LoadedRun, fetch_all, load_all
from sparkcache.memory.encoded import EncodedRun, EncodedSmallRun
from sparkcache.testing import MemoryStorage
from sparkcache.testing.reading import discover
from sparkcache_pulsar.testing import Codec, Entry, Message, ledger_objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkcache.connector import DecodedRun

TOPIC = "persistent://shop/eu/orders"
LEDGERS = 6
BATCH_BYTES = 1 << 20
THIRD = 2


def messages(ledger: int) -> tuple[Message, ...]:
    return tuple(
        Message(
            bytes([ledger]) * 100 * (number + 1),
            key=f"k{ledger}" if ledger % 2 else None,
            properties=(("a", str(number)),) * (ledger % 3),
            event_time_ms=1_700_000_000_000 + ledger if ledger == 4 else None,
        )
        for number in range(ledger % 4 + 1)
    )


def entries(ledger: int) -> list[bytes]:
    """Batches and single messages, compressed or not."""
    single = Entry(messages(ledger)[:1], batched=False, sequence_id=ledger)
    batch = Entry(messages(ledger), codec=Codec.LZ4 if ledger % 2 else Codec.NONE)
    return [single.encode(), batch.encode(), single.encode()][: ledger % 3 + 1]


class Topic:
    """Small ledgers in a storage, and the loads that read them."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.names = []
        for ledger in range(1, LEDGERS + 1):
            data, index = ledger_objects(TOPIC, ledger, entries(ledger))
            self.names.append((data.key, data.data, data.metadata))
            for stored in (data, index):
                self.storage.put(stored.key, stored.data, stored.metadata)
        connector = connectors.find("pulsar")
        self.loads = [
            Load(
                each.ledger,
                extent,
                tuple(connector.runs(extent, 1 << 20)),
                extent.offset,
                extent.offset + extent.size_bytes,
            )
            for each in discover(connector, self.storage, TOPIC, {}).ledgers
            for extent in each.extents
        ]
        assert all(load.is_small for load in self.loads)

    def together(self) -> list[LoadedRun | SourceError]:
        fetched = fetch_all(self.storage, self.loads)
        return list(load_all(self.storage, self.loads, fetched, BATCH_BYTES))

    def alone(self, index: int) -> DecodedRun:
        load = self.loads[index]
        checked = CheckedLoad(
            connectors.find("pulsar"),
            load,
            lambda wanted: begin(self.storage, wanted),
            BATCH_BYTES,
        )
        return checked.decode(next(checked))

    def change(self, index: int, data: bytes) -> None:
        """Store other bytes as the version that was planned."""
        name, _, metadata = self.names[index]
        stored = self.storage.put(name, data, metadata)
        kept = self.storage._objects[stored.uri]
        planned = self.loads[index].ledger.object
        self.storage._objects[stored.uri] = type(kept)(
            planned, kept.metadata, data, kept.modified_ms
        )


def test_runs_are_those_of_loads_by_themselves() -> None:
    topic = Topic()
    connector = connectors.find("pulsar")
    for index, found in enumerate(topic.together()):
        assert isinstance(found, LoadedRun)
        alone = topic.alone(index)
        assert found.decoded.losses == alone.losses == ()
        assert [each.to_pylist() for each in found.decoded.batches] == [
            each.to_pylist() for each in alone.batches
        ]
        assert found.schema == alone.batches[0].schema
        assert found.statistics == run_statistics(connector, "", alone)
        small, whole = (
            kind(found.decoded, found.schema) for kind in (EncodedSmallRun, EncodedRun)
        )
        assert small.size_bytes == whole.size_bytes


def test_each_object_is_requested_once() -> None:
    topic = Topic()
    topic.storage.requests.clear()
    topic.together()
    assert topic.storage.requests["open"] == LEDGERS


def errors(found: list[LoadedRun | SourceError]) -> list[int]:
    return [index for index, each in enumerate(found) if isinstance(each, SourceError)]


def test_an_object_that_is_missing_fails_alone() -> None:
    topic = Topic()
    topic.storage.remove(topic.names[THIRD][0])
    assert errors(topic.together()) == [THIRD]


def test_an_object_that_was_changed_fails_alone() -> None:
    topic = Topic()
    name, data, metadata = topic.names[THIRD]
    topic.storage.put(name, data + b"more", metadata)
    assert errors(topic.together()) == [THIRD]


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(lambda data: data[:-40] + bytes(40), id="values"),
        pytest.param(lambda data: bytes(len(data)), id="everything"),
        pytest.param(lambda data: data[:128] + bytes(len(data) - 128), id="frames"),
    ],
)
def test_an_object_that_is_damaged_has_losses_alone(
    damaged: Callable[[bytes], bytes],
) -> None:
    topic = Topic()
    topic.change(THIRD, damaged(topic.names[THIRD][1]))
    for index, found in enumerate(topic.together()):
        assert isinstance(found, LoadedRun)
        assert bool(found.decoded.losses) == (index == THIRD)
        alone = topic.alone(index)
        assert found.decoded.losses == alone.losses
        assert [each.to_pylist() for each in found.decoded.batches] == [
            each.to_pylist() for each in alone.batches
        ]


def test_an_object_that_ends_early_fails_alone() -> None:
    topic = Topic()
    topic.change(THIRD, topic.names[THIRD][1][:-40])
    assert errors(topic.together()) == [THIRD]
