"""Decode values into columns: as bytes, or by their schema."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkcache import arrays
from sparkcache_pulsar import columns
from sparkcache_pulsar.faults import DamagedMessageError
from sparkcache_pulsar.messages import Messages, select
from sparkcache_pulsar.schemas import Mode, Spec, ValueDecoding
from sparkcache_pulsar.schemas.decoded import Decoded
from sparkcache_pulsar.schemas.decoders import decoder
from sparkcache_pulsar.schemas.pairs import PairDecoder
from sparkcache_pulsar.schemas.spec import SEPARATED

if TYPE_CHECKING:
    from sparkcache_pulsar.faults import Faults

CORRUPT = "__corruptValue"

AT_ONCE_BYTES = 8 << 20
"""How many bytes of values to decode at once. Values may become Python objects for a
while, which take many times the memory, and a whole entry could exceed the memory.
"""

_PLAIN_BYTES = ValueDecoding(Spec("BYTES"), Mode.FAILFAST)


@lru_cache(maxsize=64)
def values(decoding: ValueDecoding | None) -> Values:
    """Return the decoder of value columns; raises ConfigError."""
    return Values(decoding or _PLAIN_BYTES)


class Values:
    """The decoder of value columns.

    If a value does not decode, FAILFAST drops its entry as lost; PERMISSIVE makes the
    value null and keeps its bytes in a separate column.

    Attributes:
        fields: The fields of the columns.

    """

    def __init__(self, decoding: ValueDecoding) -> None:
        self._spec = decoding.spec
        self._is_permissive = decoding.mode is Mode.PERMISSIVE
        self._decoder = decoder(decoding.spec)
        self.fields = [pa.field("value", self._decoder.type)]
        if self._is_permissive:
            self.fields.append(pa.field(CORRUPT, pa.binary()))

    def __repr__(self) -> str:
        return f"Values({self._spec.type}, {self._decoder.type})"

    def message_columns(
        self, messages: Messages, faults: Faults
    ) -> tuple[Messages, list[pa.Array]]:
        """Return the remaining messages, and their value columns."""
        payloads = arrays.binary(messages.buffer, messages.value)
        decoded = self._decode(messages, payloads)
        value_columns = [decoded.array]
        if self._is_permissive:
            value_columns.append(_corrupt(payloads, decoded.faults))
        elif decoded.faults:
            for row, fault in sorted(decoded.faults.items()):
                faults.add(int(messages.entry[row]), self._decoder.expected, fault)
            keep = faults.sound[messages.entry]
            messages = select(messages, keep)
            value_columns = [array.filter(pa.array(keep)) for array in value_columns]
        return messages, value_columns

    def payload_columns(self, payload: bytes | None, key: pa.Array) -> list[pa.Array]:
        """Return the value columns of one payload; raises DamagedMessageError.

        The payload is None for a tombstone.
        """
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
        """Decode payloads; those of a very large entry in several parts."""
        keys = columns.keys(messages) if self._spec.encoding == SEPARATED else None
        part_number = np.cumsum(messages.value.length) // AT_ONCE_BYTES
        starts = np.flatnonzero(np.diff(part_number)) + 1
        if not len(starts):
            return self._decode_part(payloads, keys)
        parts: list[pa.Array] = []
        faults: dict[int, str] = {}
        for rows in np.split(np.arange(len(payloads)), starts):
            indices = pa.array(rows)
            part_keys = None if keys is None else keys.take(indices)
            part = self._decode_part(payloads.take(indices), part_keys)
            parts.append(part.array)
            faults |= {int(rows[row]): fault for row, fault in part.faults.items()}
        return Decoded(pa.concat_arrays(parts), faults)

    def _decode_part(self, payloads: pa.Array, keys: pa.Array | None) -> Decoded:
        if keys is not None and isinstance(self._decoder, PairDecoder):
            return self._decoder.decode_separated(keys, payloads)
        return self._decoder.decode(payloads)


def _corrupt(payloads: pa.Array, faults: dict[int, str]) -> pa.Array:
    """Return the payloads with faults; empty if a key has the fault without payload."""
    if not faults:
        return pa.nulls(len(payloads), pa.binary())
    has_fault = np.zeros(len(payloads), np.bool_)
    has_fault[list(faults)] = True
    filled = payloads.fill_null(b"")
    return filled.take(pa.array(np.arange(len(payloads)), mask=~has_fault))
