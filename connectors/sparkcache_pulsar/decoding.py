"""Everything that decoding a ledger depends on, as one value.

Its text is `Ledger.decoding`, the only field of a ledger that a connector may use for
its own data. It is a part of run keys, so it is canonical: equal values have the same
text. The text of a scan is that of its ledgers in the classic format.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from sparkcache.errors import ConfigError
from sparkcache_pulsar.encryption.options import Decryption
from sparkcache_pulsar.isolation import Isolation
from sparkcache_pulsar.schemas.spec import MAX_TEXT_BYTES, ValueDecoding
from sparkcache_pulsar.sequencefile import Layout

if TYPE_CHECKING:
    from sparkcache.model import Ledger

_LONG_BYTES = 1 << 10


class Streaming(msgspec.Struct, frozen=True, tag="streaming"):
    """Records of the streaming format (PIP-76)."""


Form: TypeAlias = Streaming | Layout | None
"""How the records of a ledger are stored; None for the classic format."""


class Decoding(msgspec.Struct, frozen=True):
    """How the entries of a ledger become rows.

    Attributes:
        form: How its records are stored.
        decryption: How to decrypt payloads.
        isolation: Which messages of transactions to read.
        values: How to decode values into columns; None to deliver their bytes.

    """

    form: Form = None
    decryption: Decryption = Decryption()
    isolation: Isolation = Isolation.COMMITTED
    values: ValueDecoding | None = None

    @classmethod
    def parse(cls, text: str) -> Decoding:
        """Parse the output of `str`."""
        return _parse(text)

    def __str__(self) -> str:
        """Return the canonical text; empty if all fields have their defaults.

        Raises ConfigError if it would be too long.
        """
        if self == Decoding():
            return ""
        packed = b"" if self.values is None else _packed(self.values)
        text = _Text(
            self.form,
            None if self.decryption == Decryption() else self.decryption,
            self.isolation,
            None if packed else self.values,
            packed,
        )
        return msgspec.json.encode(text).decode()

    def with_form(self, form: Form) -> Decoding:
        """Return the decoding of a ledger whose records are stored in a form."""
        return msgspec.structs.replace(self, form=form)


class _Text(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decoding as it is written, with long schemas compressed in `packed`."""

    form: Form = None
    decryption: Decryption | None = None
    isolation: Isolation = Isolation.COMMITTED
    values: ValueDecoding | None = None
    packed: bytes = b""


def form_of(ledger: Ledger) -> Form:
    """Return the form in which a ledger's records are stored."""
    return _parse(ledger.decoding).form


# Ledgers may have texts of their own, but all of a scan share the values' part.


@lru_cache(maxsize=1024)
def _parse(text: str) -> Decoding:
    if not text:
        return Decoding()
    parsed = msgspec.json.decode(text, type=_Text)
    return Decoding(
        parsed.form,
        parsed.decryption or Decryption(),
        parsed.isolation,
        _unpacked(parsed.packed) if parsed.packed else parsed.values,
    )


@lru_cache(maxsize=64)
def _packed(values: ValueDecoding) -> bytes:
    """Return a long schema, compressed; empty for a short one."""
    data = msgspec.json.encode(values)
    if len(data) <= _LONG_BYTES:
        return b""
    packed = zlib.compress(data, 9)
    text_bytes = -(-len(packed) // 3) * 4
    if text_bytes > MAX_TEXT_BYTES:
        raise ConfigError(
            f"option valueSchema: the schema has {len(data)} bytes, {text_bytes} "
            f"when compressed; must have at most {MAX_TEXT_BYTES} compressed, "
            "because every ledger carries it"
        )
    return packed


@lru_cache(maxsize=64)
def _unpacked(packed: bytes) -> ValueDecoding:
    return msgspec.json.decode(zlib.decompress(packed), type=ValueDecoding)
