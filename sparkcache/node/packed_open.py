"""What a task says first, on its way to the node: each ledger once.

A scan has many stretches of a ledger, and a ledger may be large: how it is decoded is
part of it, which for a file of a table says what rows of it are deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkcache.fetch.scan import RunSlice, Scan
from sparkcache.node.messages import Open, PackedOpen, PackedSlice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.model import Ledger


def packed(message: Open) -> PackedOpen:
    """Return what to send for a message."""
    numbers: dict[Ledger, int] = {}

    def part(of: RunSlice) -> PackedSlice:
        number = numbers.setdefault(of.ledger, len(numbers))
        return PackedSlice(number, of.extent, of.runs, of.start, of.stop, of.at)

    parts = tuple(map(part, message.scan.slices))
    following = tuple((at, part(of)) for at, of in message.following)
    return PackedOpen(
        message.version,
        message.scan.root,
        message.scan.config,
        tuple(numbers),
        parts,
        message.reader,
        message.epoch,
        message.settings,
        message.plans,
        following,
        message.group,
    )


def unpacked(opening: PackedOpen) -> Open:
    """Return the message that was sent so; raises ValueError if it is none."""
    slices = tuple(_run_slice(of, opening.ledgers) for of in opening.parts)
    following = [(at, _run_slice(of, opening.ledgers)) for at, of in opening.following]
    return Open(
        opening.version,
        Scan(opening.root, opening.config, slices),
        opening.reader,
        opening.epoch,
        opening.settings,
        opening.plans,
        tuple(following),
        opening.group,
    )


def _run_slice(of: PackedSlice, ledgers: Sequence[Ledger]) -> RunSlice:
    if not 0 <= of.ledger < len(ledgers):
        raise ValueError(f"ledger {of.ledger} of {len(ledgers)}")
    ledger = ledgers[of.ledger]
    return RunSlice(ledger, of.extent, of.runs, of.start, of.stop, of.at)
