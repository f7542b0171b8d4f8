"""Encrypted payloads: with their keys, without, and damaged."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from effort import tries

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from sparkcache.errors import ConfigError, SourceError
from sparkcache.testing import read_topic
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.encryption.decrypting import decrypt
from sparkcache_pulsar.encryption.ecies import unseal
from sparkcache_pulsar.encryption.given import Decryption
from sparkcache_pulsar.encryption.private_keys import KeyFile, open_data_key
from sparkcache_pulsar.entries import read_entries
from sparkcache_pulsar.faults import Faults
from sparkcache_pulsar.testing import (
    Codec,
    Entry,
    Message,
    bytes_field,
    varint_field,
)

from . import topics
from .test_golden import GOLDEN, PRIVATE_KEY
from .topics import TOPIC, Row, expected_rows, store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sparkcache.model import Loss

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


@pytest.mark.parametrize("codec", Codec)
def test_whatever_a_producer_encrypts(codec: Codec) -> None:
    plain = [SINGLE, BATCH, PLAIN, Entry(()), Entry((Message(b""),), batched=False)]
    plain = [replace(entry, codec=codec) for entry in plain]
    rows, losses = read(*map(encrypted, plain), *plain)
    assert not losses
    assert rows == expected_rows(plain * 2)


@settings(max_examples=tries(20))
@given(
    st.lists(st.tuples(topics.entries, st.booleans()), min_size=1, max_size=6).filter(
        lambda written: topics.ended_once([entry for entry, _ in written])
    )
)
def test_encrypted_entries_are_read_as_plain_ones(
    written: list[tuple[Entry, bool]],
) -> None:
    stored = [encrypted(entry) if sealed else entry for entry, sealed in written]
    for options in (WITH_KEY, WITH_KEY | CONSUME):
        rows, losses = read(*stored, options=options)
        assert not losses
        assert [row.pop("__encryption", None) for row in rows] == [None] * len(rows)
        assert rows == expected_rows([entry for entry, _ in written])


VECTORS = [
    json.loads(line)
    for line in (GOLDEN / "encrypted-entries.jsonl").read_text().splitlines()
]
FILES = {
    "rsa": str(PRIVATE_KEY),
    "p256": str(GOLDEN / "keys" / "test-only-p256-private.pem"),
    "p521": str(GOLDEN / "keys" / "test-only-p521-private.pem"),
}


@pytest.mark.parametrize("name", FILES)
def test_keys_of_each_kind_open_what_pulsar_has_encrypted_for_them(name: str) -> None:
    """Of RSA and of EC, one of which has its curve spelled out."""
    entries = [b64decode(vector["entry"]) for vector in VECTORS]
    values = [
        b64decode(vector["value"]) for vector in VECTORS if name in vector["keys"]
    ]
    for given_key in (FILES[name], json.dumps({name: FILES[name]})):
        rows, losses = read(*entries, options={"privateKey": given_key})
        assert [row["value"] for row in rows] == values
        lost = sum(loss.last - loss.first + 1 for loss in losses)
        assert len(values) == 4
        assert lost == len(entries) - len(values)


def test_several_private_keys() -> None:
    entries = [b64decode(vector["entry"]) for vector in VECTORS]
    rows, losses = read(*entries, options={"privateKey": json.dumps(FILES)})
    assert not losses
    assert [row["value"] for row in rows] == [b64decode(v["value"]) for v in VECTORS]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP521R1(), ec.SECP256K1()])
def test_what_was_sealed_is_unsealed_and_nothing_else(
    curve: ec.EllipticCurve, compressed: bool
) -> None:
    ours, theirs = (ec.generate_private_key(curve) for _ in range(2))
    form = PublicFormat.CompressedPoint if compressed else None
    point = theirs.public_key().public_bytes(
        Encoding.X962, form or PublicFormat.UncompressedPoint
    )
    shared = point + theirs.exchange(ec.ECDH(), ours.public_key())
    keys = X963KDF(SHA1(), 16 + len(DATA_KEY), None).derive(shared)
    hidden = bytes(a ^ b for a, b in zip(DATA_KEY, keys[16:], strict=True))
    proof = HMAC(keys[:16], SHA1())
    proof.update(hidden + bytes(8))
    sealed = point + hidden + proof.finalize()
    assert unseal(ours, sealed) == DATA_KEY
    for at in range(len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        for wrong in (changed, sealed[:at]):
            with pytest.raises(ValueError):
                unseal(ours, wrong)
    with pytest.raises(ValueError):
        unseal(theirs, sealed)


def test_what_is_told_of_how_rows_are_made() -> None:
    """Runs of one way to decrypt are not those of another; no key is in any of them."""
    schema = {"valueSchema": "STRING"}
    ways = [
        {},
        WITH_KEY,
        {"privateKey": "/other.pem"},
        {"privateKey": '{"a": "/other.pem"}'},
        {"privateKey": '{"a": "/other.pem", "b": "/b.pem"}'},
        CONSUME,
        CONSUME | WITH_KEY,
        schema,
        schema | WITH_KEY,
    ]
    found = [CONNECTOR.decoding(way) for way in ways]
    assert len(set(found)) == len(found)
    assert found[0] == CONNECTOR.decoding({"cryptoFailureAction": "fail"}) == ""
    assert found[8].endswith(found[7])
    assert found[4] == CONNECTOR.decoding(
        {"privateKey": '{"b": "/b.pem", "a": "/other.pem"}'}
    )
    lines = PRIVATE_KEY.read_text().splitlines()
    assert not any(line in text for line in lines for text in found)
    for text, way in zip(found, ways, strict=True):
        columns = CONNECTOR.schema(text)
        assert ("__encryption" in columns.names) == ("cryptoFailureAction" in way)
        assert columns.equals(
            to_arrow_schema(from_arrow_schema(columns), timezone="UTC")
        )


def test_values_are_decrypted_before_they_are_decoded() -> None:
    entry = encrypted(Entry((Message(b"text"),), codec=Codec.ZSTD))
    rows, losses = read(entry, options=WITH_KEY | {"valueSchema": "STRING"})
    assert not losses
    assert [row["value"] for row in rows] == ["text"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"privateKey": ""}, "must be the path of a PEM file"),
        ({"privateKey": "{"}, "no JSON"),
        ({"privateKey": "{}"}, '{"key name": "path"'),
        ({"privateKey": '{"a": 1}'}, '{"key name": "path"'),
        ({"privateKey": '{"a": ""}'}, "must be the path of a PEM file"),
        ({"privateKey": "file:"}, "must be the path of a PEM file"),
        ({"privateKey": "a\0b"}, "must be the path of a PEM file"),
        ({"privateKey": "data:application/x-pem-file;base64,U0VDUkVU"}, "is a key"),
        ({"cryptoFailureAction": "ignore"}, "must be fail or consume"),
        ({"cryptoFailureAction": "DISCARD"}, "set failOnDataLoss=false"),
        (CONSUME | {"valueSchema": "STRING"}, "still encrypted"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        CONNECTOR.decoding(options)
    assert "U0VDUkVU" not in str(caught.value)


@pytest.mark.parametrize("form", ["{}", '{{"a": {}}}'])
def test_a_key_itself_is_refused_and_not_repeated(form: str) -> None:
    pem = PRIVATE_KEY.read_text()
    text = form.format(pem if form == "{}" else json.dumps(pem))
    with pytest.raises(ConfigError, match="must be the path of a file") as caught:
        CONNECTOR.decoding({"privateKey": text})
    assert not any(line in str(caught.value) for line in pem.splitlines())


def test_pulsars_names_of_what_to_do_are_taken() -> None:
    pulsars = {"cryptoFailureAction": "CONSUME"}
    assert CONNECTOR.decoding(pulsars) == CONNECTOR.decoding(CONSUME)


def test_decrypting_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be missing on the driver, or on an executor alone."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparkcache\[encryption\]'"):
        CONNECTOR.decoding(WITH_KEY)
    with pytest.raises(ConfigError, match=r"pip install 'sparkcache\[encryption\]'"):
        of_chunk(Decryption(path=str(PRIVATE_KEY)))


def test_what_is_plain_takes_neither_package_nor_key() -> None:
    rows, losses = read(SINGLE, options={"privateKey": "/no/such.pem"} | CONSUME)
    assert not losses
    assert [row["__encryption"] for row in rows] == [None]


def test_a_file_that_holds_no_private_key(tmp_path: Path) -> None:
    text = tmp_path / "text.pem"
    text.write_text("no key")
    damaged = tmp_path / "damaged.pem"
    damaged.write_text(PRIVATE_KEY.read_text().replace("M", "N"))
    certificate = tmp_path / "public.pem"
    certificate.write_bytes(
        public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    large = tmp_path / "large.pem"
    large.write_bytes(bytes((1 << 20) + 1))
    locked = write(tmp_path / "locked.pem", stranger(), b"password")
    other = write(tmp_path / "other.pem", ed25519.Ed25519PrivateKey.generate())
    for path, found in {
        str(tmp_path / "none.pem"): "No such file",
        str(text): "does not parse",
        str(damaged): "does not parse",
        str(certificate): "does not parse",
        str(large): "no file of at most",
        str(tmp_path): "no file of at most",
        locked: "a password",
        other: "neither of RSA nor of EC",
    }.items():
        for options in ({"privateKey": path}, {"privateKey": path} | CONSUME):
            with pytest.raises(SourceError, match=found) as caught:
                read(PLAIN, encrypted(SINGLE), options=options)
            assert path in str(caught.value)
            assert "option privateKey" in str(caught.value)


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "key.pem", stranger())
    options = {"privateKey": path}
    assert read(encrypted(SINGLE), options=options)[1]
    (tmp_path / "key.pem").write_bytes(PRIVATE_KEY.read_bytes())
    rows, losses = read(encrypted(SINGLE), options=options)
    assert not losses
    assert len(rows) == 1


def test_a_data_key_is_decrypted_once() -> None:
    open_data_key.cache_clear()
    read(*[encrypted(SINGLE)] * 20)
    assert open_data_key.cache_info().misses == 1
    assert open_data_key.cache_info().maxsize


def damaged(entry: Entry, at: int) -> Entry:
    def seal(payload: bytes) -> bytes:
        sealed = bytearray(entry.seal(payload))
        sealed[at] ^= 1
        return bytes(sealed)

    return replace(entry, seal=seal)


def cut(entry: Entry, size: int) -> Entry:
    return replace(entry, seal=lambda payload: entry.seal(payload)[:size])


@pytest.mark.parametrize("options", [WITH_KEY, WITH_KEY | CONSUME])
@pytest.mark.parametrize("entry", [SINGLE, BATCH])
def test_what_is_damaged_gives_no_rows(entry: Entry, options: dict[str, str]) -> None:
    sealed = encrypted(entry)
    tag = "payload that its tag is of, found one that was changed"
    for lost, message in [
        (damaged(sealed, -1), tag),
        (damaged(sealed, -16), tag),
        (damaged(sealed, 0), tag),
        (cut(sealed, -1), tag),
        (cut(sealed, 16), tag),
        (cut(sealed, 15), "16 bytes of tag, found 15 bytes"),
        (cut(sealed, 0), "16 bytes of tag, found 0 bytes"),
        (encrypted(entry, parameter=b"other" + bytes(7)), tag),
        (encrypted(entry, data_key=bytes(32)), tag),
        (encrypted(entry, data_key=bytes(16)), tag),
        (encrypted(entry, parameter=bytes(11)), "of 12 bytes, found one of 11"),
        (encrypted(entry, parameter=bytes(16)), "of 12 bytes, found one of 16"),
        (encrypted(entry, parameter=b""), "of 12 bytes, found one of 0"),
        (
            replace(entry, extra_metadata=key_field(b"key", for_owner(DATA_KEY))),
            "of 12 bytes, found one of 0",
        ),
        (encrypted(entry, extra=bytes_field(13, b"\xff")), "key and value"),
        (encrypted(entry, extra=bytes_field(13, bytes_field(1, b"k"))), "key and"),
    ]:
        rows, losses = read(PLAIN, lost, PLAIN, sealed, options=options)
        assert {row["__entryId"] for row in rows} == {0, 2, 3}
        (loss,) = losses
        assert (loss.first, loss.last) == (1, 1)
        assert message in str(loss)


def test_losses_for_want_of_a_key(tmp_path: Path) -> None:
    """Each tells whose keys would do, what was given, and what to do."""
    wrong = write(tmp_path / "wrong.pem", stranger())
    p256 = FILES["p256"]
    many = encrypted(SINGLE, names=tuple(f"key {n}" for n in range(7)))
    for entry, options, expected, found in [
        (SINGLE, {}, "'key' (", "no private key"),
        (BATCH, {"privateKey": wrong}, "'key' (", f"{wrong!r}, which it is not"),
        (BATCH, {"privateKey": p256}, "'key' (", f"{p256!r}, which it is not"),
        (SINGLE, {"privateKey": '{"b": "/b"}'}, "'key' (", "keys for 'b' alone"),
        (many, {}, "'key 0', 'key 1', 'key 2', 'key 3', 'key 4', ... (", "no private"),
    ]:
        lost = entry if entry is many else encrypted(entry)
        rows, losses = read(PLAIN, lost, lost, PLAIN, options=options)
        assert [row["__entryId"] for row in rows] == [0, 3]
        (loss,) = losses
        assert (loss.first, loss.last) == (1, 2)
        assert f"expected a private key for {expected}option privateKey), or" in str(
            loss
        )
        assert "cryptoFailureAction=consume, found an encrypted message, and" in str(
            loss
        )
        assert found in str(loss)


def test_a_data_key_of_no_use_is_no_key() -> None:
    _, losses = read(encrypted(SINGLE, data_key=b"short"))
    assert "which it is not encrypted for" in str(losses[0])


def test_what_is_too_long_to_be_a_data_key_is_not_remembered() -> None:
    open_data_key.cache_clear()
    long = key_field(b"key", bytes(1 << 20))
    _, losses = read(replace(SINGLE, extra_metadata=long))
    assert "which it is not encrypted for" in str(losses[0])
    assert open_data_key.cache_info().currsize == 0


def test_consumed_as_it_is() -> None:
    """As ConsumerCryptoFailureAction.CONSUME: a batch is a message as well."""
    written = [
        encrypted(SINGLE, names=("a", "b"), extra=bytes_field(14, b"AES")),
        PLAIN,
        replace(encrypted(BATCH), broker=(1, 12)),
        encrypted(Entry((Message(None),), batched=False)),
    ]
    rows, losses = read(*written, options=CONSUME)
    assert not losses
    assert [row["__entryId"] for row in rows] == [0, 1, 2, 3]
    assert [row["__batchIndex"] for row in rows] == [None, 0, None, None]
    assert [row["__index"] for row in rows] == [None, None, 12, None]
    assert rows[0]["__key"] == b"k"
    assert rows[0]["__properties"] == {"a": "b"}
    assert rows[1]["value"] == b"plain"
    assert rows[1]["__encryption"] is None
    assert rows[3]["value"] is None
    assert [AESGCM(DATA_KEY).decrypt(PARAMETER, row["value"], None) for row in
            (rows[0], rows[2])] == [b"one", payload(BATCH)]  # fmt: skip
    of_key = for_owner(DATA_KEY)
    assert rows[0]["__encryption"] == {
        "keys": {"a": of_key, "b": of_key},
        "algorithm": "AES",
        "parameter": PARAMETER,
        "compression": "NONE",
        "uncompressedSize": 3,
        "batchSize": None,
    }
    assert rows[2]["__encryption"] == {
        "keys": {"key": of_key},
        "algorithm": None,
        "parameter": PARAMETER,
        "compression": "LZ4",
        "uncompressedSize": len(payload(replace(BATCH, codec=Codec.NONE))),
        "batchSize": 3,
    }


def payload(entry: Entry) -> bytes:
    """Return what a producer would have encrypted."""
    found = []
    replace(entry, seal=lambda data: found.append(data) or data).encode()
    return found[0]


def test_what_there_are_keys_for_is_decrypted_beside_what_is_consumed() -> None:
    options = {"privateKey": json.dumps({"mine": str(PRIVATE_KEY)})} | CONSUME
    written = [encrypted(BATCH, names=("mine",)), encrypted(BATCH, names=("theirs",))]
    rows, losses = read(*written, options=options)
    assert not losses
    assert [row["__entryId"] for row in rows] == [0, 0, 0, 1]
    assert [row["__encryption"] is None for row in rows] == [True] * 3 + [False]


def test_a_codec_that_is_unknown_is_told_by_its_number() -> None:
    rows, _ = read(encrypted(SINGLE, extra=varint_field(8, 9)), options=CONSUME)
    assert rows[0]["__encryption"]["compression"] == "9"


CHUNK = varint_field(27, 3) + varint_field(29, 1)


def of_chunk(decryption: Decryption) -> tuple[bytes, Faults]:
    """Decrypt the payload of an entry that is a chunk."""
    entry = encrypted(SINGLE, extra=CHUNK).encode()
    data = len(entry).to_bytes(4, "big") + bytes(8) + entry
    entries = read_entries(data, [0], Faults(1))
    faults = Faults(1)
    assert decrypt(entries, decryption, faults) == {}
    return entries.buffer[entries.start[0] : entries.end[0]].tobytes(), faults


def test_a_chunk_is_decrypted_by_itself() -> None:
    found, faults = of_chunk(Decryption(path=str(PRIVATE_KEY)))
    assert found == b"one"
    assert faults.sound.all()


def test_a_chunk_is_not_consumed() -> None:
    """Neither it nor all of them together are a message that somebody could decrypt."""
    _, faults = of_chunk(Decryption(consume=True))
    assert not faults.sound.any()
    assert "a chunk, which cannot be consumed" in str(faults._reasons)


def test_a_file_is_known_by_what_changes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"a")
    before = KeyFile.at(str(path))
    assert before == KeyFile.at(str(path))
    path.write_bytes(b"ab")
    assert before != KeyFile.at(str(path))
