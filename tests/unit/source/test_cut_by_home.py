"""How topics are cut into partitions, whose extents have one home."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from sparkcache.homes import Cluster, Executor, Held, homes
from sparkcache.node.messages import OpenPartition
from sparkcache.node.opening import opened
from sparkcache.source.batch.jvm_partition import EXECUTORS, OPTION, JvmPartition
from sparkcache.source.datasource import SparkCacheSource
from tests.unit.source.stream_world import TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache.source.streaming.batches import StreamPartition
    from tests.unit.source.stream_world import World

OPTIONS = {"topic": TOPIC, "runBytes": "1k", "partitionBytes": "4k"}
FOUR = tuple(Executor(f"executor_host_{number}") for number in range(4))


@pytest.fixture
def world(world: World) -> World:
    """A topic of twelve ledgers with four extents each."""
    for ledger in range(12):
        world.offload(ledger, 20)
    return world


def planned(
    world: World,
    *,
    executors: tuple[Executor, ...] = FOUR,
    held: dict[int, Held] | None = None,
    **options: Any,
) -> Any:
    given = {OPTION: "{}", **OPTIONS, **options, "path": str(world.directory)}
    source = SparkCacheSource(given)
    schema = source.schema()
    cluster = msgspec.json.encode(Cluster(executors, held or {})).decode()
    schema.fields[0].metadata = {EXECUTORS: cluster}
    return source.reader(schema).partitions()


def home_of_each_extent(
    partitions: Iterable[JvmPartition | StreamPartition],
) -> dict[object, str]:
    """Return the homes; all parts of an extent have the same one."""
    found: dict[object, str] = {}
    for each in partitions:
        for piece in each.partition.pieces:
            extent = (piece.ledger, piece.extent)
            assert found.setdefault(extent, each.partition.home) == each.partition.home
    return found


def test_the_extents_of_a_partition_have_one_home(world: World) -> None:
    found = home_of_each_extent(planned(world))
    assert len(found) == 4 * 12
    assert set(found.values()) == {each.location for each in FOUR}


def test_homes_do_not_depend_on_what_a_query_reads(world: World) -> None:
    whole = home_of_each_extent(planned(world))
    part = home_of_each_extent(
        planned(world, startingOffsets="5:3", endingOffsets="9:0", partitionBytes="64k")
    )
    assert 0 < len(part) < len(whole)
    assert part.items() <= whole.items()


def test_every_entry_is_in_one_partition(world: World) -> None:
    read = []
    for number, each in enumerate(planned(world)):
        opening = opened(OpenPartition(each.planned, 1, number, {}))
        assert opening is not None
        read += list(opening.scan.keys())
    alone = []
    for number, each in enumerate(planned(world, executors=())):
        opening = opened(OpenPartition(each.planned, 1, number, {}))
        assert opening is not None
        alone += list(opening.scan.keys())
    assert len(set(read)) == len(read)
    assert set(read) == set(alone)


def test_partitions_are_not_larger_than_asked_for(world: World) -> None:
    for each in planned(world, partitionBytes="16k"):
        sizes = [piece.size_bytes for piece in each.partition.pieces]
        assert sum(sizes) <= 16 << 10 or len(sizes) == 1


def test_those_that_follow_are_the_next_ones_of_the_same_home(world: World) -> None:
    partitions = planned(world)
    for number, each in enumerate(partitions):
        later = [
            other.partition
            for other in partitions[number + 1 :]
            if other.partition.home == each.partition.home
        ]
        wanted = [(one.part, one.pieces[0]) for one in later[:4]]
        assert each.partition.following == wanted


def test_the_end_of_a_scan_is_that_of_its_last_extent(world: World) -> None:
    partitions = planned(world)
    pieces = [piece for each in partitions for piece in each.partition.pieces]
    last = max(pieces, key=lambda piece: piece.topic_offset)
    end = last.topic_offset + last.extent.size_bytes
    assert {each.partition.end for each in partitions} == {end}


@pytest.mark.parametrize("setting", ["homes", "enabled"])
def test_homes_can_be_turned_off(world: World, setting: str) -> None:
    options: dict[str, Any] = {setting: "false"}
    assert {each.partition.home for each in planned(world, **options)} == {""}


def test_without_executors_there_are_no_homes(world: World) -> None:
    assert {each.partition.home for each in planned(world, executors=())} == {""}


def test_homes_are_those_of_the_whole_topic(world: World) -> None:
    partitions = planned(world)
    pieces = [piece for each in partitions for piece in each.partition.pieces]
    by_offset = {piece.topic_offset: piece for piece in pieces}
    extents = [
        (piece.ledger, piece.extent)
        for _, piece in sorted(by_offset.items(), key=lambda item: item[0])
    ]
    wanted = homes(extents, Cluster(FOUR))
    found = home_of_each_extent(partitions)
    assert [found[extent] for extent in extents] == wanted


def test_the_jvm_reports_extents_and_their_parts(world: World) -> None:
    found: dict[int, float] = {}
    for each in planned(world):
        for key, parts in struct.iter_unpack("<QQ", each.extents()):
            found[key] = found.get(key, 0) + 1 / parts
    assert len(found) == 4 * 12
    assert {round(reads, 9) for reads in found.values()} == {1}


def test_a_part_of_an_extent_is_no_read_of_it(world: World) -> None:
    parts = set()
    for each in planned(world, startingOffsets="5:3", endingOffsets="5:4"):
        parts |= {number for _, number in struct.iter_unpack("<QQ", each.extents())}
    assert parts == {0}


def test_planned_reads_that_are_done_travel_to_the_home(world: World) -> None:
    keys = [
        key
        for each in planned(world)
        for key, _ in struct.iter_unpack("<QQ", each.extents())
    ]
    held = {key: Held("executor_host_2", 3) for key in keys[:5]}
    reads: dict[object, int] = {}
    for number, each in enumerate(planned(world, held=held)):
        opening = opened(OpenPartition(each.planned, 1, number, {}))
        assert opening is not None
        for part in opening.scan.slices:
            reads[part.ledger, part.extent] = part.reads
            if part.reads:
                assert each.partition.home == "executor_host_2"
    assert sorted(reads.values()) == [0] * (len(reads) - len(held)) + [3] * len(held)
