"""What tells an object from another that has its name: how it begins.

An object that grows has no version. If its topic is deleted and created anew, another
first record lies at its beginning. A digest of that stands in a line before what says
how to decode records, in `Ledger.decoding`.
"""

from __future__ import annotations

from hashlib import blake2b

_MARK_BYTES = 88  # the shortest record has more: what is appended changes none of them


def with_generation(beginning: bytes, decoding: str) -> str:
    """Return what `Ledger.decoding` is, of an object that begins so."""
    mark = blake2b(beginning[:_MARK_BYTES], digest_size=8).hexdigest()
    return f"generation {mark}\n{decoding}"
