"""Which uploads of a ledger to read, so that each entry comes once.

A ledger that was offloaded more than once has several uploads. They are equal, as a
ledger is closed before, so any that is whole will do: the one the manifest names, else
the one with the least uuid. Whether files are whole their index does not say, so where
there are several their ends are read.

An upload in the streaming format may be a piece of its ledger; then the pieces follow
one another, each up to where the next begins.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkcache.connector import LedgerMap
from sparkcache.errors import SourceError
from sparkcache.model import Loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sparkcache.model import Extent, Ledger
    from sparkcache_pulsar.manifest import Listed
    from sparkcache_pulsar.uploads import Upload

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Missing:
    """Entries of a ledger that should be there, and why they are not."""

    ledger: int
    first: int
    last: int
    fault: SourceError

    def as_loss(self) -> Loss:
        """Return it in the form in which a snapshot tells it."""
        fault = self.fault
        place = fault.uri, fault.offset or 0, self.ledger
        return Loss(*place, self.first, self.last, fault.expected, fault.found)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How a ledger is read: one object, or several in the order of their entries."""

    maps: tuple[LedgerMap, ...] = ()
    missing: tuple[Missing, ...] = ()


def cover(
    uploads: Sequence[Upload],
    listed: Listed | None,
    root: str,
    as_ledger: Callable[[Upload], Ledger],
    last: Callable[[Ledger, Extent], int | None],
) -> Coverage:
    """Choose among the uploads of a ledger, all of one topic.

    `last` finds out from the data which entry is the last that an extent has; None if
    they do not tell.
    """
    whole = [upload for upload in uploads if not upload.is_piece]
    if sound := [upload for upload in whole if upload.fault is None]:
        if len(sound) > 1:
            complete = [
                upload for upload in sound if _is_complete(upload, as_ledger, last)
            ]
            sound = complete or sound
        chosen = _named(sound, listed)
        return Coverage((LedgerMap(as_ledger(chosen), chosen.extents),))
    pieces = [_ended(upload, as_ledger, last) for upload in uploads if upload.is_piece]
    chain = _chain(piece for piece in pieces if piece.fault is None)
    if not chain:
        return Coverage(missing=tuple(_all_lost(whole or pieces, listed)))
    maps = tuple(LedgerMap(as_ledger(piece), piece.extents) for piece in chain)
    return Coverage(maps, tuple(_gaps(chain, pieces, listed, root)))


def _is_complete(
    upload: Upload,
    as_ledger: Callable[[Upload], Ledger],
    last: Callable[[Ledger, Extent], int | None],
) -> bool:
    """Tell whether its last entry is there."""
    if upload.ends_here:
        return True
    end = upload.extents[-1]
    try:
        return last(as_ledger(upload), end) == end.last
    except SourceError:
        return False


def _ended(
    piece: Upload,
    as_ledger: Callable[[Upload], Ledger],
    last: Callable[[Ledger, Extent], int | None],
) -> Upload:
    """Leave out entries that a piece may have and does not."""
    if piece.ends_here or piece.fault:
        return piece
    try:
        found = last(as_ledger(piece), piece.extents[-1])
    except SourceError as error:  # such as one that was deleted meanwhile
        return replace(piece, fault=error)
    return piece if found is None else replace(_up_to(piece, found), ends_here=True)


def _named(sound: Sequence[Upload], listed: Listed | None) -> Upload:
    if listed is None or listed.uuid is None:
        return sound[0]
    for upload in sound:
        if upload.uuid == listed.uuid:
            return upload
    _log.warning(
        "ledger %d: its upload %s, which the manifest names, cannot be read; %s can",
        sound[0].ledger,
        listed.uuid,
        sound[0].uuid,
    )
    return sound[0]


def given_up(upload: Upload) -> Missing:
    """Give up an upload. How many entries it has is known if its index is."""
    assert upload.fault is not None
    first = upload.extents[0].first if upload.extents else 0
    last = upload.extents[-1].last if upload.extents else 0
    return Missing(upload.ledger, first, last, upload.fault)


def _all_lost(broken: Sequence[Upload], listed: Listed | None) -> Iterator[Missing]:
    """Give up a ledger; the manifest may know of more entries than an index that is."""
    missing = given_up(broken[0])
    if listed and listed.is_offloaded:
        missing = replace(missing, last=max(missing.last, listed.entries - 1))
    yield missing


def _up_to(piece: Upload, last: int) -> Upload:
    """Leave out entries behind `last`."""
    extents = tuple(
        replace(extent, last=min(extent.last, last))
        for extent in piece.extents
        if extent.first <= last
    )
    return replace(piece, extents=extents)


def _chain(pieces: Iterable[Upload]) -> list[Upload]:
    """Return pieces that have every entry once, in the order of entries.

    Where two overlap the one that begins first is cut short, since only the end of an
    extent can be left out.
    """
    chain: list[Upload] = []
    for piece in sorted(pieces, key=_first_longest):
        if not chain or _goes_on(chain[-1], piece):
            if chain:
                chain[-1] = _up_to(chain[-1], piece.extents[0].first - 1)
            chain.append(piece)
    return chain


def _first_longest(piece: Upload) -> tuple[int, int]:
    return piece.extents[0].first, -piece.extents[-1].last


def _goes_on(before: Upload, piece: Upload) -> bool:
    """Tell whether a piece has what the one before it has not, or perhaps has not."""
    last = before.extents[-1]
    is_vague = not before.ends_here and piece.extents[0].first > last.first
    return is_vague or piece.extents[-1].last > last.last


def _gaps(
    chain: Sequence[Upload],
    pieces: Sequence[Upload],
    listed: Listed | None,
    root: str,
) -> Iterator[Missing]:
    """Yield what lies before, between and behind a chain: ledgers begin with 0.

    Behind it is what any piece may have, readable or not, and what is listed.
    """
    ends = [piece.extents[-1].last + 1 for piece in pieces]
    if listed and listed.is_offloaded:
        ends.append(listed.entries)
    expected = 0
    for piece in chain:
        if piece.extents[0].first > expected:
            yield _missing(pieces, root, expected, piece.extents[0].first - 1)
        expected = piece.extents[-1].last + 1
    if expected < max(ends):
        yield _missing(pieces, root, expected, max(ends) - 1)


def _missing(pieces: Sequence[Upload], root: str, first: int, last: int) -> Missing:
    """Tell of entries that no piece has, unless it cannot be read."""
    ledger = pieces[0].ledger
    for piece in pieces:
        has_some = piece.extents[0].first <= last and piece.extents[-1].last >= first
        if piece.fault is not None and has_some:
            return Missing(ledger, first, last, piece.fault)
    return nowhere(root, ledger, first, last)


def nowhere(root: str, ledger: int, first: int, last: int) -> Missing:
    """Tell of entries that should lie in the bucket, and do not."""
    expected = f"entries {first} to {last} of ledger {ledger}"
    fault = SourceError(root, expected=expected, found="no object that has them")
    return Missing(ledger, first, last, fault)
