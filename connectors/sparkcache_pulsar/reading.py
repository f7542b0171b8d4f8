"""The settings that turn entries into rows, from the options, as one text."""

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
    split_isolation,
    with_isolation,
)
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


def decoding(options: Mapping[str, str]) -> str:
    """Return the text that `reading` parses; empty for plain, unencrypted bytes.

    Raises ConfigError.
    """
    value_decoding = schemas.decoding(options)
    text = "" if value_decoding is None else value_decoding.to_text()
    text = with_isolation(isolation_of(options), text)
    return decryption(options).with_rest(text)


@lru_cache(maxsize=64)
def reading(text: str) -> Reading:
    """Parse a text of `decoding`; raises ConfigError."""
    decryption_settings, rest = Decryption.parse(text)
    isolation, value_decoding = split_isolation(rest)
    value_columns = values(value_decoding)
    fields = [*ENVELOPE, *value_columns.fields]
    if isolation is Isolation.UNCOMMITTED:
        fields.insert(len(ENVELOPE), STATE)
    if decryption_settings.consume:
        fields.append(ENCRYPTION)
    return Reading(decryption_settings, isolation, value_columns, pa.schema(fields))
