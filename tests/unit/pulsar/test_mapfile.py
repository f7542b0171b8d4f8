"""Ledgers of the file system offloader, from folders to rows."""

from __future__ import annotations

import logging
import pickle
import struct
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache.errors import SourceError
from sparkcache.model import Extent, Ledger, ObjectId, Run
from sparkcache.testing import MemoryStorage, discover, read_topic
from sparkcache_pulsar import PulsarConnector, codecs, mapfile
from sparkcache_pulsar.mapfile import MapFile, read_map_file
from sparkcache_pulsar.records import OneRun
from sparkcache_pulsar.testing import Entry, Message, ledger_metadata

from .mapfiles import (
    COMPRESS,
    UUID,
    Format,
    folder,
    index_file,
    map_file,
    store_files,
)
from .streaming import manifest
from .topics import TOPIC, store

if TYPE_CHECKING:
    from sparkcache.model import Loss

CONNECTOR = PulsarConnector()
LENIENT = {"failOnDataLoss": "false"}
ENTRIES = [
    Entry((Message(f"value {number} ".encode() * number),)).encode()
    for number in range(20)
]
VALUES = [f"value {number} ".encode() * number for number in range(20)]
FORMATS = [
    Format("records"),
    Format("records", sync_every=1),
    Format("record"),
    Format("record", sync_every=3),
    Format("record", "ZStandard"),
    Format("block"),
    Format("block", per_block=1),
    Format("block", "ZStandard", per_block=100),
]


def read(storage: MemoryStorage, run_bytes: int = 1) -> tuple[list[bytes], list[Loss]]:
    rows, losses = read_topic(CONNECTOR, storage, TOPIC, LENIENT, run_bytes=run_bytes)
    return [row["value"] for row in rows], losses


def one_file(storage: MemoryStorage) -> MapFile | None:
    ids = {object_id.uri.rpartition("/")[2]: object_id for object_id in storage.list()}
    return read_map_file(storage, ids["index"], ids["data"])


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place of an index begins an extent."""
    monkeypatch.setattr(mapfile, "EXTENT_BYTES", 1)
    monkeypatch.setattr(mapfile, "RUN_BYTES", 1)


@pytest.mark.parametrize("run_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize("format_", FORMATS, ids=str)
def test_what_was_written_is_read(format_: Format, run_bytes: int) -> None:
    storage = store_files(MemoryStorage(), map_file(ENTRIES, format_))
    assert read(storage, run_bytes) == (VALUES, [])


@pytest.mark.parametrize("kind", ["record", "block"])
@pytest.mark.parametrize("codec", COMPRESS)
def test_every_codec(codec: str, kind: str) -> None:
    storage = store_files(MemoryStorage(), map_file(ENTRIES, Format(kind, codec)))
    assert read(storage) == (VALUES, [])


@pytest.mark.parametrize("interval", [1, 3, 7, 128])
@pytest.mark.parametrize("format_", FORMATS, ids=str)
@pytest.mark.usefixtures("small_steps")
def test_wherever_the_index_points_an_extent_may_begin(
    format_: Format, interval: int
) -> None:
    storage = store_files(MemoryStorage(), map_file(ENTRIES, format_, interval))
    found = one_file(storage)
    assert found is not None
    assert found.managed_ledger == "shop/eu/persistent/orders"
    data = storage.get(f"memory://bucket/{folder()}/data").id
    assert found.extents[0].offset >= len(format_.header())
    end = found.extents[0].offset
    entries: list[int] = []
    values = []
    ledger = Ledger("pulsar", f"x#{TOPIC}", 7, data, str(found.layout))
    for extent in found.extents:
        assert extent.offset == end
        end = extent.offset + extent.size_bytes
        entries += range(extent.first, extent.last + 1)
        stream = storage.open(data, extent.offset, extent.size_bytes)
        for raw in CONNECTOR.split(ledger, extent, CONNECTOR.runs(extent, 1), stream):
            assert not raw.losses
            decoded = CONNECTOR.decode(ledger, raw, 1 << 20)
            assert not decoded.losses
            for batch in decoded.batches:
                values += batch.column("value").to_pylist()
    assert end == data.size_bytes
    assert entries == list(range(20))
    assert values == VALUES
    if interval < 10 and format_.per_block < 10:
        assert len(found.extents) >= 3


@pytest.mark.parametrize("format_", FORMATS[:5], ids=str)
def test_a_pass_may_begin_at_any_run(format_: Format) -> None:
    storage = store_files(MemoryStorage(), map_file(ENTRIES, format_))
    (found,) = discover(CONNECTOR, storage, TOPIC, {}).ledgers
    (extent,) = found.extents
    runs = CONNECTOR.runs(extent, 200)
    assert len(runs) > 3
    whole = storage.open(found.ledger.object, extent.offset, extent.size_bytes)
    raws = list(CONNECTOR.split(found.ledger, extent, runs, whole))
    for start, raw in enumerate(raws):
        rest = extent.offset + extent.size_bytes - raw.offset
        stream = storage.open(found.ledger.object, raw.offset, rest)
        assert (
            list(CONNECTOR.split(found.ledger, extent, runs[start:], stream))
            == (raws[start:])
        )
        stream = storage.open(found.ledger.object, raw.offset, len(raw.data))
        assert list(CONNECTOR.split(found.ledger, extent, [raw.run], stream)) == [raw]


def test_blocks_are_not_cut() -> None:
    """Nothing within them can be addressed; Spark's pickling must not lose that."""
    extent = pickle.loads(pickle.dumps(OneRun(3, 99, 1000, 5000)))
    assert CONNECTOR.runs(extent, 1) == [Run(3, 99)]
    assert len(CONNECTOR.runs(Extent(3, 99, 1000, 5000), 1)) == 97


