"""Choose which uploads of a ledger to read, so that each entry is read once.

A ledger that was offloaded more than once has several uploads. They are equal, since a
ledger is closed before it is offloaded, so any complete one will do: the one that the
manifest names, else the one with the least uuid. The index of a file does not say
whether the file is complete, so the ends are read if a ledger has several uploads.

An upload in the streaming format may be a piece of its ledger. Pieces are read one
after the other, each up to the start of the next. So is what can be read of uploads
with a fault, if no upload of the whole ledger is without one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkcache.connector import LedgerMap
from sparkcache.errors import SourceError
from sparkcache.model import UNKNOWN_END, Loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sparkcache.model import Extent, Ledger
    from sparkcache_pulsar.manifest import Listed
    from sparkcache_pulsar.uploads import Upload

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Missing:
    """Entries of a ledger that should be stored, and why they cannot be read."""

    ledger: int
    first: int
    last: int
    fault: SourceError

    def as_loss(self) -> Loss:
        """Return these entries as a loss of a snapshot."""
        fault = self.fault
        location = fault.uri, fault.offset or 0, self.ledger
        return Loss(*location, self.first, self.last, fault.expected, fault.found)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How to read a ledger: from one object, or from several in order of entries."""

    maps: tuple[LedgerMap, ...] = ()
    missing: tuple[Missing, ...] = ()


def is_whole(uploads: Sequence[Upload], topic: str, listed: Listed | None) -> bool:
    """Return whether a ledger has one upload, which is that of the whole ledger.

    Then there is nothing to choose, as for most ledgers.
    """
    if len(uploads) != 1:
        return False
    (upload,) = uploads
    is_named = listed is None or listed.uuid in (None, upload.uuid)
    is_sound = upload.fault is None and not upload.is_piece
    return is_sound and is_named and upload.topic == topic


def cover(
    uploads: Sequence[Upload],
    listed: Listed | None,
    root: str,
    as_ledger: Callable[[Upload], Ledger],
    last: Callable[[Ledger, Extent], int | None],
) -> Coverage:
    """Choose among the uploads of a ledger, which are all of one topic.

    `last` finds the last entry of an extent from the data; it returns None if the data
    do not show it.
    """
    whole = [upload for upload in uploads if not upload.is_piece]
    sound = [upload for upload in whole if upload.fault is None]
    if sound:
        if len(sound) > 1:
            complete = [
                upload for upload in sound if _is_complete(upload, as_ledger, last)
            ]
            sound = complete or sound
        chosen = _preferred(sound, listed)
        return Coverage((LedgerMap(as_ledger(chosen), chosen.extents),))
    pieces = [_with_known_end(upload, as_ledger, last) for upload in uploads]
    chain = _chain(piece for piece in pieces if piece.extents)
    maps = tuple(LedgerMap(as_ledger(piece), piece.extents) for piece in chain)
    return Coverage(maps, tuple(_gaps(chain, pieces, listed, root)))


def _is_complete(
    upload: Upload,
    as_ledger: Callable[[Upload], Ledger],
    last: Callable[[Ledger, Extent], int | None],
) -> bool:
    """Return whether the last entry of an upload is stored."""
    if upload.ends_here:
        return True
    last_extent = upload.extents[-1]
    try:
        return last(as_ledger(upload), last_extent) == last_extent.last
    except SourceError:
        return False


def _with_known_end(
    piece: Upload,
    as_ledger: Callable[[Upload], Ledger],
    last: Callable[[Ledger, Extent], int | None],
) -> Upload:
    """Leave out the entries that a piece could have but does not have."""
    if piece.ends_here or not piece.extents:
        return piece
    try:
        end = last(as_ledger(piece), piece.extents[-1])
    except SourceError as error:  # such as an object deleted since it was listed
        return replace(piece, extents=(), fault=error)
    if end is None:
        return piece
    last_here = piece.last if piece.fault else end
    return replace(_truncated(piece, end), last=last_here, ends_here=True)


def _preferred(sound: Sequence[Upload], listed: Listed | None) -> Upload:
    if listed is None or listed.uuid is None:
        return sound[0]
    for upload in sound:
        if upload.uuid == listed.uuid:
            return upload
    _log.warning(
        "ledger %d: the manifest names upload %s, which cannot be read; reading upload "
        "%s instead",
        sound[0].ledger,
        listed.uuid,
        sound[0].uuid,
    )
    return sound[0]


def unreadable(upload: Upload) -> Missing:
    """Return all entries of an unreadable upload."""
    assert upload.fault is not None
    return Missing(upload.ledger, upload.first, upload.last, upload.fault)


def _truncated(piece: Upload, last: int) -> Upload:
    """Leave out the entries after `last`."""
    extents = tuple(
        replace(extent, last=min(extent.last, last))
        for extent in piece.extents
        if extent.first <= last
    )
    return replace(piece, extents=extents)


def _chain(pieces: Iterable[Upload]) -> list[Upload]:
    """Return pieces that have every entry once, in the order of entries.

    If two overlap, the earlier one is truncated, since only the end of an extent can
    be left out.
    """
    chain: list[Upload] = []
    for piece in sorted(pieces, key=_by_first_then_longest):
        if not chain or _extends(chain[-1], piece):
            if chain:
                chain[-1] = _truncated(chain[-1], piece.extents[0].first - 1)
            chain.append(piece)
    return chain


def _by_first_then_longest(piece: Upload) -> tuple[int, int]:
    return piece.extents[0].first, -piece.extents[-1].last


def _extends(previous: Upload, piece: Upload) -> bool:
    """Return whether a piece has, or may have, entries that the previous one lacks."""
    last = previous.extents[-1]
    is_end_unknown = not previous.ends_here and piece.extents[0].first > last.first
    return is_end_unknown or piece.extents[-1].last > last.last


def _gaps(
    chain: Sequence[Upload],
    pieces: Sequence[Upload],
    listed: Listed | None,
    root: str,
) -> Iterator[Missing]:
    """Yield the entries missing before, between and after the pieces of a chain.

    Ledgers start with entry 0. They end with the last entry that any piece should have,
    readable or not, or that the manifest lists.
    """
    lasts = [piece.last for piece in pieces if piece.last < UNKNOWN_END]
    is_closed = not all(piece.is_piece for piece in pieces)
    if listed and listed.entries and (listed.is_offloaded or is_closed):
        lasts.append(listed.entries - 1)
    last = max(lasts, default=UNKNOWN_END)
    expected = 0
    for piece in chain:
        if piece.extents[0].first > expected:
            yield _missing(pieces, root, expected, piece.extents[0].first - 1)
        expected = piece.extents[-1].last + 1
    if expected <= last:
        yield _missing(pieces, root, expected, last)


def _missing(pieces: Sequence[Upload], root: str, first: int, last: int) -> Missing:
    """Return entries as missing, with the fault of a piece that should have any."""
    ledger = pieces[0].ledger
    for piece in pieces:
        has_some = piece.first <= last and piece.last >= first
        if piece.fault is not None and has_some:
            return Missing(ledger, first, last, piece.fault)
    return not_stored(root, ledger, first, last)


def not_stored(root: str, ledger: int, first: int, last: int) -> Missing:
    """Return entries as missing that should be in the bucket, but are in no object."""
    expected = f"entries {first} to {last} of ledger {ledger}"
    if last == UNKNOWN_END:
        expected = f"all entries of ledger {ledger}"
    fault = SourceError(root, expected=expected, found="no object with these entries")
    return Missing(ledger, first, last, fault)
