"""How entries become rows: what the options say of it, in one text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sparkcache_pulsar import schemas
from sparkcache_pulsar.encryption.column import ENCRYPTION
from sparkcache_pulsar.encryption.given import Decryption, decryption
from sparkcache_pulsar.values import Values, values

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Reading:
    """How entries become rows.

    Attributes:
        decryption: How payloads are decrypted.
        values: What values become.
        schema: Of rows.

    """

    decryption: Decryption
    values: Values
    schema: pa.Schema


def decoding(options: Mapping[str, str]) -> str:
    """Return what `reading` takes; empty where values are bytes, and not encrypted.

    Raises ConfigError.
    """
    found = schemas.decoding(options)
    return decryption(options).with_rest("" if found is None else found.to_text())


@lru_cache(maxsize=64)
def reading(text: str) -> Reading:
    """Return what `decoding` says; raises ConfigError."""
    how, of_values = Decryption.parse(text)
    found = values(of_values)
    schema = found.schema.append(ENCRYPTION) if how.consume else found.schema
    return Reading(how, found, schema)
