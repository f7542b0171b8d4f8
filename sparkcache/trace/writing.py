"""Writer of traces, which writes events as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.trace.events import (
    HEADER,
    Begin,
    Close,
    Event,
    Open,
    Over,
    Put,
    Read,
    Take,
    Trace,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkcache.demand import Consumer, ExtentOffset
    from sparkcache.model import Ledger, RunKey


class TraceWriter:
    """Writer of events that defines topics, ledgers, extents and runs before their use.

    Args:
        write: Called with whole lines.

    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._topics: dict[str, int] = {}
        self._ledgers: dict[Ledger, int] = {}
        self._extents: dict[ExtentOffset, int] = {}
        self._runs: dict[RunKey, int] = {}
        self._sizes: dict[int, int | None] = {}
        write(HEADER + "\n")

    def trace(self, trace: Trace) -> None:
        """Write a whole trace."""
        for at_s, event in trace.events:
            if isinstance(event, Take | Read | Put):
                sizes = trace.runs[event.key]
                self.run(at_s, event.key, sizes.stored_bytes, sizes.size_bytes)
            self.event(at_s, event)

    def run(
        self, at_s: float, key: RunKey, stored_bytes: int, size_bytes: int | None = None
    ) -> None:
        """Define a run, or its size if that is new, before an event mentions it."""
        number = self._runs.get(key)
        if number is None:
            ledger = self._ledger(at_s, key.ledger)
            number = self._runs[key] = len(self._runs)
            size = "-" if size_bytes is None else size_bytes
            run = f"{key.run.first}-{key.run.last}"
            self._line(at_s, f"run {number} {ledger} {run} {stored_bytes} {size}")
        elif size_bytes is not None and self._sizes[number] != size_bytes:
            self._line(at_s, f"size {number} {size_bytes}")
        else:
            return
        self._sizes[number] = size_bytes

    def event(self, at_s: float, event: Event) -> None:
        """Write an event."""
        match event:
            case Begin(plan):
                consumers = [
                    self._consumer(at_s, consumer) for consumer in plan.consumers
                ]
                kind = ["stream", str(plan.batch)] if plan.batch else ["plan"]
                text = " ".join([*kind, plan.id, *consumers])
            case Over(plan_ids):
                text = " ".join(["over", *plan_ids])
            case Open():
                text = self._open(at_s, event)
            case Take(task, key):
                text = f"take {task} {self._runs[key]}"
            case Read(task, key):
                text = f"read {task} {self._runs[key]}"
            case Close(task):
                text = f"close {task}"
            case Put(key):
                text = f"put {self._runs[key]}"
        self._line(at_s, text)

    def _open(self, at_s: float, event: Open) -> str:
        token, reader = event.reader.token, event.reader
        fields = [
            "open",
            str(event.task),
            f"{token.stage}.{token.partition}.{token.part}",
            reader.scan,
            self._consumer(at_s, reader.consumer),
            f"{reader.end:.0f}",
            _ranges(self._extent(at_s, extent) for extent in event.extents),
            str(event.first),
            str(event.stop),
            *event.plan_ids,
        ]
        return " ".join(fields)

    def _consumer(self, at_s: float, consumer: Consumer) -> str:
        topic = self._topic(at_s, consumer.topic)
        return f"{topic}@{consumer.start or ''}..{consumer.end or ''}"

    def _topic(self, at_s: float, name: str) -> int:
        number = self._topics.get(name)
        if number is None:
            number = self._topics[name] = len(self._topics)
            self._line(at_s, f"topic {number} {name}")
        return number

    def _ledger(self, at_s: float, ledger: Ledger) -> int:
        number = self._ledgers.get(ledger)
        if number is None:
            topic = self._topic(at_s, ledger.topic)
            number = self._ledgers[ledger] = len(self._ledgers)
            self._line(at_s, f"ledger {number} {topic} {ledger.id}")
        return number

    def _extent(self, at_s: float, extent: ExtentOffset) -> int:
        number = self._extents.get(extent)
        if number is None:
            number = self._extents[extent] = len(self._extents)
            entries = f"{extent.ledger}:{extent.first}-{extent.last}"
            self._line(
                at_s,
                f"extent {number} {entries} {extent.offset:.0f} {extent.size_bytes}",
            )
        return number

    def _line(self, at_s: float, text: str) -> None:
        self._write(f"{at_s:.6f} {text}\n")


def _ranges(numbers: Iterable[int]) -> str:
    """Write numbers as `0-3,7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in ranges
    )
