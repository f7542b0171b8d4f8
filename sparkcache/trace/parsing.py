"""Parser of traces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.demand import NOT_BEGUN, Consumer, ExtentOffset, Plan, ReaderIdentity
from sparkcache.errors import ConfigError
from sparkcache.model import Ledger, ObjectId, Position, ReadToken, Run, RunKey
from sparkcache.trace.events import (
    HEADER,
    Begin,
    Close,
    Event,
    Open,
    Over,
    Put,
    Read,
    Sizes,
    Take,
    Trace,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def parse(lines: Iterable[str], name: str = "trace") -> Trace:
    """Parse a trace.

    Args:
        lines: The lines, with or without line ends.
        name: The name of the trace in errors.

    Raises ConfigError, which names the line and what was found there.

    """
    parser = _Parser()
    number = 0
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if number == 1:
            if text != HEADER:
                raise ConfigError(f"{name}: begins with {text!r}: expected {HEADER!r}")
            continue
        if not text or text.startswith("#"):
            continue
        try:
            parser.line(text)
        except (ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                f"{name}:{number}: {text[:80]!r}: {error or 'cannot be parsed'}"
            ) from error
    if number == 0:
        raise ConfigError(f"{name}: is empty: must begin with {HEADER!r}")
    return parser.trace


@dataclass(slots=True)
class _Parser:
    trace: Trace = field(default_factory=Trace)
    topics: dict[str, str] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    extents: dict[int, ExtentOffset] = field(default_factory=dict)
    runs: dict[str, RunKey] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    at_s: float = 0.0

    def line(self, text: str) -> None:
        """Parse a line that is neither empty nor a comment."""
        time, kind, rest = text.split(maxsplit=2)
        at_s = float(time)
        if not at_s >= self.at_s:
            raise ValueError(f"time goes back from {self.at_s} s: use no earlier time")
        self.at_s = at_s
        if kind == "topic":
            number, name = rest.split(maxsplit=1)
            self.topics[number] = name
            return
        fields = rest.split()
        if kind in _DEFINITIONS:
            _DEFINITIONS[kind](self, fields)
        elif kind in _EVENTS:
            self.trace.events.append((at_s, _EVENTS[kind](self, fields)))
        else:
            raise ValueError(f"no event is called {kind!r}: see sparkcache.trace")

    def ledger(self, fields: Sequence[str]) -> None:
        """Parse a ledger."""
        number, topic, ledger = fields
        # Only the number distinguishes versions of a ledger.
        object_id = ObjectId(f"trace:{number}", 0, "")
        self.ledgers[number] = Ledger("", self.topics[topic], int(ledger), object_id)

    def extent(self, fields: Sequence[str]) -> None:
        """Parse an extent."""
        number, entries, offset, stored = fields
        ledger, _, entry_range = entries.partition(":")
        first, last = _entries(entry_range)
        self.extents[int(number)] = ExtentOffset(
            int(ledger), first, last, float(offset), _bytes(stored)
        )

    def run(self, fields: Sequence[str]) -> None:
        """Parse a run."""
        number, ledger, entries, stored, size = fields
        key = RunKey(self.ledgers[ledger], Run(*_entries(entries)))
        self.runs[number] = key
        size_bytes = None if size == "-" else _bytes(size)
        self.trace.runs[key] = Sizes(_bytes(stored), size_bytes)

    def size(self, fields: Sequence[str]) -> None:
        """Parse the decoded size of a run."""
        run, size = fields
        self.trace.runs[self.runs[run]].size_bytes = _bytes(size)

    def begin(self, fields: Sequence[str]) -> Event:
        """Parse the beginning of a plan."""
        plan_id, *consumers = fields
        return Begin(Plan(plan_id, tuple(map(self._consumer, consumers))))

    def stream(self, fields: Sequence[str]) -> Event:
        """Parse the plan of a stream's batch."""
        batch, plan_id, *consumers = fields
        remaining = tuple(map(self._consumer, consumers))
        return Begin(Plan(plan_id, remaining, _batch(batch)))

    def over(self, fields: Sequence[str]) -> Event:
        """Parse the end of plans."""
        return Over(tuple(fields))

    def opens(self, fields: Sequence[str]) -> Event:
        """Parse a task's opening of a partition."""
        task, token, scan, consumer, end, extents, first, stop, *plan_ids = fields
        stage, partition, part = map(int, token.split("."))
        number = int(task)
        if number in self.open:
            raise ValueError(f"task {number} is open already: close it first")
        self.open.add(number)
        return Open(
            number,
            ReaderIdentity(
                ReadToken(stage, partition, part),
                scan,
                self._consumer(consumer),
                float(end),
            ),
            tuple(plan_ids),
            tuple(self.extents[extent] for extent in _numbers(extents)),
            Position.parse(first),
            Position.parse(stop),
        )

    def take(self, fields: Sequence[str]) -> Event:
        """Parse a task's taking of a run."""
        task, run = fields
        return Take(self._task(task), self.runs[run])

    def read(self, fields: Sequence[str]) -> Event:
        """Parse a task's finishing of a run."""
        task, run = fields
        return Read(self._task(task), self.runs[run])

    def close(self, fields: Sequence[str]) -> Event:
        """Parse the end of a task."""
        [task] = fields
        number = self._task(task)
        self.open.remove(number)
        return Close(number)

    def put(self, fields: Sequence[str]) -> Event:
        """Parse the writing of a run."""
        [run] = fields
        return Put(self.runs[run])

    def _task(self, text: str) -> int:
        number = int(text)
        if number not in self.open:
            raise ValueError(f"task {number} is not open: open it first")
        return number

    def _consumer(self, text: str) -> Consumer:
        topic, _, positions = text.partition("@")
        start, _, end = positions.partition("..")
        return Consumer(
            self.topics[topic],
            Position.parse(start) if start else None,
            Position.parse(end) if end else None,
        )


_DEFINITIONS = {
    "ledger": _Parser.ledger,
    "extent": _Parser.extent,
    "run": _Parser.run,
    "size": _Parser.size,
}
_EVENTS = {
    "plan": _Parser.begin,
    "stream": _Parser.stream,
    "over": _Parser.over,
    "open": _Parser.opens,
    "take": _Parser.take,
    "read": _Parser.read,
    "close": _Parser.close,
    "put": _Parser.put,
}


def _entries(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if int(first) > int(last):
        raise ValueError(f"entries {text} go back: use FIRST-LAST in ascending order")
    return int(first), int(last)


def _batch(text: str) -> int:
    if int(text) <= 0 and int(text) != NOT_BEGUN:
        raise ValueError(f"batch {text}: use 1 or more, or {NOT_BEGUN}")
    return int(text)


def _bytes(text: str) -> int:
    if int(text) <= 0:
        raise ValueError(f"{text} bytes: use 1 or more")
    return int(text)


def _numbers(text: str) -> list[int]:
    """Parse numbers written as `0-3,7`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
