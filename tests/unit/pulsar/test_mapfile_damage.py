"""What of MapFiles is inconsistent, lost or damaged."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache.errors import SourceError
from sparkcache.testing import MemoryStorage, discover, read_topic
from sparkcache_pulsar import mapfile
from sparkcache_pulsar.testing import ledger_metadata

from .mapfile_cases import (
    CONNECTOR,
    DATA,
    ENTRIES,
    FORMATS,
    INDEX,
    LENIENT,
    VALUES,
    one_file,
    read,
)
from .mapfiles import Format, folder, index_file, map_file, store_files
from .streaming import manifest
from .topics import TOPIC

START = len(Format("record").header())


@pytest.mark.parametrize(
    ("data", "index", "message"),
    [
        pytest.param(DATA, INDEX[:-1], "values of up to", id="index cut"),
        pytest.param(DATA, INDEX + b"x", "a sync marker", id="index longer"),
        pytest.param(DATA, b"?" * 99, "a SequenceFile", id="no index"),
        pytest.param(b"?" * 999, INDEX, "a SequenceFile", id="no data"),
        pytest.param(b"", INDEX, "a header", id="empty data"),
        pytest.param(DATA[:300], INDEX, "a value of up to", id="data cut early"),
        pytest.param(DATA[:600], INDEX, "ascending offsets", id="data cut"),
        pytest.param(
            map_file(
                ENTRIES,
                Format("record"),
                metadata=ledger_metadata("persistent://shop/eu/returns", ENTRIES),
            )[0],
            INDEX,
            "expected a ledger of .*orders, .* found a ledger of .*returns",
            id="whose it is",
        ),
        pytest.param(
            DATA,
            index_file([(0, START)]),
            "record -1 as the first indexed record",
            id="first place",
        ),
        pytest.param(
            DATA, index_file([(-1, START), (7, START)]), "ascending", id="one offset"
        ),
        pytest.param(
            DATA, index_file([(-1, START), (7, 900), (7, 999)]), "ascending", id="id"
        ),
        pytest.param(
            DATA, index_file([(-1, START), (20, 900)]), "up to 19", id="a greater id"
        ),
        pytest.param(
            DATA,
            index_file([(-1, START), (9, 1 << 40)]),
            "ascending",
            id="after the end",
        ),
        pytest.param(
            DATA, index_file([(-1, -START)]), "ascending", id="a negative offset"
        ),
        pytest.param(
            map_file(ENTRIES, Format("record"), metadata=b"\xff" * 20)[0],
            INDEX,
            "ledger metadata",
            id="metadata",
        ),
        pytest.param(
            Format("record").file([(0, b"\0\0\0\0")])[0] + bytes(9999),
            INDEX,
            "ledger metadata in record -1, found record 0",
            id="no metadata",
        ),
        pytest.param(
            map_file(
                ENTRIES,
                Format("record"),
                metadata=ledger_metadata(TOPIC, [b""] * 10_000),
            )[0],
            INDEX,
            "room for the entries",
            id="more entries than fit",
        ),
    ],
)
def test_what_is_inconsistent(data: bytes, index: bytes, message: str) -> None:
    storage = store_files(MemoryStorage(), (data, index))
    with pytest.raises(SourceError, match=message) as error:
        discover(CONNECTOR, storage, TOPIC, {})
    assert folder() in error.value.uri
    (loss,) = discover(CONNECTOR, storage, TOPIC, LENIENT | manifest(7)).losses
    assert loss.ledger == 7


@pytest.mark.usefixtures("small_steps")
def test_a_place_in_the_middle_of_a_block() -> None:
    data, _ = map_file(ENTRIES, Format("block"))
    for places, message in (
        ([(-1, START), (9, len(data) - 99)], "a sync marker"),
        ([(-1, START), (19, data.index(b"\xff\xff\xff\xff", START + 9))], "block with"),
    ):
        storage = store_files(MemoryStorage(), (data, index_file(places)))
        with pytest.raises(SourceError, match=message):
            one_file(storage)


def damaged(format_: Format, at: int, new: bytes) -> MemoryStorage:
    """Data whose end, after the metadata, was damaged once they were stored."""
    data, index = map_file(ENTRIES, format_)
    data = (data[:at] + new + data[at + len(new) :])[: len(data)]
    return store_files(MemoryStorage(), (data, index))


def offset_of(entry: int, format_: Format) -> int:
    records = [(-1, ledger_metadata(TOPIC, ENTRIES)), *enumerate(ENTRIES)]
    wrapped = [(key, struct.pack(">i", len(value)) + value) for key, value in records]
    return format_.file(wrapped)[1][entry + 1][1]


PLAIN, EACH = Format("records"), Format("record")


@pytest.mark.parametrize(
    ("format_", "at", "new", "lost", "found"),
    [
        pytest.param(PLAIN, 0, b"\x7f", range(5, 20), "a record of", id="too long"),
        pytest.param(PLAIN, 0, b"\xff" * 4, range(5, 20), "", id="a sync marker"),
        pytest.param(PLAIN, 0, b"\x80", range(5, 20), "of -2147", id="negative"),
        pytest.param(PLAIN, 0, b"\0\0\0\7", range(5, 20), "of 7 bytes", id="short"),
        pytest.param(PLAIN, 7, b"\7", range(5, 20), "key of 7 bytes", id="key length"),
        pytest.param(PLAIN, 15, b"\6", range(5, 20), "8 bytes, 6", id="another entry"),
        pytest.param(PLAIN, 16, b"\7", range(5, 6), "a length of", id="value length"),
        pytest.param(EACH, 16, b"\0", range(5, 6), "header check", id="compressed"),
    ],
)
def test_what_is_lost(
    format_: Format, at: int, new: bytes, lost: range, found: str
) -> None:
    """After a record whose length is wrong, nothing more can be found."""
    place = offset_of(5, format_)
    storage = damaged(format_, place + at, new)
    values, losses = read(storage, 1 << 20)
    assert values == [VALUES[entry] for entry in range(20) if entry not in lost]
    (loss,) = losses
    assert (loss.first, loss.last) == (lost[0], lost[-1])
    assert loss.offset == place
    assert found in loss.found
    assert loss.uri.endswith("/data")


def test_a_sync_marker_that_is_another() -> None:
    format_ = Format("records", sync_every=3)
    place = offset_of(5, format_)  # the seventh record, with that of the metadata
    values, losses = read(damaged(format_, place + 4, b"\0"), 1 << 20)
    assert values == VALUES[:5]
    (loss,) = losses
    assert (loss.first, loss.last, loss.expected) == (5, 19, "a sync marker")


@pytest.mark.parametrize("format_", [*FORMATS[:3], Format("block", per_block=100)])
def test_what_follows_the_last_entry_is_not_an_entry(format_: Format) -> None:
    metadata = ledger_metadata(TOPIC, ENTRIES[:18])
    files = map_file(ENTRIES, format_, interval=100, metadata=metadata)
    assert read(store_files(MemoryStorage(), files)) == (VALUES[:18], [])


def test_a_beginning_without_end_is_not_read_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mapfile, "_MAX_HEAD_BYTES", 1 << 15)
    metadata = ledger_metadata(TOPIC, ENTRIES, "x" * 50_000)
    files = map_file(ENTRIES, Format("records"), metadata=metadata)
    storage = store_files(MemoryStorage(), files)
    with pytest.raises(SourceError, match="a value of up to"):
        one_file(storage)
    assert storage.requests["open"] == 2


def test_a_whole_block_is_lost_but_not_what_follows() -> None:
    format_ = Format("block")
    second, third = offset_of(3, format_), offset_of(7, format_)
    values, losses = read(damaged(format_, third - 9, b"\0\0\0"))
    assert values == [VALUES[entry] for entry in range(20) if entry not in range(3, 7)]
    assert [(loss.first, loss.last, loss.offset) for loss in losses] == [(3, 6, second)]


def test_blocks_that_are_not_the_next_ones() -> None:
    data, index = map_file(ENTRIES, Format("block", per_block=4))
    second, third = offset_of(3, Format("block")), offset_of(7, Format("block"))
    swapped = data[:second] + data[third:] + data[second:third]
    values, losses = read(store_files(MemoryStorage(), (swapped, index)))
    assert values == VALUES[:3]
    assert [(loss.first, loss.last) for loss in losses] == [(3, 19)]
    assert losses[0].expected == "a block of entries from 3"
    assert losses[0].found == "entries 7 to 10"


@pytest.mark.parametrize("format_", FORMATS, ids=str)
@given(st.data())
def test_any_damage_leaves_every_entry_delivered_or_lost(
    format_: Format, data: st.DataObject
) -> None:
    whole, _ = map_file(ENTRIES, format_)
    at = data.draw(st.integers(0, len(whole) - 1))
    new = data.draw(st.binary(min_size=1, max_size=16))
    storage = damaged(format_, at, new)
    try:
        rows, losses = read_topic(CONNECTOR, storage, TOPIC, run_bytes=300)
    except SourceError:  # header or metadata
        return
    seen = {row["__entryId"] for row in rows}
    lost = {at for loss in losses for at in range(loss.first, loss.last + 1)}
    if seen | lost != set(range(20)):  # the last entry id may itself be what is wrong
        assert at < offset_of(0, format_) + 400
    assert not seen & lost


@given(st.integers(0, len(INDEX) - 1), st.binary(min_size=1, max_size=16))
def test_a_damaged_index_is_an_error_or_does_no_harm(at: int, new: bytes) -> None:
    index = (INDEX[:at] + new + INDEX[at + len(new) :])[: len(INDEX)]
    storage = store_files(MemoryStorage(), (DATA, index))
    try:
        rows, losses = read_topic(CONNECTOR, storage, TOPIC)
    except SourceError:
        return
    assert [row["value"] for row in rows] == VALUES
    assert not losses
