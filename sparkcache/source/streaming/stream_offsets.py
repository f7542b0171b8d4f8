"""Offsets of a stream: for each topic, the next entry to read in each ledger.

As JSON, in checkpoints and in the progress of a query:

    {"persistent://shop/eu/orders": {"3": 24, "5": "12 of 24", "9": "0 of 24"}}

Ledger 3 was read to its end at the time, of ledger 5 entries 0 to 11, and 9 was seen.
Ledgers 5 and 9 had 24 entries: if these are trimmed before they are read, that is a
loss.

Ledgers before the first that is named do not belong to the stream. All others do, in
whatever order they are offloaded: one that appears late is read when it appears.
Ledgers that were read and then trimmed are left out, except the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sparkcache.errors import ConfigError
from sparkcache.model import UNKNOWN_END, Loss, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkcache.connector import LedgerMap


@dataclass(frozen=True, slots=True)
class LedgerMark:
    """How far a stream has read a ledger.

    Attributes:
        next: The next entry to read.
        stop: The entry after the last known one.

    """

    next: int
    stop: int

    @classmethod
    def parse(cls, value: int | str) -> LedgerMark:
        """Parse a value that `as_json` returned; raises ValueError."""
        if isinstance(value, int):
            return cls(value, value)
        following, separator, stop = value.partition(" of ")
        if not separator:
            raise ValueError(f"{value!r} is neither an entry nor 'entry of entries'")
        return cls(int(following), int(stop))

    def as_json(self) -> int | str:
        """Return the mark as a value of JSON."""
        return f"{self.next} of {self.stop}" if self.next < self.stop else self.next


Marks: TypeAlias = dict[int, LedgerMark]  # by ledger


@dataclass(frozen=True, slots=True)
class EntrySpan:
    """Entries of a ledger, from `first` up to, but not including, `stop`."""

    ledger: int
    first: int
    stop: int


def parse(offset: Mapping[str, Mapping[str, int | str]]) -> dict[str, Marks]:
    """Parse an offset; raises ConfigError."""
    try:
        return {
            topic: {
                int(ledger): LedgerMark.parse(mark) for ledger, mark in marks.items()
            }
            for topic, marks in offset.items()
        }
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            f"the checkpoint has the offset {offset!r}, which is not from this source: "
            "give another checkpointLocation"
        ) from error


def as_json(offset: Mapping[str, Marks]) -> dict[str, dict[str, int | str]]:
    """Return an offset in the form that Spark stores as JSON, sorted."""
    return {
        topic: {str(ledger): mark.as_json() for ledger, mark in sorted(marks.items())}
        for topic, marks in sorted(offset.items())
    }


def spans(ledgers: Iterable[LedgerMap]) -> list[EntrySpan]:
    """Return the stored entries: one span for each ledger, in order."""
    by_ledger: dict[int, EntrySpan] = {}
    for ledger_map in ledgers:
        ledger = ledger_map.ledger.id
        for extent in ledger_map.extents:
            known = by_ledger.get(ledger)
            first = extent.first if known is None else min(known.first, extent.first)
            stop = extent.last + 1
            stop = stop if known is None else max(known.stop, stop)
            by_ledger[ledger] = EntrySpan(ledger, first, stop)
    return [by_ledger[ledger] for ledger in sorted(by_ledger)]


def beginning(start: Position | None, stored: Sequence[EntrySpan]) -> Marks:
    """Return the initial marks of a stream; None starts at the first entry."""
    begin = start or Position(0, 0)
    for span in stored:
        if span.ledger == begin.ledger:
            entry = min(max(begin.entry, span.first), span.stop)
            return {begin.ledger: LedgerMark(entry, entry)}
    return {begin.ledger: LedgerMark(0, 0)}


def all_reached(offset: Mapping[str, Mapping[str, int | str]]) -> dict[str, Position]:
    """Return up to which position each topic was read; raises ConfigError."""
    parsed = parse(offset)
    return {topic: reached(marks) for topic, marks in parsed.items() if marks}


def reached(marks: Marks) -> Position:
    """Return the position before which all entries known to the batch were read."""
    begun = [ledger for ledger, mark in marks.items() if mark.next < mark.stop]
    ledger = min(begun, default=max(marks))
    return Position(ledger, marks[ledger].next)


def unread(marks: Marks, stored: Sequence[EntrySpan]) -> list[EntrySpan]:
    """Return the stored entries that are not read yet, in order."""
    unread_spans = []
    for span in stored:
        if marks and span.ledger < min(marks):
            continue
        mark = marks.get(span.ledger)
        first = span.first if mark is None else max(span.first, mark.next)
        if first < span.stop:
            unread_spans.append(EntrySpan(span.ledger, first, span.stop))
    return unread_spans


def between(start: Marks, end: Marks) -> list[EntrySpan]:
    """Return the entries that a batch reads."""
    batch_spans = []
    for ledger, mark in sorted(end.items()):
        known = start.get(ledger)
        first = 0 if known is None or _is_recreated(known, mark.stop) else known.next
        if first < mark.next:
            batch_spans.append(EntrySpan(ledger, first, mark.next))
    return batch_spans


def joined(
    read: Iterable[EntrySpan], stored: Sequence[EntrySpan]
) -> list[tuple[Position, Position]]:
    """Return the disjoint ranges of positions that a batch reads."""
    order = {span.ledger: index for index, span in enumerate(stored)}
    ranges: list[tuple[Position, Position]] = []
    finished = -1  # index of the ledger that the last range reads to its end
    for span in read:
        if span.ledger not in order:
            continue
        index = order[span.ledger]
        if span.stop <= stored[index].first:  # the ledger is only seen, not read
            continue
        end = Position(span.ledger, span.stop)
        if ranges and finished == index - 1 and span.first <= stored[index].first:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((Position(span.ledger, span.first), end))
        finished = index if span.stop >= stored[index].stop else -1
    return ranges


def still_to_read(
    marks: Marks, stored: Sequence[EntrySpan]
) -> list[tuple[Position, Position | None]]:
    """Return the ranges that a stream has still to read; the last has no end."""
    ranges = joined(unread(reset_recreated(marks, stored), stored), stored)
    if ranges and ranges[-1][1].ledger == stored[-1].ledger:
        return [*ranges[:-1], (ranges[-1][0], None)]
    end = Position(stored[-1].ledger, stored[-1].stop) if stored else Position(0, 0)
    return [*ranges, (end, None)]


def reset_recreated(marks: Marks, stored: Iterable[EntrySpan]) -> Marks:
    """Return the marks, reset to the beginning for ledgers that were recreated.

    Some connectors number ledgers by their position in the topic. If such a topic is
    deleted and recreated, its ledgers have their old ids, and fewer entries than were
    read.
    """
    reset = {
        span.ledger: LedgerMark(0, 0)
        for span in stored
        if span.ledger in marks and _is_recreated(marks[span.ledger], span.stop)
    }
    return marks | reset


def lost(marks: Marks, stored: Sequence[EntrySpan], uri: str) -> list[Loss]:
    """Return unread entries that are gone, and ledgers that were recreated."""
    by_ledger = {span.ledger: span for span in stored}
    losses = []
    for ledger, mark in sorted(marks.items()):
        span = by_ledger.get(ledger)
        last = (mark.stop if span is None else span.first) - 1
        if mark.next <= last:
            losses.append(_loss(uri, ledger, mark.next, last))
        elif span is not None and _is_recreated(mark, span.stop):
            losses.append(_recreated(uri, span, mark.next - 1))
    return losses


def unread_losses(marks: Marks, losses: Iterable[Loss]) -> list[Loss]:
    """Return the losses of a snapshot with entries that a stream should still read.

    No batch reads a ledger that is lost as a whole, so no batch reports it.
    """
    unread_ones = []
    for loss in losses:
        mark = marks.get(loss.ledger, LedgerMark(0, 0))
        is_before = marks and 0 <= loss.ledger < min(marks)
        is_unread = loss.first >= mark.next or mark.next <= loss.last < UNKNOWN_END
        if is_unread and not is_before:
            unread_ones.append(loss)
    return unread_ones


def lost_between(
    start: Marks, end: Marks, stored: Sequence[EntrySpan], uri: str
) -> list[Loss]:
    """Return entries of a batch that are gone."""
    by_ledger = {span.ledger: span for span in stored}
    losses = []
    for span in between(start, end):
        none = EntrySpan(span.ledger, span.stop, span.stop)
        stored_span = by_ledger.get(span.ledger, none)
        is_known = span.ledger in start and start[span.ledger].next <= span.first
        begins_known = is_known or span.ledger not in by_ledger
        if span.first < stored_span.first and begins_known:
            losses.append(_loss(uri, span.ledger, span.first, stored_span.first - 1))
        if stored_span.stop < span.stop:
            begin = max(span.first, stored_span.stop)
            losses.append(_loss(uri, span.ledger, begin, span.stop - 1))
    return losses


def advanced(
    marks: Marks, stored: Sequence[EntrySpan], read: Iterable[EntrySpan]
) -> Marks:
    """Return the marks after a batch has read `read`."""
    after = {
        ledger: mark if mark.next >= mark.stop else LedgerMark(mark.stop, mark.stop)
        for ledger, mark in marks.items()
    }
    for span in stored:
        if not marks or span.ledger >= min(marks):
            known = marks.get(span.ledger)
            following = span.first if known is None else max(known.next, span.first)
            after[span.ledger] = LedgerMark(following, max(following, span.stop))
    stops = {span.ledger: span.stop for span in stored}
    for span in read:
        after[span.ledger] = LedgerMark(span.stop, max(span.stop, stops[span.ledger]))
    oldest = min(stops, default=max(after, default=0))
    trimmed = [ledger for ledger in after if ledger < oldest]
    for ledger in sorted(trimmed)[:-1]:
        del after[ledger]
    return after


def _is_recreated(mark: LedgerMark, stop: int) -> bool:
    """Return whether a ledger has fewer entries than were read of it."""
    return stop < mark.next


def _recreated(uri: str, span: EntrySpan, last: int) -> Loss:
    expected = "entries that a stream has read"
    found = "a ledger that ends before them: the topic was recreated, and is read again"
    return Loss(uri, 0, span.ledger, span.stop, last, expected, found)


def _loss(uri: str, ledger: int, first: int, last: int) -> Loss:
    expected = "entries that a stream has not read yet"
    return Loss(uri, 0, ledger, first, last, expected, "none: the topic was trimmed")
