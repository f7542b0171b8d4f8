"""How the records of a ledger are stored: a line before what says how to decode them.

Both are in `Ledger.decoding`, the one place where something of a ledger is kept that
reading it needs. Ledgers of the classic format have no such line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkcache.model import Ledger

STREAMING = "streaming"
SEQUENCE_FILE = "sequencefile"

_BEGINNINGS = (f"{STREAMING}\n", f"{SEQUENCE_FILE}/")


def with_form(form: str, decoding: str) -> str:
    """Return what `Ledger.decoding` is."""
    return f"{form}\n{decoding}" if form else decoding


def form_of(ledger: Ledger) -> str:
    """Return how a ledger's records are stored; empty for the classic format."""
    return _parted(ledger.decoding)[0]


def without_form(decoding: str) -> str:
    """Return what says how to decode records, however they are stored."""
    return _parted(decoding)[1]


def _parted(decoding: str) -> tuple[str, str]:
    if not decoding.startswith(_BEGINNINGS):
        return "", decoding
    form, _, rest = decoding.partition("\n")
    return form, rest
