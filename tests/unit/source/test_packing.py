"""Pieces that travel, and what a partition costs."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcache.model import Extent, Ledger, ObjectId
from sparkcache.source.batch.packing import (
    compressed,
    decompressed,
    dictionary_of,
    pack,
    unpack,
)
from sparkcache.source.batch.partitions import Piece
from sparkcache.source.datasource import SparkCacheSource
from tests.unit.source.stream_world import ALL, TOPIC

if TYPE_CHECKING:
    from tests.unit.source.stream_world import World

numbers = st.integers(0, 1 << 62)
small = st.integers(0, 1 << 30)


@dataclass(frozen=True, slots=True)
class Described(Extent):
    """An extent of a connector, with a field of its own."""

    note: str = ""


extents = st.one_of(
    st.builds(Extent, numbers, numbers, numbers, numbers),
    st.builds(
        Described,
        *(numbers, numbers, numbers, numbers),
        st.lists(st.tuples(small, small)).map(tuple),
        st.text(),
    ),
)
ledgers = st.builds(
    Ledger,
    *(st.sampled_from(["a", "b"]), st.text(), st.integers(-9, 1 << 62)),
    st.builds(ObjectId, st.text(), numbers, st.text()),
    st.text(),
)
pieces = st.builds(Piece, ledgers, extents, small, small, small, small)


@given(st.lists(pieces))
def test_pieces_are_what_they_were(given_pieces: list[Piece]) -> None:
    found = unpack(*pack(given_pieces))
    assert found == given_pieces
    assert [type(one.extent) for one in found] == [
        type(one.extent) for one in given_pieces
    ]


@given(st.binary(max_size=9000), st.binary(max_size=9000))
def test_what_is_compressed_with_a_dictionary(plain: bytes, sample: bytes) -> None:
    dictionary = dictionary_of(sample)
    assert len(dictionary) <= 4096
    assert decompressed(compressed(plain, dictionary), dictionary) == plain


@pytest.fixture
def world(world: World) -> World:
    """A topic of sixty ledgers."""
    for ledger in range(60):
        world.offload(ledger, 20)
    return world


def test_a_partition_of_many_ledgers_costs_less_than_a_kilobyte(world: World) -> None:
    options = {"path": str(world.directory), "topic": TOPIC, "runBytes": "1k"}
    source = SparkCacheSource({**options, "partitionBytes": "64k"})
    reader = source.reader(source.schema())
    _, *sizes = [len(pickle.dumps(each)) for each in reader.partitions()]
    assert len(sizes) > 5
    assert max(sizes) < 1024


def test_a_partition_of_a_stream_does_not_grow_with_the_topic(world: World) -> None:
    def partition_bytes() -> int:
        reader = world.reader(partitionBytes="16k")
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        cluster: dict[str, object] = {"executors": []}
        _, *others = reader.partitions(start, [cluster, end])
        return max(len(pickle.dumps(each)) for each in others)

    before = partition_bytes()
    for ledger in range(60, 180):
        world.offload(ledger, 20)
    assert partition_bytes() < 1.1 * before < 1024
