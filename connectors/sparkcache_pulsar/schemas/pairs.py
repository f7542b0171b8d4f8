"""Decode values of KEY_VALUE schemas: a struct of key and value.

INLINE: the payload contains both, each after its length, which is -1 for null:

    int32, key, int32, value        big-endian

SEPARATED: the key is the message's key, and the payload contains only the value.

Source: KeyValue of Apache Pulsar's client. Different here: extra bytes are a fault.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from sparkcache_pulsar.schemas.decoded import Decoded, Decoder

_LENGTH = struct.Struct(">i")


class PairDecoder:
    """Decoder of keys and values, each with its own schema."""

    expected = "a KEY_VALUE pair"

    def __init__(self, key: Decoder, value: Decoder) -> None:
        self._key, self._value = key, value
        self.type = pa.struct([("key", key.type), ("value", value.type)])

    def __repr__(self) -> str:
        return f"PairDecoder({self.type})"

    def decode(self, payloads: pa.Array) -> Decoded:
        """Decode INLINE pairs."""
        faults: dict[int, str] = {}
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for row, payload in enumerate(payloads.to_pylist()):
            key = value = None
            if payload is not None:
                try:
                    key, end = _part(payload, 0)
                    value, end = _part(payload, end)
                    if end != len(payload):
                        faults[row] = f"{len(payload) - end} bytes after the pair"
                except (struct.error, ValueError):
                    faults[row] = f"lengths that exceed the {len(payload)} bytes"
            keys.append(key)
            values.append(value)
        for row in faults:
            keys[row] = values[row] = None
        present = payloads.is_valid().to_numpy(zero_copy_only=False)
        return self._pairs(
            pa.array(keys, pa.binary()), pa.array(values, pa.binary()), present, faults
        )

    def decode_separated(self, keys: pa.Array, values: pa.Array) -> Decoded:
        """Decode SEPARATED pairs; a key without a value is a pair too."""
        return self._pairs(keys, values, np.ones(len(keys), np.bool_), {})

    def _pairs(
        self,
        keys: pa.Array,
        values: pa.Array,
        present: np.ndarray,
        faults: dict[int, str],
    ) -> Decoded:
        key, value = self._key.decode(keys), self._value.decode(values)
        for name, part, decoder in (
            ("key", key, self._key),
            ("value", value, self._value),
        ):
            for row, found in part.faults.items():
                faults.setdefault(row, f"{name}: not {decoder.expected}: {found}")
        present[list(faults)] = False
        pairs = pa.StructArray.from_arrays(
            [key.array, value.array],
            fields=list(self.type),
            mask=pa.array(~present),
        )
        return Decoded(pairs, faults)


def _part(payload: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(payload, position)
    start = position + _LENGTH.size
    if length == -1:
        return None, start
    if not 0 <= length <= len(payload) - start:
        raise ValueError
    return payload[start : start + length], start + length
