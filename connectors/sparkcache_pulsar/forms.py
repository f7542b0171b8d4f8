"""The storage form of a ledger's records, as a line before their decoding.

Both are in `Ledger.decoding`, the only field of a ledger that a connector may use for
its own data. Ledgers of the classic format have no such line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkcache.model import Ledger

STREAMING = "streaming"
SEQUENCE_FILE = "sequencefile"

_BEGINNINGS = (f"{STREAMING}\n", f"{SEQUENCE_FILE}/")


def with_form(form: str, decoding: str) -> str:
    """Return the text of `Ledger.decoding`."""
    return f"{form}\n{decoding}" if form else decoding


def form_of(ledger: Ledger) -> str:
    """Return the form of a ledger's records; empty for the classic format."""
    return _split(ledger.decoding)[0]


def without_form(decoding: str) -> str:
    """Return the decoding of records without their form."""
    return _split(decoding)[1]


def _split(decoding: str) -> tuple[str, str]:
    if not decoding.startswith(_BEGINNINGS):
        return "", decoding
    form, _, rest = decoding.partition("\n")
    return form, rest
