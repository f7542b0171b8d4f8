"""Traces as text: written, read back, and refused where they make no sense."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache.demand import Consumer, ExtentOffset, Plan, ReaderIdentity
from sparkcache.errors import ConfigError
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey
from sparkcache.trace import (
    Begin,
    Close,
    Open,
    Over,
    Put,
    Read,
    Sizes,
    Take,
    Trace,
    TraceWriter,
    parse,
)

TOPIC = "s3://bucket/a b#persistent://shop/eu/orders and more"


def key(first: int, number: int = 0) -> RunKey:
    """As a trace names it: by the number of its ledger."""
    ledger = Ledger("", TOPIC, 7 + number, ObjectId(f"trace:{number}", 0, ""))
    return RunKey(ledger, Run(first, first + 9))


def opened(task: int, *plan_ids: str, consumer: Consumer | None = None) -> Open:
    return Open(
        task,
        ReaderIdentity(
            ReadToken(3, task, 1), "scan", consumer or Consumer(TOPIC), 900.0
        ),
        plan_ids,
        (ExtentOffset(7, 0, 99, 0.0, 500), ExtentOffset(7, 100, 199, 500.0, 400)),
        Position(7, 0),
        Position(7, 200),
    )


EXAMPLE = Trace(
    {key(0): Sizes(100, 300), key(10): Sizes(120), key(0, 1): Sizes(80, 80)},
    [
        (
            0.0,
            Begin(
                Plan(
                    "p",
                    (
                        Consumer(TOPIC),
                        Consumer(TOPIC, Position(7, 10), Position(8, 0)),
                        Consumer("other", end=Position(1, 1)),
                    ),
                )
            ),
        ),
        (0.5, opened(0, "p", "q")),
        (0.5, Take(0, key(0))),
        (0.75, Put(key(0, 1))),
        (1.0, Read(0, key(0))),
        (1.25, Take(0, key(10))),
        (1.5, Close(0)),
        (1.5, Begin(Plan("run/q", (Consumer(TOPIC, Position(7, 10)),), 4))),
        (2.0, Over(("p", "run"))),
    ],
)


def written(trace: Trace) -> str:
    lines: list[str] = []
    TraceWriter(lines.append).trace(trace)
    return "".join(lines)


def test_what_is_written_is_read_back() -> None:
    assert parse(written(EXAMPLE).splitlines()) == EXAMPLE


def test_every_line_is_one_that_the_format_names() -> None:
    assert written(EXAMPLE).splitlines() == [
        "sparkcache-trace 1",
        f"0.000000 topic 0 {TOPIC}",
        "0.000000 topic 1 other",
        "0.000000 plan p 0@.. 0@7:10..8:0 1@..1:1",
        "0.500000 extent 0 7:0-99 0 500",
        "0.500000 extent 1 7:100-199 500 400",
        "0.500000 open 0 3.0.1 scan 0@.. 900 0-1 7:0 7:200 p q",
        "0.500000 ledger 0 0 7",
        "0.500000 run 0 0 0-9 100 300",
        "0.500000 take 0 0",
        "0.750000 ledger 1 0 8",
        "0.750000 run 1 1 0-9 80 80",
        "0.750000 put 1",
        "1.000000 read 0 0",
        "1.250000 run 2 0 10-19 120 -",
        "1.250000 take 0 2",
        "1.500000 close 0",
        "1.500000 stream 4 run/q 0@7:10..",
        "2.000000 over p run",
    ]


def test_a_size_that_is_known_later_is_said_once() -> None:
    lines: list[str] = []
    writer = TraceWriter(lines.append)
    writer.run(0.0, key(0), 100)
    writer.run(1.0, key(0), 100)
    writer.run(2.0, key(0), 100, 300)
    writer.run(3.0, key(0), 100, 300)
    writer.run(4.0, key(0), 100)
    assert [line.split()[1] for line in lines[1:]] == [
        "topic",
        "ledger",
        "run",
        "size",
    ]
    assert parse(lines).runs == {key(0): Sizes(100, 300)}


def test_versions_of_a_ledger_stay_apart() -> None:
    old, new = (
        RunKey(Ledger("x", TOPIC, 7, ObjectId("s3://b/o", 9, etag)), Run(0, 9))
        for etag in ("1", "2")
    )
    trace = Trace(
        {old: Sizes(1, 1), new: Sizes(1, 1)},
        [(0.0, opened(0)), (0.0, Take(0, old)), (0.0, Take(0, new))],
    )
    first, second = parse(written(trace).splitlines()).takes()
    assert first != second
    assert first.run == second.run


@given(st.lists(st.integers(0, 40), min_size=1, unique=True).map(sorted))
def test_ranges_of_extents_are_read_back(numbers: list[int]) -> None:
    extents = [ExtentOffset(1, 10 * n, 10 * n + 9, 100.0 * n, 100) for n in range(41)]
    all_of_them = opened(0)
    lines: list[str] = []
    writer = TraceWriter(lines.append)
    for task, chosen in enumerate((range(41), numbers)):
        event = Open(
            task,
            all_of_them.reader,
            (),
            tuple(extents[n] for n in chosen),
            Position(1, 0),
            Position(1, 1),
        )
        writer.event(0.0, event)
    _, (_, read) = parse(lines).events
    assert isinstance(read, Open)
    assert read.extents == tuple(extents[n] for n in numbers)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("1 jump 0", "no event is called 'jump'"),
        ("x take 0 0", "could not convert"),
        ("1", "not enough values"),
        ("nan take 0 0", "time goes back"),
        ("-1 take 0 0", "time goes back"),
        ("1 take 5 0", "task 5 is not open"),
        ("1 take 0 9", "'9'"),
        ("1 take 0", "not enough values"),
        ("1 take 0 0 0", "too many values"),
        ("1 run 1 0 9-0 1 1", "entries 9-0 go back"),
        ("1 run 1 0 0-9 0 1", "0 bytes: use 1 or more"),
        ("1 run 1 3 0-9 1 1", "'3'"),
        ("1 open 0 1.0.0 s 0@.. 9 0 7:0 7:9", "task 0 is open already"),
        ("1 open 1 1.0.0 s 0@.. 9 4 7:0 7:9", "4"),
        ("1 open 1 1.0 s 0@.. 9 0 7:0 7:9", "not enough values"),
        ("1 open 1 1.0.0 s 0@7.. 9 0 7:0 7:9", "'7' is not a position"),
        ("1 close 4", "task 4 is not open"),
    ],
)
def test_an_error_names_the_line_and_what_was_found(line: str, complaint: str) -> None:
    begin = written(Trace(EXAMPLE.runs, EXAMPLE.events[:3])).splitlines()
    with pytest.raises(ConfigError) as raised:
        parse([*begin, "", "# a remark", line], "my.trace")
    assert str(raised.value).startswith(f"my.trace:{len(begin) + 3}: {line!r}: ")
    assert complaint in str(raised.value)


@pytest.mark.parametrize("lines", [[], ["sparkcache-trace 2"], ["hello"]])
def test_invalid_traces_are_refused(lines: list[str]) -> None:
    with pytest.raises(ConfigError, match="sparkcache-trace 1"):
        parse(lines)
