"""How records are stored, beside how they are decoded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sparkcache.model import Ledger, ObjectId
from sparkcache.testing import MemoryStorage, discover, read_topic
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.decoding import Decoding, Streaming, form_of
from sparkcache_pulsar.encryption.options import Decryption
from sparkcache_pulsar.isolation import Isolation
from sparkcache_pulsar.schemas.spec import Mode, Spec, ValueDecoding
from sparkcache_pulsar.sequencefile import Layout
from sparkcache_pulsar.testing import Entry, Message

from .mapfiles import Format, map_file, store_files
from .streaming import Block, manifest, store_segment
from .topics import TOPIC, store

if TYPE_CHECKING:
    from sparkcache_pulsar.decoding import Form

CONNECTOR = PulsarConnector()


LONG = json.dumps(
    {"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(999)]}
)


@pytest.mark.parametrize("form", [None, Streaming(), Layout("block", "c", b"\0\xff")])
@pytest.mark.parametrize(
    "rows",
    [
        Decoding(),
        Decoding(values=ValueDecoding(Spec("JSON", LONG), Mode.PERMISSIVE)),
        Decoding(
            isolation=Isolation.UNCOMMITTED,
            decryption=Decryption(paths=(("k", "/two\nlines"),), consume=True),
            values=ValueDecoding(Spec("STRING"), Mode.FAILFAST),
        ),
    ],
    ids=["bytes", "a long schema", "all of it"],
)
def test_a_decoding_comes_back(form: Form, rows: Decoding) -> None:
    both = rows.with_form(form)
    ledger = Ledger("pulsar", "x", 1, ObjectId("u", 1, "1"), str(both))
    assert form_of(ledger) == form
    assert Decoding.parse(ledger.decoding) == both
    assert str(Decoding.parse(ledger.decoding)) == ledger.decoding
    assert len(ledger.decoding) < 5_000


def test_equal_decodings_have_one_text() -> None:
    assert str(Decoding()) == str(Decoding(decryption=Decryption(path=""))) == ""
    form = Streaming()
    assert str(Decoding(form, Decryption())) == str(Decoding(form))


def stored_as(form: str, entry: bytes) -> MemoryStorage:
    storage = MemoryStorage()
    if form == "classic":
        return store([entry], ledger=7, storage=storage)
    if form == "streaming":
        store_segment(storage, [Block(7, 0, (entry,))], {7: 1})
        return storage
    return store_files(storage, map_file([entry], Format(form)))


@pytest.mark.parametrize("form", ["classic", "streaming", "records", "record", "block"])
def test_values_are_decoded_however_they_are_stored(form: str) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    options = {"valueSchema": schema, **manifest(7)}
    storage = stored_as(form, Entry((Message(b"\x54"),)).encode())
    (found,) = discover(CONNECTOR, storage, TOPIC, options).ledgers
    assert CONNECTOR.schema(found.ledger.decoding) == CONNECTOR.schema(
        CONNECTOR.decoding(options)
    )
    assert CONNECTOR.schema(found.ledger.decoding) != CONNECTOR.schema("")
    rows, losses = read_topic(CONNECTOR, storage, TOPIC, options)
    assert not losses
    assert 42 in _leaves(rows[0])


def _leaves(row: Any) -> list[Any]:
    if isinstance(row, dict):
        return [leaf for value in row.values() for leaf in _leaves(value)]
    return [row]
