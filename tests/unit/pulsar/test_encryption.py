"""Encrypted payloads: with their keys, and consumed as they are without."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.effort import tries

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcache_pulsar.decoding import Decoding
from sparkcache_pulsar.encryption.options import Decryption
from sparkcache_pulsar.encryption.private_keys import open_data_key
from sparkcache_pulsar.testing import Codec, Entry, Message, bytes_field, varint_field

from . import topics
from .encrypting import (
    BATCH,
    CONNECTOR,
    CONSUME,
    DATA_KEY,
    PARAMETER,
    PLAIN,
    SINGLE,
    WITH_KEY,
    encrypted,
    for_owner,
    of_chunk,
    read,
)
from .golden import PRIVATE_KEY
from .spark_schema import as_spark_has_it
from .topics import expected_rows


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


def test_each_way_to_decrypt_is_a_decoding_of_its_own() -> None:
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
    of_schema, of_both = map(Decoding.parse, found[7:])
    assert of_both.values == of_schema.values
    assert found[4] == CONNECTOR.decoding(
        {"privateKey": '{"b": "/b.pem", "a": "/other.pem"}'}
    )
    lines = PRIVATE_KEY.read_text().splitlines()
    assert not any(line in text for line in lines for text in found)
    for text, way in zip(found, ways, strict=True):
        columns = CONNECTOR.schema(text)
        assert ("__encryption" in columns.names) == ("cryptoFailureAction" in way)
        assert columns.equals(as_spark_has_it(columns))


def test_values_are_decrypted_before_they_are_decoded() -> None:
    entry = encrypted(Entry((Message(b"text"),), codec=Codec.ZSTD))
    rows, losses = read(entry, options=WITH_KEY | {"valueSchema": "STRING"})
    assert not losses
    assert [row["value"] for row in rows] == ["text"]


def test_a_data_key_is_decrypted_once() -> None:
    open_data_key.cache_clear()
    read(*[encrypted(SINGLE)] * 20)
    assert open_data_key.cache_info().misses == 1
    assert open_data_key.cache_info().maxsize


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

    def seal(data: bytes) -> bytes:
        found.append(data)
        return data

    replace(entry, seal=seal).encode()
    return found[0]


def test_what_there_are_keys_for_is_decrypted_beside_what_is_consumed() -> None:
    options = {"privateKey": json.dumps({"mine": str(PRIVATE_KEY)})} | CONSUME
    written = [encrypted(BATCH, names=("mine",)), encrypted(BATCH, names=("theirs",))]
    rows, losses = read(*written, options=options)
    assert not losses
    assert [row["__entryId"] for row in rows] == [0, 0, 0, 1]
    assert [row["__encryption"] is None for row in rows] == [True] * 3 + [False]


def test_an_unknown_codec_is_named_by_its_number() -> None:
    rows, _ = read(encrypted(SINGLE, extra=varint_field(8, 9)), options=CONSUME)
    assert rows[0]["__encryption"]["compression"] == "9"


def test_a_chunk_is_decrypted_by_itself() -> None:
    found, faults = of_chunk(Decryption(path=str(PRIVATE_KEY)))
    assert found == b"one"
    assert faults.sound.all()


def test_a_chunk_is_not_consumed() -> None:
    """Neither it nor all of them together are a message that somebody could decrypt."""
    _, faults = of_chunk(Decryption(consume=True))
    assert not faults.sound.any()
    assert "a chunk, which cannot be consumed" in str(faults._reasons)
