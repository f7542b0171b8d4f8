"""A task's first message in its compact form: each ledger is sent once.

A scan has many slices of a ledger, and a ledger may be large: it includes how it is
decoded, which for a data file of a table includes the list of deleted rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.fetch.scan import RunSlice, Scan
from sparkcache.node.messages import Open, PackedOpen, PackedSlice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.model import Ledger


def packed(message: Open) -> PackedOpen:
    """Return the compact form of a message."""
    ledgers, slices, following = pack_slices(message.scan.slices, message.following)
    return PackedOpen(
        message.version,
        message.scan.root,
        message.scan.storage,
        message.scan.config,
        ledgers,
        slices,
        message.reader,
        message.epoch,
        message.settings,
        message.plans,
        following,
        message.group,
        message.authority,
        message.place,
        message.can_load,
    )


def pack_slices(
    slices: tuple[RunSlice, ...], following: tuple[tuple[int, RunSlice], ...]
) -> tuple[
    tuple[Ledger, ...], tuple[PackedSlice, ...], tuple[tuple[int, PackedSlice], ...]
]:
    """Return the ledgers of slices, each once, and the slices that refer to them."""
    numbers: dict[Ledger, int] = {}

    def pack(run_slice: RunSlice) -> PackedSlice:
        number = numbers.setdefault(run_slice.ledger, len(numbers))
        return PackedSlice(
            number,
            run_slice.extent,
            run_slice.runs,
            run_slice.start,
            run_slice.stop,
            run_slice.topic_offset,
            run_slice.reads,
        )

    packed_slices = tuple(map(pack, slices))
    packed_following = tuple((part, pack(first)) for part, first in following)
    return tuple(numbers), packed_slices, packed_following


def unpacked(opening: PackedOpen) -> Open:
    """Return the message of a compact form; raises ValueError if it is invalid."""
    slices = tuple(unpack_slice(part, opening.ledgers) for part in opening.parts)
    following = [
        (partition, unpack_slice(part, opening.ledgers))
        for partition, part in opening.following
    ]
    return Open(
        opening.version,
        Scan(opening.root, opening.storage, opening.config, slices),
        opening.reader,
        opening.epoch,
        opening.settings,
        opening.plans,
        tuple(following),
        opening.group,
        opening.authority,
        place=opening.place,
        can_load=opening.can_load,
    )


def unpack_slice(part: PackedSlice, ledgers: Sequence[Ledger]) -> RunSlice:
    """Return a slice with its ledger; raises ValueError if there is no such ledger."""
    if not 0 <= part.ledger < len(ledgers):
        raise ValueError(f"ledger {part.ledger} of a message with {len(ledgers)}")
    ledger = ledgers[part.ledger]
    return RunSlice(
        ledger,
        part.extent,
        part.runs,
        part.start,
        part.stop,
        part.topic_offset,
        part.reads,
    )
