"""Streams that resume from a checkpoint after their topics or options changed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.errors import ConfigError, SourceError
from tests.unit.source.stream_world import ALL, TOPIC, World, all_of, batches, entries

if TYPE_CHECKING:
    from sparkcache.source.streaming.stream_reader import StreamReader

BILLS = "persistent://shop/eu/bills"
BOTH = {"topic": "", "topics": f"{TOPIC},{BILLS}"}
PATTERN = {"topic": "", "topicsPattern": "persistent://shop/eu/.*"}


def read(reader: StreamReader) -> Any:
    """Return the offset after everything stored."""
    return batches(reader, reader.initialOffset())[-1]


def test_a_topic_that_the_options_no_longer_mean(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.offload(3, 4)
    world.offload(4, 4, BILLS)
    offset = read(world.reader(**BOTH))
    world.offload(5, 4)
    world.offload(6, 4, BILLS)
    with pytest.raises(ConfigError, match=rf"offsets of {BILLS}, and option topic='"):
        world.reader().latestOffset(offset, ALL)
    reader = world.reader(failOnDataLoss="false")
    start, end = batches(reader, offset)
    assert entries(reader, start, end) == all_of((5, 4))
    assert caplog.text.count("these are left out") == 1
    assert entries(world.reader(**BOTH), *batches(world.reader(**BOTH), end)) == all_of(
        (6, 4)
    )


@pytest.mark.parametrize("pattern", [".*orders", ".*orders-partition-1", ".*"], ids=str)
def test_a_partition_that_is_gone_is_still_meant_by_a_pattern(
    world: World, pattern: str
) -> None:
    parts = [f"{TOPIC}-partition-{number}" for number in range(2)]
    world.offload(3, 4, parts[1])
    offset = read(world.reader(topic="", topicsPattern=pattern))
    world.trim(3)
    world.offload(4, 4, BILLS)
    reader = world.reader(topic="", topicsPattern=pattern)
    found = [(4, entry) for entry in range(4)] if pattern == ".*" else []
    ends = batches(reader, offset)[1:]
    assert [
        position for end in ends for position in entries(reader, offset, end)
    ] == found


def test_topics_that_are_added(world: World) -> None:
    world.offload(3, 4)
    offset = read(world.reader())
    with pytest.raises(ConfigError, match=f"topic='{BILLS}'"):
        world.reader(**BOTH).latestOffset(offset, ALL)
    world.offload(6, 4, BILLS)
    reader = world.reader(**BOTH)
    assert entries(reader, *batches(reader, offset)) == all_of((6, 4))


@pytest.mark.parametrize("is_bounded", [False, True], ids=["for ever", "now"])
def test_one_topic_is_gone_and_another_gains_a_partition(
    world: World, is_bounded: bool
) -> None:
    world.offload(3, 4)
    world.offload(4, 4, f"{BILLS}-partition-0")
    offset = read(world.reader(**BOTH))
    world.trim(3)
    world.offload(6, 4, f"{BILLS}-partition-1")
    reader = world.reader(**BOTH)
    if is_bounded:
        reader.prepareForTriggerAvailableNow()
    start, end = batches(reader, offset)
    world.offload(7, 4, BILLS)
    assert batches(reader, end) == [end] if is_bounded else batches(reader, end)[1:]
    assert entries(reader, start, end) == all_of((6, 4))


def test_a_pattern_that_nothing_matches_yet(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    reader = world.reader(**PATTERN)
    offset = reader.initialOffset()
    assert "topicsPattern='persistent://shop/eu/.*': nothing is there yet" in (
        caplog.text
    )
    assert batches(reader, offset) == [offset]
    world.offload(3, 4)
    assert entries(reader, *batches(reader, offset)) == all_of((3, 4))
    reader = world.reader(**PATTERN | {"topicsPattern": "no"}, startingOffsets="1:2")
    assert batches(reader, reader.initialOffset()) == [{}]


def test_offsets_of_topics_that_do_not_exist_yet(world: World) -> None:
    reader = world.reader(**PATTERN, startingOffsets=f'{{"{TOPIC}": "3:1"}}')
    with pytest.raises(ConfigError, match=f"{TOPIC} is not of this scan"):
        reader.initialOffset()


@pytest.mark.parametrize("offset", [{"orders": {"0": 23}}, {"reservoirVersion": 3}])
def test_a_checkpoint_of_another_source(world: World, offset: Any) -> None:
    world.offload(3, 4)
    with pytest.raises(ConfigError, match="give another checkpointLocation"):
        world.reader().latestOffset(offset, ALL)


def test_a_topic_that_was_recreated(world: World) -> None:
    """Where ledgers are queues, a recreated topic has the old ledger ids."""
    world.offload(3, 20)
    offset = read(world.reader())
    world.trim(3)
    world.offload(3, 5)
    with pytest.raises(SourceError, match=r"read again \(entries 3:5-19"):
        world.reader().latestOffset(offset, ALL)
    reader = world.reader(failOnDataLoss="false")
    start, end = batches(reader, offset)
    assert entries(reader, start, end) == all_of((3, 5))
    world.offload(4, 2)
    assert entries(reader, *batches(reader, end)) == all_of((4, 2))


def test_a_loss_while_a_batch_is_measured_is_reported_by_its_reader(
    world: World,
) -> None:
    world.offload(3, 20)
    reader = world.reader(maxRowsPerTrigger="10")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    world.trim(3)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    with pytest.raises(SourceError, match="entries 3:0-"):
        world.reader().partitions(start, end)


def test_a_stream_that_is_joined_with_itself_is_expected_twice(world: World) -> None:
    world.offload(3, 40)
    reader = world.reader(maxBytesPerTrigger="1k")
    limit = reader.getDefaultReadLimit()
    offsets = batches(reader, reader.initialOffset(), limit)
    found = []
    for start, end in pairwise(offsets):
        plans = [reader.partitions(start, end)[0].stream for _ in range(2)]
        found.append([(plan.batch, len(plan.consumers)) for plan in plans])
    assert found[:2] == [[(2, 1), (4, 2)], [(6, 2), (6, 2)]]
