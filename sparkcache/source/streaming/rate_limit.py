"""Rate limit: which entries the next batch of a stream takes.

A batch that takes a whole run ends at the end of a run, so that no run is read for two
batches.

Indexes tell entries and bytes, not rows. For a limit in rows, the number of rows in an
entry is sampled at the start of each extent that is about to be read. So that limit is
as accurate as the entries of an extent are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING

from sparkcache.source.streaming.stream_offsets import EntrySpan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkcache.connector import LedgerMap
    from sparkcache.model import Extent, Ledger, Run

_LEAST_RUN_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit of a batch, or of one topic's part of a batch."""

    rows: float = inf
    stored_bytes: float = inf

    @property
    def is_none(self) -> bool:
        """Whether there is no limit."""
        return self.rows == self.stored_bytes == inf

    def part(self, share: float) -> Limit:
        """Return a share of the limit, at least one row and one byte."""
        return Limit(
            *(_share(value, share) for value in (self.rows, self.stored_bytes))
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """The functions that `admit` needs to apply a limit.

    Attributes:
        rows: Returns the number of rows in an entry of an extent.
        runs: Cuts an extent into runs.

    """

    rows: Callable[[Ledger, Extent], float]
    runs: Callable[[Extent], Sequence[Run]]


def admit(
    unread: Mapping[str, Sequence[EntrySpan]],
    ledgers: Mapping[str, Sequence[LedgerMap]],
    limit: Limit,
    rules: Rules,
) -> dict[str, list[EntrySpan]]:
    """Return the entries that a batch takes, at least one of each topic.

    The limit is divided among topics in proportion to their unread bytes.
    """
    if limit.is_none:
        return {topic: list(spans) for topic, spans in unread.items()}
    sizes = {topic: _size(unread[topic], ledgers[topic]) for topic in unread}
    total = sum(sizes.values()) or 1.0
    return {
        topic: _admit(spans, ledgers[topic], limit.part(sizes[topic] / total), rules)
        for topic, spans in unread.items()
    }


def _admit(
    spans: Iterable[EntrySpan], ledgers: Sequence[LedgerMap], limit: Limit, rules: Rules
) -> list[EntrySpan]:
    taken: list[EntrySpan] = []
    rows, stored_bytes = limit.rows, limit.stored_bytes
    for span in spans:
        stop = span.first
        for ledger, extent in _extents(span, ledgers):
            first, last = max(extent.first, span.first), min(extent.last, span.stop - 1)
            rows_each = 1.0 if rows == inf else rules.rows(ledger, extent)
            bytes_each = extent.size_bytes / (extent.last - extent.first + 1)
            most = _most(rows, rows_each), _most(stored_bytes, bytes_each)
            count = min(last - first + 1.0, *most)
            is_all = count == last - first + 1
            if not is_all:
                at_least = not taken and stop == span.first
                end = _end(rules.runs(extent), first, int(count), at_least=at_least)
                count = end - first
            stop = first + int(count) if count else stop
            rows -= count * rows_each
            stored_bytes -= count * bytes_each
            if not is_all:
                break
        if stop > span.first:
            taken.append(EntrySpan(span.ledger, span.first, stop))
        if stop < span.stop:
            break
    return taken


def _end(runs: Sequence[Run], first: int, count: int, *, at_least: bool) -> int:
    """Return the entry before which to end, to take about `count` from `first` on."""
    stop = first + count
    ends = [run.last + 1 for run in runs if first < run.last + 1 <= stop]
    if ends:
        return ends[-1]
    return max(stop, first + 1) if at_least else first


def _extents(
    span: EntrySpan, ledgers: Sequence[LedgerMap]
) -> Iterable[tuple[Ledger, Extent]]:
    for ledger_map in ledgers:
        for extent in ledger_map.extents:
            if ledger_map.ledger.id == span.ledger and (
                extent.first < span.stop and span.first <= extent.last
            ):
                yield ledger_map.ledger, extent


def _size(spans: Iterable[EntrySpan], ledgers: Sequence[LedgerMap]) -> float:
    """Return the number of stored bytes of entries."""
    return sum(
        extent.size_bytes
        * (min(extent.last + 1, span.stop) - max(extent.first, span.first))
        / (extent.last - extent.first + 1)
        for span in spans
        for _, extent in _extents(span, ledgers)
    )


def _most(available: float, each: float) -> float:
    return available if available == inf else available // each


def _share(limit: float, share: float) -> float:
    return limit if limit == inf else max(ceil(limit * share), 1)
