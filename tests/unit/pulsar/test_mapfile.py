"""Ledgers of the file system offloader, from folders to rows."""

from __future__ import annotations

import logging
import pickle
import struct

import pytest

from sparkcache.errors import SourceError
from sparkcache.model import Extent, Ledger, ObjectId, Run
from sparkcache.testing import MemoryStorage, discover
from sparkcache_pulsar import codecs
from sparkcache_pulsar.decoding import Decoding
from sparkcache_pulsar.records import OneRun
from sparkcache_pulsar.testing import Entry, Message, ledger_metadata

from .mapfile_cases import CONNECTOR, DATA, ENTRIES, FORMATS, VALUES, one_file, read
from .mapfiles import COMPRESS, UUID, Format, folder, index_file, map_file, store_files
from .streaming import manifest
from .topics import TOPIC, store


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
    ledger = Ledger("pulsar", f"x#{TOPIC}", 7, data, str(Decoding(found.layout)))
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
    assert f"7-{UUID}/data: expected an index of these data" in caplog.text


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
    with pytest.raises(SourceError, match="offsets after a header"):
        discover(CONNECTOR, storage, TOPIC, {})


@pytest.mark.parametrize("format_", FORMATS, ids=str)
def test_a_whole_one_of_several_uploads_is_taken(format_: Format) -> None:
    """The index says where entries begin, not where the last one ends."""
    data, index = map_file(ENTRIES, format_, interval=100)
    storage = store_files(MemoryStorage(), (data[:-1], index))
    assert len(read(storage)[0]) < 20
    store_files(storage, (data, index), folder(uuid=OTHER_UUID))
    assert read(storage) == (VALUES, [])


def test_one_of_several_cut_uploads_is_read_as_far_as_it_goes() -> None:
    data, index = map_file(ENTRIES, Format("record"), interval=100)
    storage = store_files(MemoryStorage(), (data[:-1], index))
    store_files(storage, (data[:-2], index), folder(uuid=OTHER_UUID))
    values, losses = read(storage)
    assert values == VALUES[:-1]
    assert [(loss.first, loss.last) for loss in losses] == [(19, 19)]


def test_the_manifest_names_one_of_several_uploads() -> None:
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
