"""The settings that turn entries into rows, from the options of a scan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkcache_pulsar import schemas
from sparkcache_pulsar.columns import ENVELOPE
from sparkcache_pulsar.decoding import Decoding
from sparkcache_pulsar.encryption.column import ENCRYPTION
from sparkcache_pulsar.encryption.options import Decryption, decryption
from sparkcache_pulsar.isolation import STATE, Isolation, isolation_of
from sparkcache_pulsar.values import Values, values

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings that turn entries into rows.

    Attributes:
        decryption: How to decrypt payloads.
        isolation: Which messages of transactions to read.
        values: How to decode values into columns.
        schema: The schema of rows.

    """

    decryption: Decryption
    isolation: Isolation
    values: Values
    schema: pa.Schema


def decoding(options: Mapping[str, str]) -> Decoding:
    """Return the decoding of a scan's ledgers; raises ConfigError."""
    return Decoding(
        values=schemas.decoding(options),
        isolation=isolation_of(options),
        decryption=decryption(options),
    )


def reading(text: str) -> Reading:
    """Return the settings of the text of a decoding; raises ConfigError."""
    return _reading(Decoding.parse(text).with_form(None))


@lru_cache(maxsize=64)
def _reading(decoding: Decoding) -> Reading:
    value_columns = values(decoding.values)
    fields = [*ENVELOPE, *value_columns.fields]
    if decoding.isolation is Isolation.UNCOMMITTED:
        fields.insert(len(ENVELOPE), STATE)
    if decoding.decryption.consume:
        fields.append(ENCRYPTION)
    schema = pa.schema(fields)
    return Reading(decoding.decryption, decoding.isolation, value_columns, schema)
