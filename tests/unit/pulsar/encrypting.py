"""Encrypts entries as producers do, for the owner of the golden private key."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from sparkcache.testing import read_topic
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.encryption.decrypting import decrypt
from sparkcache_pulsar.entries import read_entries
from sparkcache_pulsar.faults import Faults
from sparkcache_pulsar.testing import Codec, Entry, Message, bytes_field, varint_field

from .golden import GOLDEN, PRIVATE_KEY
from .topics import TOPIC, Row, store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sparkcache.model import Loss
    from sparkcache_pulsar.encryption.options import Decryption

CONNECTOR = PulsarConnector()
WITH_KEY = {"privateKey": str(PRIVATE_KEY)}
CONSUME = {"cryptoFailureAction": "consume"}
DATA_KEY, PARAMETER = bytes(range(32)), bytes(range(12))
SINGLE = Entry((Message(b"one", key="k", properties=(("a", "b"),)),), batched=False)
BATCH = Entry((Message(b"two"), Message(None), Message(b"")), codec=Codec.LZ4)
PLAIN = Entry((Message(b"plain"),))


def read(
    *entries: Entry | bytes, options: Mapping[str, str] = WITH_KEY
) -> tuple[list[Row], list[Loss]]:
    return read_topic(CONNECTOR, store(entries), TOPIC, options)


@cache
def public_key() -> rsa.RSAPublicKey:
    key = load_pem_private_key(PRIVATE_KEY.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key.public_key()


@cache
def for_owner(data_key: bytes) -> bytes:
    """Encrypt a data key for the owner of the golden private key."""
    oaep = padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)
    return public_key().encrypt(data_key, oaep)


def key_field(name: bytes, encrypted: bytes) -> bytes:
    return bytes_field(13, bytes_field(1, name) + bytes_field(2, encrypted))


def encrypted(
    entry: Entry,
    *,
    names: tuple[str, ...] = ("key",),
    data_key: bytes = DATA_KEY,
    parameter: bytes = PARAMETER,
    extra: bytes = b"",
) -> Entry:
    keys = [key_field(name.encode(), for_owner(data_key)) for name in names]
    return replace(
        entry,
        extra_metadata=b"".join([*keys, bytes_field(15, parameter), extra]),
        seal=lambda payload: AESGCM(DATA_KEY).encrypt(PARAMETER, payload, None),
    )


def write(path: Path, key: Any, password: bytes = b"") -> str:
    how = BestAvailableEncryption(password) if password else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    return str(path)


@cache
def stranger() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


VECTORS = [
    json.loads(line)
    for line in (GOLDEN / "encrypted-entries.jsonl").read_text().splitlines()
]
FILES = {
    "rsa": str(PRIVATE_KEY),
    "p256": str(GOLDEN / "keys" / "test-only-p256-private.pem"),
    "p521": str(GOLDEN / "keys" / "test-only-p521-private.pem"),
}


CHUNK = varint_field(27, 3) + varint_field(29, 1)


def of_chunk(decryption: Decryption) -> tuple[bytes, Faults]:
    """Decrypt the payload of an entry that is a chunk."""
    entry = encrypted(SINGLE, extra=CHUNK).encode()
    data = len(entry).to_bytes(4, "big") + bytes(8) + entry
    entries = read_entries(data, [0], Faults(1))
    faults = Faults(1)
    assert decrypt(entries, decryption, faults) == {}
    return entries.buffer[entries.start[0] : entries.end[0]].tobytes(), faults