def test_one_request_for_each_index_and_each_beginning() -> None:
    storage = store_files(
        MemoryStorage(), map_file([*ENTRIES, b"made unique"], Format("record"))
    )
    for _ in range(2):
        discover(CONNECTOR, storage, TOPIC, {})
    assert storage.requests == {"list": 2, "get": 1, "open": 1}


def test_metadata_may_be_long() -> None:
    entries = [ENTRIES[0]]
    metadata = ledger_metadata(TOPIC, entries, "x" * 50_000)
    files = map_file(entries, Format("records"), metadata=metadata)
    storage = store_files(MemoryStorage(), files)
    assert read(storage) == (VALUES[:1], [])


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(folder(), id="as the offloader names it"),
        pytest.param(f"some/where/{folder()}", id="below other folders"),
        pytest.param(f"7-{UUID}", id="from the topic's own folder on"),
    ],
)
def test_where_folders_may_lie(where: str) -> None:
    files = map_file(ENTRIES, Format("record"))
    assert read(store_files(MemoryStorage(), files, where)) == (VALUES, [])


def test_the_folder_says_whose_it_is_where_the_metadata_do_not() -> None:
    metadata = ledger_metadata(TOPIC, ENTRIES, "something else")
    files = map_file(ENTRIES, Format("record"), metadata=metadata)
    assert read(store_files(MemoryStorage(), files)) == (VALUES, [])


def test_names_of_topics_are_url_decoded() -> None:
    topic = "persistent://shop/eu/a b & ü+%2F"
    metadata = ledger_metadata(topic, ENTRIES)
    files = map_file(ENTRIES, Format("record"), metadata=metadata)
    storage = store_files(MemoryStorage(), files, folder(topic=topic))
    assert len(discover(CONNECTOR, storage, topic, {}).ledgers) == 1


def test_beside_the_other_formats() -> None:
    storage = store(ENTRIES[:2], ledger=6)
    store_files(storage, map_file(ENTRIES, Format("record")))
    snapshot = discover(CONNECTOR, storage, TOPIC, {})
    assert [found.ledger.id for found in snapshot.ledgers] == [6, 7]


OTHER_UUID = UUID.replace("0c", "ff")


