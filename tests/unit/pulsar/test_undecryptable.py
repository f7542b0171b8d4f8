"""Encrypted payloads that are damaged, or that no key is there for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("cryptography")

from sparkcache_pulsar.encryption.private_keys import open_data_key
from sparkcache_pulsar.testing import Entry, bytes_field

from .encrypting import (
    BATCH,
    CONSUME,
    DATA_KEY,
    FILES,
    PLAIN,
    SINGLE,
    WITH_KEY,
    encrypted,
    for_owner,
    key_field,
    read,
    stranger,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path


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
    tag = "payload that matches its tag, found one that was changed"
    for lost, message in [
        (damaged(sealed, -1), tag),
        (damaged(sealed, -16), tag),
        (damaged(sealed, 0), tag),
        (cut(sealed, -1), tag),
        (cut(sealed, 16), tag),
        (cut(sealed, 15), "a tag of 16 bytes, found 15 bytes"),
        (cut(sealed, 0), "a tag of 16 bytes, found 0 bytes"),
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
    """Each says whose keys would do, what was given, and what to do."""
    wrong = write(tmp_path / "wrong.pem", stranger())
    p256 = FILES["p256"]
    many = encrypted(SINGLE, names=tuple(f"key {n}" for n in range(7)))
    for entry, options, expected, found in [
        (SINGLE, {}, "'key' (", "no private key"),
        (BATCH, {"privateKey": wrong}, "'key' (", f"{wrong!r}, which it is not"),
        (BATCH, {"privateKey": p256}, "'key' (", f"{p256!r}, which it is not"),
        (SINGLE, {"privateKey": '{"b": "/b"}'}, "'key' (", "keys only for 'b'"),
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
