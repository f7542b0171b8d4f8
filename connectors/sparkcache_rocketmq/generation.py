"""Digest of an object's first record, which distinguishes objects of the same name.

An object that grows has no version. If its topic is deleted and created again, the
object starts with another first record. A digest of that record is the first line of
`Ledger.decoding`; the text that describes the decoding follows.
"""

from __future__ import annotations

from hashlib import blake2b

_PREFIX_BYTES = 88  # less than the shortest record, so appending never changes them


def with_generation(beginning: bytes, decoding: str) -> str:
    """Return the `Ledger.decoding` of an object with these first bytes."""
    digest = blake2b(beginning[:_PREFIX_BYTES], digest_size=8).hexdigest()
    return f"generation {digest}\n{decoding}"