@pytest.mark.parametrize("index", [b"", Format("block").header(values="x")[:0]])
def test_an_upload_whose_index_is_empty_is_unfinished(
    index: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    data, whole = map_file(ENTRIES, Format("record"))
    storage = store_files(MemoryStorage(), (data[:500], index))
    store_files(storage, (data, whole), folder(uuid=OTHER_UUID))
    with caplog.at_level(logging.INFO):
        (found,) = discover(CONNECTOR, storage, TOPIC, {}).ledgers
    assert OTHER_UUID in found.ledger.object.uri
    assert f"7-{UUID}/data has no index: an unfinished upload" in caplog.text


def test_an_index_of_a_header_alone_is_empty() -> None:
    data, whole = map_file(ENTRIES, Format("record"))
    storage = store_files(MemoryStorage(), (data[:500], index_file([])))
    store_files(storage, (data, whole), folder(uuid=OTHER_UUID))
    (found,) = discover(CONNECTOR, storage, TOPIC, {}).ledgers
    assert OTHER_UUID in found.ledger.object.uri


def test_an_index_whose_header_runs_on_is_not_empty() -> None:
    header = index_file([])
    swallowing = header[:-20] + struct.pack(">i", 1) + bytes([9]) + bytes(11)
    storage = store_files(MemoryStorage(), (DATA, swallowing + bytes(15)))
    with pytest.raises(SourceError, match="places behind a header"):
        discover(CONNECTOR, storage, TOPIC, {})


@pytest.mark.parametrize("format_", FORMATS, ids=str)
def test_of_several_uploads_one_that_is_whole_is_taken(format_: Format) -> None:
    """The index says where entries begin, not where the last one ends."""
    data, index = map_file(ENTRIES, format_, interval=100)
    storage = store_files(MemoryStorage(), (data[:-1], index))
    assert len(read(storage)[0]) < 20
    store_files(storage, (data, index), folder(uuid=OTHER_UUID))
    assert read(storage) == (VALUES, [])


def test_of_several_uploads_that_are_cut_one_is_read_as_far_as_it_goes() -> None:
    data, index = map_file(ENTRIES, Format("record"), interval=100)
    storage = store_files(MemoryStorage(), (data[:-1], index))
    store_files(storage, (data[:-2], index), folder(uuid=OTHER_UUID))
    values, losses = read(storage)
    assert values == VALUES[:-1]
    assert [(loss.first, loss.last) for loss in losses] == [(19, 19)]


def test_of_several_uploads_the_manifest_names_one() -> None:
    files = map_file(ENTRIES, Format("record"))
    storage = store_files(MemoryStorage(), files)
    store_files(storage, files, folder(uuid=OTHER_UUID))
    for uuid in (UUID, OTHER_UUID):
        options = manifest(7, isOffloaded=True, offloadedContextUuid=uuid)
        (found,) = discover(CONNECTOR, storage, TOPIC, options).ledgers
        assert f"7-{uuid}/data" in found.ledger.object.uri


def test_a_folder_without_data() -> None:
    storage = store_files(MemoryStorage(), map_file(ENTRIES, Format("record")))
    storage.remove(f"{folder()}/data")
    with pytest.raises(SourceError, match=f"7-{UUID}/data: .*found no such object"):
        discover(CONNECTOR, storage, TOPIC, {})


DATA, INDEX = map_file(ENTRIES, Format("record"))
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
        pytest.param(DATA[:600], INDEX, "ascending places", id="data cut"),
        pytest.param(
            map_file(
                ENTRIES,
                Format("record"),
                metadata=ledger_metadata("persistent://shop/eu/returns", ENTRIES),
            )[0],
            INDEX,
            "expected a ledger of .*orders, .* found one of .*returns",
            id="whose it is",
        ),
        pytest.param(
            DATA,
            index_file([(0, START)]),
            "a first place of record -1",
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
            DATA, index_file([(-1, START), (9, 1 << 40)]), "ascending", id="behind"
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
def test_a_place_in_the_midst_of_a_block() -> None:
    data, _ = map_file(ENTRIES, Format("block"))
    for places, message in (
        ([(-1, START), (9, len(data) - 99)], "a sync marker"),
        ([(-1, START), (19, data.index(b"\xff\xff\xff\xff", START + 9))], "block with"),
    ):
        storage = store_files(MemoryStorage(), (data, index_file(places)))
        with pytest.raises(SourceError, match=message):
            one_file(storage)


def damaged(format_: Format, at: int, new: bytes) -> MemoryStorage:
    """Data that were damaged behind their metadata after they were stored."""
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
        pytest.param(PLAIN, 0, b"\x7f", range(5, 20), "one of", id="too long"),
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
    """Behind a record of which the length is wrong, nothing more can be found."""
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
def test_what_stands_behind_the_last_entry_is_none(format_: Format) -> None:
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


def test_of_a_block_all_is_lost_but_not_what_follows() -> None:
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
    assert losses[0].found == "7 to 10"


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


@pytest.mark.parametrize("name_key", ["pulsar/managed-ledger", "psr/managed-ledger"])
def test_old_and_new_keys_of_metadata(name_key: str) -> None:
    metadata = ledger_metadata(TOPIC, ENTRIES, name_key)
    files = map_file(ENTRIES, Format("record"), metadata=metadata)
    assert read(store_files(MemoryStorage(), files, f"7-{UUID}")) == (VALUES, [])


def test_objects_are_found_by_their_version() -> None:
    """A folder that is written again is another ledger."""
    storage = store_files(MemoryStorage(), map_file(ENTRIES, Format("record")))
    read(storage)
    store_files(storage, map_file(ENTRIES[:3], Format("record")))
    assert read(storage) == (VALUES[:3], [])
    assert isinstance(storage.get(f"memory://bucket/{folder()}/data").id, ObjectId)


@pytest.mark.parametrize("format_", [Format("record"), Format("block", per_block=1)])
def test_what_a_run_becomes_is_bounded(
    format_: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codecs, "MAX_RUN_BYTES", 1 << 20)
    monkeypatch.setattr(codecs, "MAX_RUN_RATIO", 1)
    entry = Entry((Message(bytes(300_000)),)).encode()
    storage = store_files(MemoryStorage(), map_file([entry] * 10, format_))
    values, losses = read(storage, 1 << 20)
    assert len(values) == 4
    assert [(loss.first, loss.last) for loss in losses] == [(4, 9)]
    assert "expected a run that fits into memory" in str(losses[0])
