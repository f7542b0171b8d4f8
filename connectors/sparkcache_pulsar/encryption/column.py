"""The column of what is delivered as it was encrypted: what it takes to decrypt it."""

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
"""As Pulsar's EncryptionContext."""


class Sealed(TypedDict):
    """What the metadata of an encrypted entry says of its payload.

    Attributes:
        keys: The data key by key name, encrypted for the owner of each.
        algorithm: Which nobody has set yet.
        parameter: AES-GCM's initialization vector.
        compression: Of what comes out.
        uncompressedSize: Bytes, once that is decompressed.
        batchSize: Messages in it; None if it is no batch.

    """

    keys: list[tuple[str, bytes]]
    algorithm: str | None
    parameter: bytes
    compression: str
    uncompressedSize: int
    batchSize: int | None


def column(sealed: Mapping[int, Sealed], entry: Ints) -> pa.Array:
    """Return the column for messages of these entries; null where not sealed."""
    lanes = list(sealed)
    if not np.isin(entry, lanes).any():
        return pa.nulls(len(entry), ENCRYPTION.type)
    return pa.array([sealed.get(lane) for lane in entry.tolist()], ENCRYPTION.type)
