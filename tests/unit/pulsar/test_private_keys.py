"""Private keys: which kinds, in what files, given how."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sparkcache.errors import ConfigError, SourceError
from sparkcache_pulsar.encryption.ecies import unseal
from sparkcache_pulsar.encryption.options import Decryption
from sparkcache_pulsar.encryption.private_keys import KeyFile

from .encrypting import (
    CONNECTOR,
    CONSUME,
    DATA_KEY,
    FILES,
    PLAIN,
    SINGLE,
    VECTORS,
    WITH_KEY,
    encrypted,
    of_chunk,
    public_key,
    read,
    stranger,
    write,
)
from .golden import PRIVATE_KEY

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", FILES)
def test_keys_of_each_kind_open_what_pulsar_has_encrypted_for_them(name: str) -> None:
    """Of RSA and of EC, one of them with explicit parameters of its curve."""
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"privateKey": ""}, "must be the path of a PEM file"),
        ({"privateKey": "{"}, "not JSON"),
        ({"privateKey": "{}"}, '{"key name": "path"'),
        ({"privateKey": '{"a": 1}'}, '{"key name": "path"'),
        ({"privateKey": '{"a": ""}'}, "must be the path of a PEM file"),
        ({"privateKey": "file:"}, "must be the path of a PEM file"),
        ({"privateKey": "a\0b"}, "must be the path of a PEM file"),
        (
            {"privateKey": "data:application/x-pem-file;base64,U0VDUkVU"},
            "the value is a key",
        ),
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
        str(large): "no regular file of at most",
        str(tmp_path): "no regular file of at most",
        locked: "a password",
        other: "neither an RSA nor an EC key",
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


def test_a_file_is_known_by_what_changes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"a")
    before = KeyFile.at(str(path))
    assert before == KeyFile.at(str(path))
    path.write_bytes(b"ab")
    assert before != KeyFile.at(str(path))
