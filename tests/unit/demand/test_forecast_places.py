"""Where each entry lies among others, and how fast readers come near."""

from __future__ import annotations

from math import inf

import pytest

from sparkcache.demand import (
    ExtentOffset,
    Forecast,
    PartitionRead,
    Plan,
    ReaderIdentity,
)
from sparkcache.demand.speed import HALF_LIFE, Speed
from sparkcache.demand.topic_layout import TopicLayout
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey
from tests.unit.demand.forecast_cases import TOPIC, WHOLE


def test_entries_of_an_extent_are_taken_to_be_of_one_size() -> None:
    layout = TopicLayout()
    layout.learn([ExtentOffset(3, 10, 19, 500.0, 40)])
    assert layout.offset_of(Position(3, 10)) == 500.0
    assert layout.offset_of(Position(3, 15)) == 520.0
    assert layout.offset_of(Position(3, 20)) == 540.0


@pytest.mark.parametrize(
    ("ledger", "entry", "place"),
    [
        pytest.param(0, 0, 0.0, id="before all that is known"),
        pytest.param(3, 90, 540.0, id="after the end of an extent"),
        pytest.param(4, 0, 540.0, id="in a ledger between those known"),
        pytest.param(9, 0, 700.0, id="after all that is known"),
    ],
)
def test_what_is_unknown_lies_where_its_predecessor_ends(
    ledger: int, entry: int, place: float
) -> None:
    layout = TopicLayout()
    layout.learn(
        [ExtentOffset(5, 0, 9, 600.0, 100), ExtentOffset(3, 10, 19, 500.0, 40)]
    )
    assert layout.offset_of(Position(ledger, entry)) == place


def test_a_scan_planned_after_ledgers_were_trimmed_counts_from_elsewhere() -> None:
    layout = TopicLayout()
    layout.learn([ExtentOffset(1, 0, 9, 0.0, 100), ExtentOffset(2, 0, 9, 100.0, 100)])
    layout.learn([ExtentOffset(2, 0, 9, 0.0, 100), ExtentOffset(3, 0, 9, 100.0, 100)])
    assert layout.offset_of(Position(2, 0)) == 100.0
    assert layout.offset_of(Position(3, 0)) == 200.0


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        pytest.param([[2], [3], [4]], 300.0, id="one partition for each ledger"),
        pytest.param([[2, 3], [4]], 300.0, id="the last partition has only new ones"),
        pytest.param([[2, 3, 4]], 300.0, id="one partition"),
        pytest.param([[3], [4], [2]], 300.0, id="out of order"),
    ],
)
def test_all_partitions_of_a_scan_count_from_the_same_place(
    parts: list[list[int]], place: float
) -> None:
    forecast = Forecast()
    for ledger in (1, 2, 3):
        open_ledgers(forecast, [ledger], of=(1, 2, 3))
    for part in parts:
        open_ledgers(forecast, part, of=(2, 3, 4), stage=1)
    assert forecast.offset_of(in_ledger(4, 0)) == place


def test_a_scan_planned_after_ledgers_were_trimmed_reads_to_its_end() -> None:
    forecast = Forecast()
    for ledger in (1, 2, 3):
        forecast.close(open_ledgers(forecast, [ledger], of=(1, 2, 3)))
    open_ledgers(forecast, [2], of=(2, 3), stage=1)
    assert until_in(forecast, 3, 9) < inf


def test_a_scan_planned_before_ledgers_were_trimmed_may_begin_later() -> None:
    forecast = Forecast()
    forecast.begin(Plan("p", (WHOLE, WHOLE, WHOLE)))
    late = open_ledgers(forecast, [2], of=(2, 3), plan_ids=("p",))
    early = open_ledgers(forecast, [1, 2], of=(1, 2, 3), stage=1, plan_ids=("p",))
    forecast.advance(early, in_ledger(1, 9))
    assert forecast.offset_of(in_ledger(1, 0)) < forecast.offset_of(in_ledger(2, 0))
    assert until_in(forecast, 1, 5) < inf  # the third consumer has not begun
    forecast.close(late)
    forecast.check()


def in_ledger(ledger: int, entry: int) -> RunKey:
    """A run of a ledger of ten entries and 100 stored bytes."""
    found = Ledger("test", TOPIC, ledger, ObjectId(f"mem://{ledger}", 1, "v1"))
    return RunKey(found, Run(entry, entry))


def until_in(forecast: Forecast, ledger: int, entry: int) -> float:
    return forecast.ticks_until_read(
        TOPIC, forecast.offset_of(in_ledger(ledger, entry))
    )


def open_ledgers(
    forecast: Forecast,
    part: list[int],
    of: tuple[int, ...],
    stage: int = 0,
    plan_ids: tuple[str, ...] = (),
) -> PartitionRead:
    """Open some of the ledgers that a scan found when it was planned."""
    number = of.index(part[0])
    return forecast.open(
        ReaderIdentity(
            ReadToken(stage, number, number), f"{of}", WHOLE, 100.0 * len(of)
        ),
        plan_ids,
        [ExtentOffset(ledger, 0, 9, 100.0 * of.index(ledger), 100) for ledger in part],
        Position(part[0], 0),
        Position(part[-1], 10),
    )


# How fast


def test_speed_is_a_share_in_what_goes_on() -> None:
    often, seldom = Speed(0), Speed(0)
    for tick in range(1, 5 * HALF_LIFE):
        often.add(100.0, tick)
        if tick % 10 == 0:
            seldom.add(100.0, tick)
    assert often.at(tick) == pytest.approx(100.0, rel=0.05)
    assert seldom.at(tick) == pytest.approx(10.0, rel=0.05)


def test_among_a_thousand_readers_the_speed_of_one_does_not_swing() -> None:
    speed = Speed(0)
    for move in range(1, 50):
        speed.add(100.0, move * 1000)
    seen = [speed.at(tick) for tick in range(49_000, 50_000, 10)]
    assert seen == pytest.approx([0.1] * len(seen), rel=0.1)
    stood = speed.at(149_000)
    assert stood is not None
    assert stood < 0.1 / 100


def test_a_reader_that_stands_still_is_estimated_slower_and_slower() -> None:
    speed = Speed(0)
    assert speed.at(0) is None
    for tick in range(1, HALF_LIFE):
        speed.add(100.0, tick)
    before = speed.at(tick)
    assert before is not None
    later = speed.at(tick + 3 * HALF_LIFE)
    assert later is not None
    assert later < before / 4
    assert speed.at(tick + 10_000 * HALF_LIFE) is None
