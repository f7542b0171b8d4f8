"""Traces of whole scans, to simulate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.demand import Consumer, ExtentOffset, Plan, ReaderIdentity
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey
from sparkcache.trace import Begin, Close, Open, Over, Read, Sizes, Take, Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "a"
LEDGER = Ledger("", TOPIC, 0, ObjectId("trace:0", 0, ""))


def key(entry: int) -> RunKey:
    return RunKey(LEDGER, Run(entry, entry))


def scans(
    runs: int,
    order: Sequence[int],
    *,
    planned: int | None = None,
    sizes: Sequence[int] = (),
    step_s: float = 1.0,
) -> Trace:
    """A trace in which scan `order[0]` reads its next run, then `order[1]`...

    Each scan reads all runs of one topic. `planned` of them are planned; if None, all.
    """
    scanning = sorted(set(order))
    trace = Trace({key(n): Sizes(sizes[n] if sizes else 1) for n in range(runs)})
    consumer = Consumer(TOPIC)
    count = len(scanning) if planned is None else planned
    plan_ids = ("p",) if count else ()
    if count:
        trace.events.append((0.0, Begin(Plan("p", (consumer,) * count))))
    extent = ExtentOffset(0, 0, runs - 1, 0.0, runs)
    at = dict.fromkeys(scanning, 0)
    now_s = 0.0
    for scan in order:
        now_s += step_s
        if at[scan] == 0:
            reader = ReaderIdentity(ReadToken(scan, 0), "s", consumer, float(runs))
            begin, end = Position(0, 0), Position(0, runs)
            trace.events.append(
                (now_s, Open(scan, reader, plan_ids, (extent,), begin, end))
            )
        wanted = key(at[scan])
        trace.events += [(now_s, Take(scan, wanted)), (now_s, Read(scan, wanted))]
        at[scan] += 1
        if at[scan] == runs:
            trace.events.append((now_s, Close(scan)))
    if count:
        trace.events.append((now_s, Over(plan_ids)))
    return trace


def one_after_another(runs: int, times: int) -> list[int]:
    return [scan for scan in range(times) for _ in range(runs)]


def trailing(runs: int, lag: int) -> list[int]:
    """Scan 1 follows scan 0 at a distance, in runs."""
    return [
        scan
        for now in range(runs + lag)
        for scan, at in ((0, now), (1, now - lag))
        if 0 <= at < runs
    ]
