"""How entries become rows: what the options say of it, in one text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache_pulsar import schemas
from sparkcache_pulsar.columns import ENVELOPE
from sparkcache_pulsar.encryption.column import ENCRYPTION
from sparkcache_pulsar.encryption.options import Decryption, decryption
from sparkcache_pulsar.isolation import (
    STATE,
    Isolation,
    isolation_of,
    parted,
    with_isolation,
)
from sparkcache_pulsar.values import Values, values

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Reading:
    """How entries become rows.

    Attributes:
        decryption: How payloads are decrypted.
        isolation: Which messages of transactions are wanted.
        values: What values become.
        schema: Of rows.

    """

    decryption: Decryption
    isolation: Isolation
    values: Values
    schema: pa.Schema


def decoding(options: Mapping[str, str]) -> str:
    """Return what `reading` takes; empty where values are bytes, and not encrypted.

    Raises ConfigError.
    """
    found = schemas.decoding(options)
    text = "" if found is None else found.to_text()
    text = with_isolation(isolation_of(options), text)
    return decryption(options).with_rest(text)


@lru_cache(maxsize=64)
def reading(text: str) -> Reading:
    """Return what `decoding` says; raises ConfigError."""
    how, rest = Decryption.parse(text)
    isolation, of_values = parted(rest)
    found = values(of_values)
    fields = [*ENVELOPE, *found.fields]
    if isolation is Isolation.UNCOMMITTED:
        fields.insert(len(ENVELOPE), STATE)
    if how.consume:
        fields.append(ENCRYPTION)
    return Reading(how, isolation, found, pa.schema(fields))
