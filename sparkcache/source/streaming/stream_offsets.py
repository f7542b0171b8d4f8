"""How far a stream has come: of each topic, which entry of each ledger comes next.

As JSON, in checkpoints and in the progress of a query:

    {"persistent://shop/eu/orders": {"3": 24, "5": "12 of 24", "9": "0 of 24"}}

Ledger 3 was read to the end that it had, of ledger 5 entries 0 to 11, and 9 was seen.
That their last one was 23 tells a loss should they be gone before that is read.

Ledgers before the first that is named are none of the stream's. All others are, in
whatever order they are offloaded: one that comes late is read when it comes. Those that
were read and trimmed are left out, but for the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sparkcache.errors import ConfigError
from sparkcache.model import Loss, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkcache.connector import LedgerMap


@dataclass(frozen=True, slots=True)
class LedgerMark:
    """How much of a ledger was read.

    Attributes:
        next: The entry that comes next.
        stop: The entry after the last that it is known to have.

    """

    next: int
    stop: int

    @classmethod
    def parse(cls, written: int | str) -> LedgerMark:
        """Read what `written` wrote; raises ValueError."""
        if isinstance(written, int):
            return cls(written, written)
        following, separator, stop = written.partition(" of ")
        if not separator:
            raise ValueError(f"{written!r} is neither an entry nor 'entry of entries'")
        return cls(int(following), int(stop))

    def written(self) -> int | str:
        """Return it as it stands in JSON."""
        return f"{self.next} of {self.stop}" if self.next < self.stop else self.next


Marks: TypeAlias = dict[int, LedgerMark]  # by ledger


@dataclass(frozen=True, slots=True)
class EntrySpan:
    """Entries of a ledger, `first` to before `stop`."""

    ledger: int
    first: int
    stop: int


def parse(offset: Mapping[str, Mapping[str, int | str]]) -> dict[str, Marks]:
    """Read an offset; raises ConfigError."""
    try:
        return {
            topic: {
                int(ledger): LedgerMark.parse(mark) for ledger, mark in of_topic.items()
            }
            for topic, of_topic in offset.items()
        }
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            f"the checkpoint has the offset {offset!r}, which is none of this source: "
            "give another checkpointLocation"
        ) from error


def written(offset: Mapping[str, Marks]) -> dict[str, dict[str, int | str]]:
    """Return an offset as JSON has it, in one order whatever the order of events."""
    return {
        topic: {str(ledger): mark.written() for ledger, mark in sorted(marks.items())}
        for topic, marks in sorted(offset.items())
    }


def spans(ledgers: Iterable[LedgerMap]) -> list[EntrySpan]:
    """Return the entries that there are: one span for each ledger, in order."""
    found: dict[int, EntrySpan] = {}
    for of in ledgers:
        for extent in of.extents:
            known = found.get(of.ledger.id)
            first = extent.first if known is None else min(known.first, extent.first)
            stop = extent.last + 1
            stop = stop if known is None else max(known.stop, stop)
            found[of.ledger.id] = EntrySpan(of.ledger.id, first, stop)
    return [found[ledger] for ledger in sorted(found)]


def beginning(start: Position | None, there: Sequence[EntrySpan]) -> Marks:
    """Return where a stream begins that is to begin at a position, or the first."""
    begin = start or Position(0, 0)
    for span in there:
        if span.ledger == begin.ledger:
            entry = min(max(begin.entry, span.first), span.stop)
            return {begin.ledger: LedgerMark(entry, entry)}
    return {begin.ledger: LedgerMark(0, 0)}


def all_reached(offset: Mapping[str, Mapping[str, int | str]]) -> dict[str, Position]:
    """Return up to where each topic of an offset was read; raises ConfigError."""
    parsed = parse(offset)
    return {topic: reached(marks) for topic, marks in parsed.items() if marks}


def reached(marks: Marks) -> Position:
    """Return up to where all was read of what was there when a batch was planned."""
    begun = [ledger for ledger, mark in marks.items() if mark.next < mark.stop]
    ledger = min(begun, default=max(marks))
    return Position(ledger, marks[ledger].next)


def unread(marks: Marks, there: Sequence[EntrySpan]) -> list[EntrySpan]:
    """Return what of the entries that there are comes next, in order."""
    found = []
    for span in there:
        if marks and span.ledger < min(marks):
            continue
        mark = marks.get(span.ledger)
        first = span.first if mark is None else max(span.first, mark.next)
        if first < span.stop:
            found.append(EntrySpan(span.ledger, first, span.stop))
    return found


def between(start: Marks, end: Marks) -> list[EntrySpan]:
    """Return what a batch reads."""
    found = []
    for ledger, mark in sorted(end.items()):
        known = start.get(ledger)
        first = 0 if known is None or _is_renewed(known, mark.stop) else known.next
        if first < mark.next:
            found.append(EntrySpan(ledger, first, mark.next))
    return found


def joined(
    read: Iterable[EntrySpan], there: Sequence[EntrySpan]
) -> list[tuple[Position, Position]]:
    """Return from where to where a batch reads, in ranges between which it does not."""
    order = {span.ledger: index for index, span in enumerate(there)}
    ranges: list[tuple[Position, Position]] = []
    reached = -1  # the ledger that the last range has read to its end
    for span in read:
        if span.ledger not in order:
            continue
        at = order[span.ledger]
        if span.stop <= there[at].first:  # it was seen, and nothing of it is read
            continue
        end = Position(span.ledger, span.stop)
        if ranges and reached == at - 1 and span.first <= there[at].first:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((Position(span.ledger, span.first), end))
        reached = at if span.stop >= there[at].stop else -1
    return ranges


def to_come(
    marks: Marks, there: Sequence[EntrySpan]
) -> list[tuple[Position, Position | None]]:
    """Return the ranges that a stream has still to read, the last one without end."""
    ranges = joined(unread(renewed(marks, there), there), there)
    if ranges and ranges[-1][1].ledger == there[-1].ledger:
        return [*ranges[:-1], (ranges[-1][0], None)]
    behind = Position(there[-1].ledger, there[-1].stop) if there else Position(0, 0)
    return [*ranges, (behind, None)]


def renewed(marks: Marks, there: Iterable[EntrySpan]) -> Marks:
    """Return marks that begin anew in ledgers that did.

    Where a topic is deleted and made again, ledgers of a connector that numbers them by
    their place have their old names, and fewer entries than were read.
    """
    anew = {
        span.ledger: LedgerMark(0, 0)
        for span in there
        if span.ledger in marks and _is_renewed(marks[span.ledger], span.stop)
    }
    return marks | anew


def lost(marks: Marks, there: Sequence[EntrySpan], uri: str) -> list[Loss]:
    """Return what should come next and is gone, or was there and is no more."""
    present = {span.ledger: span for span in there}
    found = []
    for ledger, mark in sorted(marks.items()):
        span = present.get(ledger)
        last = (mark.stop if span is None else span.first) - 1
        if mark.next <= last:
            found.append(_loss(uri, ledger, mark.next, last))
        elif span is not None and _is_renewed(mark, span.stop):
            found.append(_made_anew(uri, span, mark.next - 1))
    return found


def lost_between(
    start: Marks, end: Marks, there: Sequence[EntrySpan], uri: str
) -> list[Loss]:
    """Return what a batch should read and is gone."""
    present = {span.ledger: span for span in there}
    found = []
    for span in between(start, end):
        has = present.get(span.ledger, EntrySpan(span.ledger, span.stop, span.stop))
        is_known = span.ledger in start and start[span.ledger].next <= span.first
        begins_known = is_known or span.ledger not in present
        if span.first < has.first and begins_known:
            found.append(_loss(uri, span.ledger, span.first, has.first - 1))
        if has.stop < span.stop:
            begin = max(span.first, has.stop)
            found.append(_loss(uri, span.ledger, begin, span.stop - 1))
    return found


def advanced(
    marks: Marks, there: Sequence[EntrySpan], read: Iterable[EntrySpan]
) -> Marks:
    """Return where a stream is once it has read that."""
    after = {
        ledger: mark if mark.next >= mark.stop else LedgerMark(mark.stop, mark.stop)
        for ledger, mark in marks.items()
    }
    for span in there:
        if not marks or span.ledger >= min(marks):
            known = marks.get(span.ledger)
            following = span.first if known is None else max(known.next, span.first)
            after[span.ledger] = LedgerMark(following, max(following, span.stop))
    stops = {span.ledger: span.stop for span in there}
    for span in read:
        after[span.ledger] = LedgerMark(span.stop, max(span.stop, stops[span.ledger]))
    oldest = min(stops, default=max(after, default=0))
    trimmed = [ledger for ledger in after if ledger < oldest]
    for ledger in sorted(trimmed)[:-1]:
        del after[ledger]
    return after


def _is_renewed(mark: LedgerMark, stop: int) -> bool:
    """Tell whether a ledger has fewer entries than were read of it."""
    return stop < mark.next


def _made_anew(uri: str, span: EntrySpan, last: int) -> Loss:
    expected = "entries that a stream has read"
    found = "a ledger that ends before them: the topic was made anew, and is read anew"
    return Loss(uri, 0, span.ledger, span.stop, last, expected, found)


def _loss(uri: str, ledger: int, first: int, last: int) -> Loss:
    expected = "entries that a stream has not read yet"
    return Loss(uri, 0, ledger, first, last, expected, "none: the topic was trimmed")
