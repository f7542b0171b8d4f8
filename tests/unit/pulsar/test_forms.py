"""How records are stored, beside how they are decoded."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcache.model import Ledger, ObjectId
from sparkcache.testing import MemoryStorage, discover, read_topic
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.forms import STREAMING, form_of, with_form, without_form
from sparkcache_pulsar.testing import Entry, Message

from .mapfiles import Format, map_file, store_files
from .streaming import Block, manifest, store_segment
from .topics import TOPIC, store

CONNECTOR = PulsarConnector()


@pytest.mark.parametrize("form", ["", STREAMING, "sequencefile/block/codec/00ff"])
@pytest.mark.parametrize("decoding", ["", '{"a": 1}', "two\nlines", "streaming"])
def test_both_come_back(form: str, decoding: str) -> None:
    both = with_form(form, decoding)
    ledger = Ledger("pulsar", "x", 1, ObjectId("u", 1, "1"), both)
    assert form_of(ledger) == form
    assert without_form(both) == decoding


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
