"""The column that holds what is needed to decrypt a payload delivered encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.arrays import Ints

ENCRYPTION = pa.field(
    "__encryption",
    pa.struct(
        [
            ("keys", pa.map_(pa.string(), pa.binary())),
            ("algorithm", pa.string()),
            ("parameter", pa.binary()),
            ("compression", pa.string()),
            ("uncompressedSize", pa.int32()),
            ("batchSize", pa.int32()),
        ]
    ),
)
"""The same content as Pulsar's EncryptionContext."""


class Sealed(TypedDict):
    """The metadata of an encrypted entry that describe its payload.

    Attributes:
        keys: The encrypted data key by key name, encrypted for the owner of each name.
        algorithm: The encryption algorithm; no known producer sets it.
        parameter: AES-GCM's initialization vector.
        compression: Compression of the decrypted payload.
        uncompressedSize: Bytes of the payload after decryption and decompression.
        batchSize: Number of messages in the payload; None if it is not a batch.

    """

    keys: list[tuple[str, bytes]]
    algorithm: str | None
    parameter: bytes
    compression: str
    uncompressedSize: int
    batchSize: int | None


def column(sealed: Mapping[int, Sealed], entry: Ints) -> pa.Array:
    """Return the column for messages of these entries; null for decrypted ones."""
    lanes = list(sealed)
    if not np.isin(entry, lanes).any():
        return pa.nulls(len(entry), ENCRYPTION.type)
    return pa.array([sealed.get(lane) for lane in entry.tolist()], ENCRYPTION.type)
