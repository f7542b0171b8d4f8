"""The columns that values become: bytes, or what their schema says."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkcache import arrays
from sparkcache_pulsar import columns
from sparkcache_pulsar.faults import DamagedMessageError
from sparkcache_pulsar.messages import Messages, select
from sparkcache_pulsar.schemas import Decoding, Mode, Spec
from sparkcache_pulsar.schemas.decoded import Decoded
from sparkcache_pulsar.schemas.decoders import decoder
from sparkcache_pulsar.schemas.pairs import PairDecoder
from sparkcache_pulsar.schemas.spec import SEPARATED

if TYPE_CHECKING:
    from sparkcache_pulsar.faults import Faults

CORRUPT = "__corruptValue"

AT_ONCE_BYTES = 8 << 20
"""What is decoded at once. Values can be Python objects for a while, which take many
times the room, and an entry can unfold to more than memory has for that.
"""

_AS_THEY_ARE = Decoding(Spec("BYTES"), Mode.FAILFAST)


@lru_cache(maxsize=64)
def values(decoding: str) -> Values:
    """Return the columns of a ledger's decoding; raises ConfigError."""
    return Values(Decoding.from_text(decoding) if decoding else _AS_THEY_ARE)


class Values:
    """Makes the columns of values.

    Where a value does not decode, FAILFAST gives up its entry; PERMISSIVE makes it null
    and keeps its bytes in a column of their own.

    Attributes:
        fields: Of the columns.

    """

    def __init__(self, decoding: Decoding) -> None:
        self._spec = decoding.spec
        self._is_permissive = decoding.mode is Mode.PERMISSIVE
        self._decoder = decoder(decoding.spec)
        self.fields = [pa.field("value", self._decoder.type)]
        if self._is_permissive:
            self.fields.append(pa.field(CORRUPT, pa.binary()))

    def __repr__(self) -> str:
        return f"Values({self._spec.type}, {self._decoder.type})"

    def of(self, messages: Messages, faults: Faults) -> tuple[Messages, list[pa.Array]]:
        """Return the columns of messages, and the messages that are left."""
        payloads = arrays.binary(messages.buffer, messages.value)
        decoded = self._decode(messages, payloads)
        found = [decoded.array]
        if self._is_permissive:
            found.append(_corrupt(payloads, decoded.faults))
        elif decoded.faults:
            for row, what in sorted(decoded.faults.items()):
                faults.add(int(messages.entry[row]), self._decoder.expected, what)
            keep = faults.sound[messages.entry]
            messages = select(messages, keep)
            found = [one.filter(pa.array(keep)) for one in found]
        return messages, found

    def of_payload(self, payload: bytes, key: pa.Array) -> list[pa.Array]:
        """Return the columns of one value; raises DamagedMessageError."""
        payloads = pa.array([payload], pa.binary())
        decoded = self._decode_part(
            payloads, key if self._spec.encoding == SEPARATED else None
        )
        if self._is_permissive:
            return [decoded.array, _corrupt(payloads, decoded.faults)]
        if decoded.faults:
            raise DamagedMessageError(self._decoder.expected, decoded.faults[0])
        return [decoded.array]

    def _decode(self, messages: Messages, payloads: pa.Array) -> Decoded:
        """Decode payloads, those of a very large entry by and by."""
        keys = columns.keys(messages) if self._spec.encoding == SEPARATED else None
        reached = np.cumsum(messages.value.length) // AT_ONCE_BYTES
        starts = np.flatnonzero(np.diff(reached)) + 1
        if not len(starts):
            return self._decode_part(payloads, keys)
        parts: list[pa.Array] = []
        faults: dict[int, str] = {}
        for rows in np.split(np.arange(len(payloads)), starts):
            taken = pa.array(rows)
            some_keys = None if keys is None else keys.take(taken)
            part = self._decode_part(payloads.take(taken), some_keys)
            parts.append(part.array)
            faults |= {int(rows[row]): what for row, what in part.faults.items()}
        return Decoded(pa.concat_arrays(parts), faults)

    def _decode_part(self, payloads: pa.Array, keys: pa.Array | None) -> Decoded:
        if keys is not None and isinstance(self._decoder, PairDecoder):
            return self._decoder.decode_separated(keys, payloads)
        return self._decoder.decode(payloads)


def _corrupt(payloads: pa.Array, faults: dict[int, str]) -> pa.Array:
    """Return the payloads at fault. Where the fault is a key's there may be none."""
    if not faults:
        return pa.nulls(len(payloads), pa.binary())
    at_fault = np.zeros(len(payloads), np.bool_)
    at_fault[list(faults)] = True
    kept = payloads.fill_null(b"")
    return kept.take(pa.array(np.arange(len(payloads)), mask=~at_fault))
