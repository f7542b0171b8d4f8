"""A topic of a hundred entries, and readers of it."""

from __future__ import annotations

from sparkcache.demand import (
    Consumer,
    ExtentOffset,
    Forecast,
    PartitionRead,
    ReaderIdentity,
)
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey

TOPIC = "a"
RUNS = 100  # of one entry and 10 stored bytes each, in extents of 25
WHOLE = Consumer(TOPIC)


def key(entry: int, topic: str = TOPIC) -> RunKey:
    found = Ledger("test", topic, 0, ObjectId(f"mem://{topic}", 1, "v1"))
    return RunKey(found, Run(entry, entry))


def extents(first: int, stop: int, shift: float = 0.0) -> list[ExtentOffset]:
    """The extents that have any of the entries first..stop-1."""
    return [
        ExtentOffset(0, at, at + 24, at * 10.0 + shift, 250)
        for at in range(first // 25 * 25, stop, 25)
    ]


def reader(
    stage: int = 0,
    partition: int = 0,
    part: int | None = None,
    consumer: Consumer = WHOLE,
    scan: str = "s",
) -> ReaderIdentity:
    part = partition if part is None else part
    return ReaderIdentity(
        ReadToken(stage, partition, part), scan, consumer, RUNS * 10.0
    )


def opened(
    forecast: Forecast,
    first: int = 0,
    stop: int = RUNS,
    *plan_ids: str,
    who: ReaderIdentity | None = None,
) -> PartitionRead:
    return forecast.open(
        who or reader(),
        plan_ids,
        extents(first, stop),
        Position(0, first),
        Position(0, stop),
    )


def read(
    forecast: Forecast, partition_read: PartitionRead, first: int, stop: int
) -> None:
    for entry in range(first, stop):
        forecast.advance(partition_read, key(entry))


def until(forecast: Forecast, entry: int) -> float:
    return forecast.ticks_until_read(TOPIC, forecast.offset_of(key(entry)))


def is_like_new(forecast: Forecast) -> bool:
    """Whether it knows of no reader; where topics lie is remembered."""
    return not forecast._topics and not forecast._expected._active
