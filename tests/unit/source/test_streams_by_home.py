"""How batches of a stream are cut into partitions, whose extents have one home."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes

from sparkcache.homes import Cluster
from sparkcache.source.streaming.batches import open_in_python
from tests.unit.source.stream_world import ALL, batches
from tests.unit.source.test_cut_by_home import FOUR, home_of_each_extent, planned

if TYPE_CHECKING:
    from sparkcache.homes import Executor
    from sparkcache.source.streaming.batches import StreamPartition
    from sparkcache.source.streaming.stream_reader import StreamReader
    from tests.unit.source.stream_world import World

LEDGERS = 12
EXTENTS = 4 * LEDGERS
LIMIT_BYTES = 16 << 10


@pytest.fixture
def world(world: World) -> World:
    """A topic of twelve ledgers with four extents each."""
    for ledger in range(LEDGERS):
        world.offload(ledger, 20)
    return world


def stream(world: World, **options: Any) -> StreamReader:
    return world.reader(
        maxBytesPerTrigger=str(LIMIT_BYTES), partitionBytes="4k", **options
    )


def cut(
    reader: StreamReader, start: Any, end: Any, executors: tuple[Executor, ...] = FOUR
) -> list[StreamPartition]:
    """Cut a batch as the JVM asks for it."""
    sent = json.dumps([msgspec.to_builtins(Cluster(executors)), end])
    return reader.partitions(start, json.loads(sent))


def all_partitions(
    reader: StreamReader, start: Any = None, **given: Any
) -> list[StreamPartition]:
    """Return the partitions of all batches."""
    start = reader.initialOffset() if start is None else start
    offsets = batches(reader, start, ReadMaxBytes(LIMIT_BYTES))
    assert len(offsets) > 3
    return [
        part
        for begin, end in pairwise(offsets)
        for part in cut(reader, begin, end, **given)
    ]


def test_a_stream_and_a_scan_agree_on_homes(world: World) -> None:
    of_scan = home_of_each_extent(planned(world))
    of_stream = home_of_each_extent(all_partitions(stream(world)))
    assert len(of_stream) == EXTENTS
    assert of_stream == of_scan
    assert set(of_stream.values()) == {each.location for each in FOUR}


def test_a_batch_is_cut_as_a_scan_of_it(world: World) -> None:
    reader = stream(world)
    parts = cut(
        reader, start := reader.initialOffset(), reader.latestOffset(start, ALL)
    )
    of_scan = [(each.partition.home, each.partition.pieces) for each in planned(world)]
    assert [(one.partition.home, one.partition.pieces) for one in parts] == of_scan


def test_homes_stay_while_a_topic_grows(world: World) -> None:
    reader = stream(world)
    before = home_of_each_extent(all_partitions(reader))
    end = reader.reportLatestOffset()
    for ledger in range(LEDGERS, 2 * LEDGERS):
        world.offload(ledger, 20)
    later = home_of_each_extent(all_partitions(reader, end))
    again = home_of_each_extent(all_partitions(stream(world)))
    assert len(again) == len(before) + len(later) == 2 * EXTENTS
    assert again == before | later


def test_several_ranges_of_a_topic_have_the_homes_of_the_whole(world: World) -> None:
    reader = stream(world)
    start = reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, ALL)))
    (marks,) = end.values()
    read = {ledger: mark for ledger, mark in marks.items() if ledger in ("3", "7")}
    parts = cut(reader, {**start, next(iter(end)): read}, end)
    assert len({part.partition.consumer for part in parts}) == 3
    found = home_of_each_extent(parts)
    assert len(found) == 4 * (LEDGERS - 2)
    assert found.items() <= home_of_each_extent(planned(world)).items()


def test_an_executor_that_joins_between_two_batches(world: World) -> None:
    reader = stream(world)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    of_three = home_of_each_extent(cut(reader, start, end, FOUR[:3]))
    joined = (*FOUR[:3], replace(FOUR[3], joined=1))
    of_four = home_of_each_extent(cut(reader, start, end, joined))
    moved = {
        of_four[extent] for extent in of_four if of_four[extent] != of_three[extent]
    }
    assert moved == {FOUR[3].location}


@pytest.mark.parametrize("setting", ["homes", "enabled"])
def test_homes_can_be_turned_off(world: World, setting: str) -> None:
    reader = stream(world, **{setting: "false"})
    assert {part.partition.home for part in all_partitions(reader)} == {""}


def test_without_executors_there_are_no_homes(world: World) -> None:
    parts = all_partitions(stream(world), executors=())
    assert {part.partition.home for part in parts} == {""}


def test_without_the_jvm_there_are_no_homes(world: World) -> None:
    reader = stream(world)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ALL))
    assert {part.partition.home for part in parts} == {""}


def test_a_partition_arrives_in_python_as_it_was(world: World) -> None:
    reader = stream(world)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    for parts in (cut(reader, start, end), reader.partitions(start, end)):
        for part, arrived in zip(parts, in_tasks(parts), strict=True):
            arrived.partition.dictionary = part.partition.dictionary
            assert arrived.partition.__dict__ == part.partition.__dict__
            assert arrived.stream == part.stream
            assert arrived.shared.index is not None
            assert part.shared.index is not None
            assert arrived.shared.index.extents() == part.shared.index.extents()


def in_tasks(parts: list[StreamPartition]) -> list[StreamPartition]:
    """Return partitions as tasks unpickle them, with what the JVM has sent once."""
    shared: list[bytes] = []
    found = []
    for part in parts:
        sent = pickle.loads(pickle.dumps(part))
        if isinstance(sent, tuple):
            home, body, number, packed = sent
            assert home == part.partition.home
            assert bool(packed) is (number == len(shared))
            shared += [packed] if packed else []
            found.append(open_in_python(body, shared[number]))
        else:
            found.append(sent.unpacked(part.partition.dictionary))
    return found


def test_what_partitions_share_is_sent_once(world: World) -> None:
    reader = stream(world)
    start = reader.initialOffset()
    parts = cut(reader, start, reader.latestOffset(start, ALL))
    assert len(parts) > 10
    first, *others = [len(pickle.dumps(part)) for part in parts]
    assert max(others) < 500
    assert first > len(parts[0].shared.packed()) > 2 * max(others)
