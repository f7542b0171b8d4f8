"""Indexes of large batches, which tasks look up instead of taking them along."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from sparkcache.source.streaming import batches
from tests.unit.source.stream_world import ALL

if TYPE_CHECKING:
    from sparkcache.source.streaming.batches import StreamPartition
    from sparkcache.source.streaming.stream_reader import StreamReader
    from tests.unit.source.stream_world import World

LEDGERS = 60


@pytest.fixture
def world(world: World) -> World:
    """A topic of sixty ledgers."""
    for ledger in range(LEDGERS):
        world.offload(ledger, 20)
    return world


def first_batch(reader: StreamReader) -> list[StreamPartition]:
    start = reader.initialOffset()
    return reader.partitions(start, reader.latestOffset(start, ALL))


def test_a_large_index_is_looked_up_and_is_the_same(world: World) -> None:
    with_index = first_batch(world.reader(partitionBytes="16k"))
    index = with_index[0].shared.index
    assert index is not None
    reader = world.reader(partitionBytes="4k")
    parts = first_batch(reader)
    assert len(parts) * len(with_index[0].shared.packed()) > batches._MAX_SHARED_BYTES
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    in_task = pickle.loads(pickle.dumps(reader))
    opened = [each.unpacked(in_task._dictionary) for each in sent]
    assert [each.shared.index for each in opened] == [None] * len(parts)
    looked_up = in_task._looked_up(opened[0])
    assert looked_up.extents() == index.extents()
    assert tuple(looked_up.losses()) == tuple(index.losses())


def test_a_partition_that_looks_its_index_up_costs_less_than_a_kilobyte(
    world: World,
) -> None:
    parts = first_batch(world.reader(partitionBytes="4k"))
    assert max(len(pickle.dumps(part)) for part in parts) < 1024


def test_a_batch_looks_once_and_the_next_one_looks_again(world: World) -> None:
    reader = world.reader(partitionBytes="4k")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    first = reader.partitions(start, end)[0]
    before = reader._looked_up(first).extents()
    world.offload(LEDGERS, 20)
    assert reader._looked_up(first).extents() == before
    later = reader.partitions(end, reader.latestOffset(end, ALL))[0]
    assert len(reader._looked_up(later).extents()) > len(before)
