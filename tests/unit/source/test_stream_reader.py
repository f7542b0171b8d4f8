"""The batches of a stream, while its topics grow and are trimmed."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from sparkcache import connector as connectors
from sparkcache.errors import ConfigError, SourceError
from sparkcache.model import UNKNOWN_END, Loss, Position
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.options import ScanOptions
from sparkcache.source.streaming import stream_offsets
from tests.unit.source.stream_world import (
    ALL,
    MESSAGES,
    TOPIC,
    World,
    all_of,
    batches,
    entries,
)


def test_all_there_is_in_one_batch(world: World) -> None:
    world.offload(3, 7)
    world.offload(5, 9)
    reader = world.reader()
    start, end = batches(reader, reader.initialOffset())
    assert start == {TOPIC: {"0": 0}}
    assert end == {TOPIC: {"0": 0, "3": 7, "5": 9}}
    assert entries(reader, start, end) == all_of((3, 7), (5, 9))
    assert reader.partitions(end, end) == []
    assert reader.reportLatestOffset() == {TOPIC: {"3": 7, "5": 9}}


@pytest.mark.parametrize("order", [(3, 5, 9), (9, 5, 3), (5, 9, 3)], ids=str)
def test_ledgers_come_in_any_order(world: World, order: tuple[int, ...]) -> None:
    world.offload(order[0], 4)
    reader = world.reader()
    offset = reader.initialOffset()
    for ledger in order:
        world.offload(ledger, 4)
        start, offset = batches(reader, offset)
        assert entries(reader, start, offset) == all_of((ledger, 4))


def test_several_ledgers_apart_from_each_other(world: World) -> None:
    world.offload(5, 4)
    reader = world.reader()
    offset = batches(reader, reader.initialOffset())[-1]
    for ledger in (2, 3, 7, 9):
        world.offload(ledger, 4)
    start, end = batches(reader, offset)
    assert entries(reader, start, end) == all_of((2, 4), (3, 4), (7, 4), (9, 4))


def test_a_start_is_kept_to(world: World) -> None:
    world.offload(3, 7)
    world.offload(5, 7)
    reader = world.reader(startingOffsets="5:4")
    start, end = batches(reader, reader.initialOffset())
    assert entries(reader, start, end) == [(5, 4), (5, 5), (5, 6)]
    world.offload(4, 7)
    assert batches(reader, end) == [end]


def test_a_start_after_everything_stored(world: World) -> None:
    world.offload(3, 7)
    reader = world.reader(startingOffsets="latest")
    start = reader.initialOffset()
    assert batches(reader, start) == [start]
    world.offload(5, 7)
    assert entries(reader, *batches(reader, start)) == all_of((5, 7))
    options = {"path": "/bucket", "topic": TOPIC, "startingOffsets": "latest"}
    scan = ScanOptions.parse(options)
    with pytest.raises(ConfigError, match="startingOffsets='latest'"):
        scan.check_is_batch()


@pytest.mark.parametrize("missing", ["4:3", "99:0"])
def test_a_start_in_a_missing_ledger_or_entry(world: World, missing: str) -> None:
    world.offload(3, 7)
    world.offload(5, 7)
    reader = world.reader(startingOffsets=missing)
    world.offload(100, 2)
    start, end = batches(reader, reader.initialOffset())
    later = [(5, 7), (100, 2)] if missing == "4:3" else [(100, 2)]
    assert entries(reader, start, end) == all_of(*later)


@pytest.mark.parametrize(
    "options",
    [
        {"maxBytesPerTrigger": "2k"},
        {"maxBytesPerTrigger": "1"},
        {"maxRowsPerTrigger": "12"},
        {"maxRowsPerTrigger": "1"},
        {"maxRowsPerTrigger": "40", "maxBytesPerTrigger": "3k"},
        {"maxRowsPerTrigger": "12", "runBytes": "2m"},
    ],
    ids=str,
)
def test_limited_batches_read_each_entry_once(
    world: World, options: dict[str, str]
) -> None:
    world.offload(3, 17)
    world.offload(5, 9)
    reader = world.reader(**options)
    offsets = batches(reader, reader.initialOffset(), reader.getDefaultReadLimit())
    assert len(offsets) > 4
    found = []
    for start, end in pairwise(offsets):
        read = entries(world.reader(), start, end)
        most = int(options.get("maxRowsPerTrigger", 1000))
        assert len(read) * MESSAGES <= max(most, MESSAGES)
        found += read
    assert found == all_of((3, 17), (5, 9))
    assert len(batches(reader, offsets[0])) == 2  # without a limit, one batch has all


def test_a_batch_ends_where_a_run_does(world: World) -> None:
    world.offload(3, 40)
    reader = world.reader(maxBytesPerTrigger="3k")
    runs = connectors.find("pulsar").runs
    extents = next(iter(reader._list().snapshots.values())).ledgers[0].extents
    ends = {run.last + 1 for extent in extents for run in runs(extent, 1024)}
    offsets = batches(reader, reader.initialOffset(), ReadMaxBytes(3 << 10))
    assert len(offsets) > 4
    for offset in offsets[1:]:
        assert int(str(offset[TOPIC]["3"]).split()[0]) in ends


def test_a_limit_is_shared_by_what_is_left(world: World) -> None:
    parts = [f"{TOPIC}-partition-{number}" for number in range(2)]
    world.offload(3, 30, parts[0])
    world.offload(4, 10, parts[1])
    reader = world.reader(maxRowsPerTrigger="40")
    start = reader.initialOffset()
    read = entries(reader, start, reader.latestOffset(start, ALL))
    assert len(read) == 40
    limit = reader.getDefaultReadLimit()
    read = entries(reader, start, reader.latestOffset(start, limit))
    assert [sum(ledger == id_ for ledger, _ in read) for id_ in (3, 4)] == [6, 2]


def test_partitions_that_a_topic_gains_are_read_from_their_beginning(
    world: World,
) -> None:
    parts = [f"{TOPIC}-partition-{number}" for number in range(2)]
    world.offload(3, 4, parts[0])
    reader = world.reader(startingOffsets="3:2")
    offset = reader.latestOffset(reader.initialOffset(), ALL)
    world.offload(2, 4, parts[1])
    start, end = batches(reader, offset)
    assert entries(reader, start, end) == all_of((2, 4))


def test_now_is_when_the_query_began(world: World) -> None:
    world.offload(3, 4)
    reader = world.reader()
    reader.prepareForTriggerAvailableNow()
    world.offload(5, 4)
    start, end = batches(reader, reader.initialOffset())
    assert entries(reader, start, end) == all_of((3, 4))


def test_a_ledger_that_grows_while_a_query_begins(world: World) -> None:
    world.offload(3, 4)
    reader = world.reader(startingOffsets="latest")
    reader.prepareForTriggerAvailableNow()
    world.offload(3, 9)
    (end,) = batches(reader, reader.initialOffset())
    assert entries(reader, end, batches(world.reader(), end)[-1]) == [
        (3, entry) for entry in range(4, 9)
    ]


def test_a_first_batch_that_is_read_again_once_a_ledger_has_grown(world: World) -> None:
    world.offload(3, 4)
    first = world.reader(startingOffsets="latest")
    (end,) = batches(first, first.initialOffset())
    world.offload(3, 9)
    reader = world.reader(startingOffsets="latest")
    assert entries(reader, reader.initialOffset(), end) == []
    assert entries(reader, *batches(reader, end)) == [
        (3, entry) for entry in range(4, 9)
    ]


def test_what_was_read_may_be_trimmed(world: World) -> None:
    for ledger in (3, 5, 7):
        world.offload(ledger, 4)
    offset = batches(world.reader(), world.reader().initialOffset())[-1]
    for ledger in (3, 5):
        world.trim(ledger)
    world.offload(9, 4)
    reader = world.reader()
    start, end = batches(reader, offset)
    assert entries(reader, start, end) == all_of((9, 4))
    assert end == {TOPIC: {"5": 4, "7": 4, "9": 4}}
    for ledger in (7, 9):
        world.trim(ledger)
    assert batches(world.reader(), end) == [end]
    world.offload(11, 4)
    assert batches(world.reader(), end)[-1] == {TOPIC: {"9": 4, "11": 4}}


@pytest.mark.parametrize("others", [(), (5,)], ids=["to the last", "others are left"])
def test_a_loss_by_trimming_is_reported(
    world: World, others: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    for ledger in (3, *others):
        world.offload(ledger, 20)
    reader = world.reader(maxBytesPerTrigger="2k")
    offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    read = len(entries(reader, reader.initialOffset(), offset))
    assert 0 < read < 20
    assert offset[TOPIC]["3"] == f"{read} of 20"
    world.trim(3)
    with pytest.raises(SourceError, match=f"entries 3:{read}-19; failOnDataLoss"):
        world.reader().latestOffset(offset, ALL)
    reader = world.reader(failOnDataLoss="false")
    start, *ends = batches(reader, offset)
    found = [entry for end in ends for entry in entries(reader, start, end)]
    assert found == all_of(*((ledger, 20) for ledger in others))
    assert caplog.text.count(f"entries 3:{read}-19 lost") == 1


def test_the_first_task_of_the_next_batch_reports_what_was_trimmed(
    world: World,
) -> None:
    for ledger in (3, 5):
        world.offload(ledger, 20)
    reader = world.reader(maxBytesPerTrigger="2k")
    offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    read = len(entries(reader, reader.initialOffset(), offset))
    world.trim(3)
    reader = world.reader(failOnDataLoss="false", minPartitions="4")
    end = reader.latestOffset(offset, ALL)
    first, *others = [part.partition for part in reader.partitions(offset, end)]
    assert others
    (reported,) = first.report.losses
    assert reported.topic == first.consumer.topic
    assert reported.loss.entries == f"entries 3:{read}-19"
    assert not any(other.report for other in others)


@pytest.mark.parametrize("trimmed", [(5,), (3, 5), (3, 5, 9)], ids=str)
def test_a_ledger_that_was_seen_and_not_begun_is_not_lost_in_silence(
    world: World, trimmed: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    for ledger in (3, 5, 9):
        world.offload(ledger, 20)
    reader = world.reader(maxBytesPerTrigger="2k")
    begin = reader.initialOffset()
    offset = reader.latestOffset(begin, reader.getDefaultReadLimit())
    read = entries(reader, begin, offset)
    assert offset[TOPIC] == {
        "0": 0,
        "3": f"{len(read)} of 20",
        "5": "0 of 20",
        "9": "0 of 20",
    }
    for ledger in trimmed:
        world.trim(ledger)
    for again in (reader, world.reader()):
        with pytest.raises(SourceError, match="a stream has not read yet"):
            again.latestOffset(offset, ALL)
    left = world.reader(failOnDataLoss="false")
    start, *ends = batches(left, offset)
    found = [entry for end in ends for entry in entries(left, start, end)]
    every = all_of((3, 20), (5, 20), (9, 20))
    kept = [entry for entry in every if entry[0] not in trimmed]
    assert found == [entry for entry in kept if entry not in read]
    assert caplog.text.count("entries 5:0-19 lost") == 1


def test_an_upload_in_progress_is_not_there_yet_and_lost_if_it_takes_too_long(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.offload(3, 4)
    reader = world.reader(failOnDataLoss="false")
    strict = world.reader()
    offset = batches(reader, reader.initialOffset())[-1]
    world.offload(5, 4)
    index = world.hide_index(5)
    assert batches(reader, offset) == batches(strict, offset) == [offset]
    assert not caplog.records

    world.age(5, hours=2)
    assert batches(reader, offset) == batches(reader, offset) == [offset]
    assert caplog.text.count("all entries of ledger 5 lost") == 1
    with pytest.raises(SourceError, match="an index of these data"):
        strict.latestOffset(offset, ALL)

    world.offload(9, 4)
    start, end = batches(reader, offset)
    assert entries(reader, start, end) == all_of((9, 4))
    world.show_index(index)
    start, end = batches(reader, end)
    assert entries(reader, start, end) == all_of((5, 4))
    assert caplog.text.count(" lost: ") == 1


def test_losses_of_a_snapshot_are_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for ledger in (3, 5, 9):
        world.offload(ledger, 20)
    index = world.index_of(5)
    index.write_bytes(index.read_bytes()[:-8] + bytes(8))  # the offset of a block
    reader = world.reader(failOnDataLoss="false", maxBytesPerTrigger="4k")
    offsets = batches(reader, reader.initialOffset(), ReadMaxBytes(4 << 10))
    assert len(offsets) > 4
    read = [
        entry
        for start, end in pairwise(offsets)
        for entry in entries(reader, start, end)
    ]
    kept = sum(ledger == 5 for ledger, _ in read)
    assert 0 < kept < 20
    assert read == all_of((3, 20), (5, kept), (9, 20))
    assert caplog.text.count(f"entries 5:{kept}-19 lost") == 1


@pytest.mark.parametrize(
    ("loss", "is_reported"),
    [
        pytest.param((2, 0, UNKNOWN_END), False, id="before the stream"),
        pytest.param((3, 0, UNKNOWN_END), False, id="a ledger that was read"),
        pytest.param((3, 0, 6), False, id="entries that were read"),
        pytest.param((3, 7, UNKNOWN_END), True, id="what follows them"),
        pytest.param((5, 0, 3), True, id="some that were not"),
        pytest.param((4, 0, UNKNOWN_END), True, id="a ledger between"),
        pytest.param((9, 0, UNKNOWN_END), True, id="a ledger after them"),
        pytest.param((-1, 0, UNKNOWN_END), True, id="an unknown ledger"),
    ],
)
def test_losses_that_concern_a_stream(
    loss: tuple[int, int, int], is_reported: bool
) -> None:
    marks = stream_offsets.parse({TOPIC: {"3": 7, "5": "2 of 9"}})[TOPIC]
    losses = [Loss("u", 0, *loss, "something", "nothing")]
    assert stream_offsets.unread_losses(marks, losses) == losses * is_reported


def test_ledgers_whose_beginning_has_expired() -> None:
    queues = [
        stream_offsets.EntrySpan(0, 500, 900),
        stream_offsets.EntrySpan(1, 300, 400),
    ]
    begin = stream_offsets.beginning(None, queues)
    assert stream_offsets.lost(begin, queues, "queue") == []
    first = [stream_offsets.EntrySpan(0, 500, 600)]
    end = stream_offsets.advanced(begin, queues, first)
    read = stream_offsets.between(begin, end)
    assert stream_offsets.joined(read, queues) == [(Position(0, 500), Position(0, 600))]
    assert stream_offsets.unread(end, queues) == [
        stream_offsets.EntrySpan(0, 600, 900),
        stream_offsets.EntrySpan(1, 300, 400),
    ]
    assert stream_offsets.lost(end, queues, "queue") == []
    gone = [
        stream_offsets.EntrySpan(0, 500, 900),
        stream_offsets.EntrySpan(1, 350, 400),
    ]
    (loss,) = stream_offsets.lost(end, gone, "queue")
    assert (loss.ledger, loss.first, loss.last) == (1, 300, 349)


def test_a_topic_that_is_gone_altogether(world: World) -> None:
    world.offload(3, 20)
    reader = world.reader(maxBytesPerTrigger="2k")
    offsets = batches(reader, reader.initialOffset(), reader.getDefaultReadLimit())
    world.trim(3)
    reader = world.reader()
    reader.prepareForTriggerAvailableNow()
    assert batches(reader, offsets[-1]) == offsets[-1:]
    with pytest.raises(SourceError, match="a stream has not read yet"):
        reader.latestOffset(offsets[1], ALL)


def test_a_batch_whose_ledger_is_gone_is_reported(world: World) -> None:
    world.offload(3, 4)
    world.offload(5, 4)
    reader = world.reader()
    start, end = batches(reader, reader.initialOffset())
    world.trim(3)
    with pytest.raises(SourceError, match="entries 3:0-3"):
        world.reader().partitions(start, end)
    left = world.reader(failOnDataLoss="false")
    assert entries(left, start, end) == all_of((5, 4))


def test_the_plan_of_a_stream_has_no_end(world: World) -> None:
    world.offload(5, 4)
    reader = world.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    (first, *_) = reader.partitions(start, end)
    ((consumer),) = first.stream.consumers
    assert (consumer.start, consumer.end) == (Position(5, 0), None)
    world.offload(3, 4)
    world.offload(7, 4)
    (late, *_) = reader.partitions(end, reader.latestOffset(end, ALL))
    assert (late.stream.id, late.stream.batch) == (first.stream.id, 4)
    ranges = [(consumer.start, consumer.end) for consumer in late.stream.consumers]
    assert ranges == [
        (Position(3, 0), Position(3, 4)),
        (Position(7, 0), None),
    ]


@pytest.mark.parametrize(
    ("marks", "reached"),
    [
        ({"0": 0}, "0:0"),
        ({"3": 24, "9": 12}, "9:12"),
        ({"3": 24, "5": "7 of 24", "9": 12}, "5:7"),
        ({"3": "7 of 24", "5": "0 of 24"}, "3:7"),
        ({"3": 24, "5": "0 of 24"}, "5:0"),
    ],
    ids=[
        "nothing",
        "all there was",
        "not all of what came late",
        "not all, and more was seen",
        "more was seen",
    ],
)
def test_how_far_a_stream_has_come(marks: Any, reached: str) -> None:
    (topic_marks,) = stream_offsets.parse({TOPIC: marks}).values()
    assert str(stream_offsets.reached(topic_marks)) == reached


def test_options_of_the_other_kind() -> None:
    options = {"path": "/bucket", "topic": TOPIC}
    with pytest.raises(ConfigError, match=r"endingOffsets.*spark\.read;"):
        ScanOptions.parse({**options, "endingOffsets": "3:4"}).check_is_stream()
    with pytest.raises(ConfigError, match=r"maxRowsPerTrigger.*readStream"):
        ScanOptions.parse({**options, "maxRowsPerTrigger": "3"}).check_is_batch()
    for option in ("maxRowsPerTrigger", "maxBytesPerTrigger", "pollInterval"):
        with pytest.raises(ConfigError, match=option):
            ScanOptions.parse({**options, option: "-3"})


def test_an_option_of_batches_fails_at_each_call_of_a_stream(world: World) -> None:
    options = {"path": str(world.directory), "topic": TOPIC, "endingTime": "0"}
    source = SparkCacheSource(options)
    reader = source.streamReader(source.schema())
    for call in (
        reader.initialOffset,
        partial(reader.latestOffset, {}, ReadAllAvailable()),
        partial(reader.partitions, {}, {}),
    ):
        with pytest.raises(ConfigError, match=r"endingTime='0'.*spark\.read;"):
            call()


def test_a_missing_topic(world: World) -> None:
    with pytest.raises(ConfigError, match="no offloaded ledger matches"):
        world.reader().initialOffset()
