"""Decrypt the payloads of entries, in their buffer.

Decryption is the first step of decoding a payload, because an encrypted payload may be
compressed, a batch, or a chunk.

Without its key an entry is a loss or, if the options ask for it, is delivered
encrypted, as a message that is neither compressed nor a batch. A damaged entry is
always a loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparkcache_pulsar import codecs
from sparkcache_pulsar import entries as fields
from sparkcache_pulsar.encryption.requirement import require_cryptography
from sparkcache_pulsar.protobuf import Kind, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkcache_pulsar.encryption.column import Sealed
    from sparkcache_pulsar.encryption.options import Decryption
    from sparkcache_pulsar.encryption.private_keys import DataKey, KeyFile
    from sparkcache_pulsar.entries import Entries
    from sparkcache_pulsar.faults import Faults

PARAMETER_BYTES = 12
TAG_BYTES = 16

MAX_ENCRYPTED_KEY_BYTES = 4096
"""Twice the size for an RSA key of 16,384 bits; longer ones are not worth remembering.
"""

_NAME, _VALUE = 1, 2
_KEY_FIELDS = {_NAME: Kind.RANGE, _VALUE: Kind.RANGE}
_MAX_NAMES, _MAX_NAME = 5, 60  # in an error message


def decrypt(
    entries: Entries, decryption: Decryption, faults: Faults
) -> dict[int, Sealed]:
    """Decrypt the entries that have keys; return those to deliver encrypted, by lane.

    Raises SourceError if a needed private key cannot be read.
    """
    if not len(entries.metadata.repeated[fields.ENCRYPTION_KEYS].lane):
        return {}
    entries.buffer = entries.buffer.copy()  # it may be that of the raw run
    return _Decrypter(entries, decryption, faults).run()


class _DataKeys:
    """Data keys that the configured private keys can decrypt."""

    def __init__(self, decryption: Decryption) -> None:
        self._default_path = decryption.path
        self._paths = dict(decryption.paths)
        self._files: dict[str, KeyFile] = {}

    def find(self, encrypted: dict[str, bytes]) -> DataKey | str:
        """Return the data key of an entry, or why none can be decrypted."""
        tried = dict.fromkeys(filter(None, map(self._path, encrypted)))
        for name, data in encrypted.items():
            if path := self._path(name):
                key = self._open(path, data)
                if key is not None:
                    return key
        if tried:
            return f"{', '.join(map(repr, tried))}, which it is not encrypted for"
        if self._paths:
            return f"private keys only for {_listed(self._paths)}"
        return "no private key"

    def _path(self, name: str) -> str:
        return self._default_path or self._paths.get(name, "")

    def _open(self, path: str, data: bytes) -> DataKey | None:
        require_cryptography()
        from sparkcache_pulsar.encryption.private_keys import KeyFile, open_data_key

        if len(data) > MAX_ENCRYPTED_KEY_BYTES:
            return None
        if path not in self._files:
            self._files[path] = KeyFile.at(path)
        return open_data_key(self._files[path], data)


class _Decrypter:
    def __init__(
        self, entries: Entries, decryption: Decryption, faults: Faults
    ) -> None:
        self._entries = entries
        self._consume = decryption.consume
        self._faults = faults
        self._keys = _DataKeys(decryption)

    def run(self) -> dict[int, Sealed]:
        sealed = {}
        for lane, keys in self._encrypted_keys().items():
            data_key = self._keys.find(keys)
            if not isinstance(data_key, str):
                self._decrypt(lane, data_key)
            elif self._consume and not self._entries.is_chunk[lane]:
                sealed[lane] = self._keep_sealed(lane, keys)
            else:
                self._add_fault(lane, keys, data_key)
        self._entries.delivered &= self._faults.sound
        return sealed

    def _encrypted_keys(self) -> dict[int, dict[str, bytes]]:
        """Return the encrypted data keys of each entry, by key name."""
        buffer = self._entries.buffer
        listed = self._entries.metadata.repeated[fields.ENCRYPTION_KEYS]
        end = listed.start + listed.length
        table = parse(buffer, listed.start, end, _KEY_FIELDS)
        name, value = table.ranges[_NAME], table.ranges[_VALUE]
        bad = table.bad | ~name.present | ~value.present
        self._faults.add_all(
            np.unique(listed.lane[bad]),
            "encryption_keys, each with key and value",
            "bytes that do not parse as such",
        )
        sound = np.flatnonzero(self._faults.sound[listed.lane])
        ranges = (listed.lane, name.start, name.length, value.start, value.length)
        keys: dict[int, dict[str, bytes]] = {}
        for lane, start, size, value_start, value_size in zip(
            *(column[sound].tolist() for column in ranges), strict=True
        ):
            text = buffer[start : start + size].tobytes().decode(errors="replace")
            data = buffer[value_start : value_start + value_size].tobytes()
            keys.setdefault(lane, {})[text] = data
        return keys

    def _decrypt(self, lane: int, key: DataKey) -> None:
        """Overwrite the encrypted payload with the decrypted one, which has no tag."""
        entries = self._entries
        parameter = self._bytes(lane, fields.ENCRYPTION_PARAM)
        start, end = int(entries.start[lane]), int(entries.end[lane])
        if len(parameter) != PARAMETER_BYTES:
            expected = f"an encryption_param of {PARAMETER_BYTES} bytes"
            self._faults.add(lane, expected, f"one of {len(parameter)}")
        elif end - start < TAG_BYTES:
            expected = f"an encrypted payload with a tag of {TAG_BYTES} bytes"
            self._faults.add(lane, expected, f"{end - start} bytes")
        elif (payload := key.open(parameter, entries.buffer[start:end].data)) is None:
            expected = "an encrypted payload that matches its tag"
            self._faults.add(lane, expected, "one that was changed or cut off")
        else:
            end = start + len(payload)
            entries.buffer[start:end] = np.frombuffer(payload, np.uint8)
            entries.end[lane] = end
            if entries.codec[lane] == codecs.NONE:
                entries.decoded_bytes[lane] = len(payload)

    def _keep_sealed(self, lane: int, keys: dict[str, bytes]) -> Sealed:
        """Turn an entry into one plain message that is still encrypted."""
        entries = self._entries
        numbers, ranges = entries.metadata.numbers, entries.metadata.ranges
        codec, size = numbers[fields.COMPRESSION], numbers[fields.UNCOMPRESSED_SIZE]
        batch = numbers[fields.MESSAGES_IN_BATCH]
        algorithm = self._bytes(lane, fields.ENCRYPTION_ALGORITHM)
        sealed: Sealed = {
            "keys": list(keys.items()),
            "algorithm": algorithm.decode(errors="replace")
            if ranges[fields.ENCRYPTION_ALGORITHM].present[lane]
            else None,
            "parameter": self._bytes(lane, fields.ENCRYPTION_PARAM),
            "compression": codecs.name(int(codec.value[lane])),
            "uncompressedSize": _int32(int(size.value[lane])),
            "batchSize": _int32(int(batch.signed[lane]))
            if batch.present[lane]
            else None,
        }
        entries.codec[lane] = codecs.NONE
        batch.present[lane] = False
        entries.decoded_bytes[lane] = entries.end[lane] - entries.start[lane]
        return sealed

    def _add_fault(self, lane: int, keys: dict[str, bytes], found: str) -> None:
        expected = f"a private key for {_listed(keys)} (option privateKey)"
        if self._consume:
            found += "; it is a chunk, which cannot be consumed encrypted"
        else:
            expected += ", or cryptoFailureAction=consume"
        self._faults.add(lane, expected, f"an encrypted message, and {found}")

    def _bytes(self, lane: int, field: int) -> bytes:
        ranges = self._entries.metadata.ranges[field]
        start, length = int(ranges.start[lane]), int(ranges.length[lane])
        return self._entries.buffer[start : start + length].tobytes()


def _listed(names: Iterable[str]) -> str:
    """Return names for an error message; producers may choose many and long ones."""
    names = list(names)
    texts = [repr(name[:_MAX_NAME]) for name in names[:_MAX_NAMES]]
    return ", ".join(texts) + (", ..." if len(names) > _MAX_NAMES else "")


def _int32(number: int) -> int:
    """Return the low 32 bits, as Java has them."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
