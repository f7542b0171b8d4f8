"""From a bucket to the ledgers of a topic."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import pytest

from sparkcache import testing
from sparkcache.errors import ConfigError, SourceError
from sparkcache.testing import MemoryStorage, read_topic
from sparkcache_pulsar import PulsarConnector, indexes
from sparkcache_pulsar.testing import (
    Entry,
    Message,
    StoredObject,
    index_object,
    ledger_metadata,
    ledger_objects,
)

from .topics import TOPIC, store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkcache.connector import Snapshot
    from sparkcache.model import ObjectId

ENTRIES = [Entry((Message(b"value"),)).encode()] * 5
OTHER = "persistent://shop/eu/returns"
LENIENT = {"failOnDataLoss": "false"}


def discover(
    storage: MemoryStorage, topic: str = TOPIC, options: Mapping[str, str] | None = None
) -> Snapshot:
    return testing.discover(PulsarConnector(), storage, topic, options or {})


def put(
    storage: MemoryStorage, stored: StoredObject, data: bytes | None = None
) -> None:
    data = stored.data if data is None else data
    storage.put(stored.key, data, stored.metadata)


def objects(
    ledger: int = 7, topic: str = TOPIC, seed: int = 0
) -> tuple[StoredObject, StoredObject]:
    return ledger_objects(topic, ledger, ENTRIES, seed=seed, max_block_bytes=250)


def test_ledgers_come_in_the_order_of_their_ids() -> None:
    storage = MemoryStorage()
    for ledger in (100, 9, 20):
        store(ENTRIES, ledger=ledger, storage=storage)
    store(ENTRIES, ledger=10, topic=OTHER, storage=storage)
    snapshot = discover(storage)
    assert [found.ledger.id for found in snapshot.ledgers] == [9, 20, 100]
    assert not snapshot.losses


def test_extents_cover_the_data() -> None:
    storage = MemoryStorage()
    data, index = objects()
    put(storage, data)
    put(storage, index)
    (found,) = discover(storage).ledgers
    assert found.ledger.object.uri == f"memory://bucket/{data.key}"
    assert len(found.extents) == 3
    assert sum(extent.size_bytes for extent in found.extents) == len(data.data)
    assert [extent.first for extent in found.extents] == [0, 2, 4]


def test_one_listing_and_one_request_per_index_that_is_not_known() -> None:
    storage = MemoryStorage()
    for ledger in range(20):
        store([*ENTRIES, b"made unique" * ledger], ledger=ledger, storage=storage)
    discover(storage)
    assert storage.requests == {"list": 1, "get": 20}
    store([*ENTRIES, b"another"], ledger=20, storage=storage)
    discover(storage)
    assert storage.requests == {"list": 2, "get": 21}


def test_what_was_read_of_many_indexes_is_kept_for_later_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexes, "_known", {})
    storage = MemoryStorage()
    for ledger in range(50):
        store([*ENTRIES, b"made unique" * ledger], ledger=ledger, storage=storage)
    found = discover(storage)
    assert storage.requests == {"list": 1, "get": 50}
    monkeypatch.setattr(indexes, "_known", {})  # as in another process
    store([*ENTRIES, b"another"], ledger=20, storage=storage)  # instead of what was
    assert len(discover(storage).ledgers) == len(found.ledgers) == 50
    assert storage.requests == {"list": 2, "get": 51}
    monkeypatch.setattr(indexes, "_known", {})
    assert discover(storage) != found
    assert storage.requests == {"list": 3, "get": 51}


def test_what_was_kept_in_another_format_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexes, "_known", {})
    storage = MemoryStorage()
    for ledger in range(50):
        store([*ENTRIES, b"made unique" * ledger], ledger=ledger, storage=storage)
    found = discover(storage)
    storage.remember(
        "pulsar-1", [(object_id, b"\x93\x01\x02\x03") for object_id in storage.list()]
    )
    monkeypatch.setattr(indexes, "_known", {})
    assert discover(storage) == found
    assert storage.requests["get"] == 100


def test_foreign_objects_are_passed_over() -> None:
    storage = store(ENTRIES)
    for name in ("_SUCCESS", "part-0.parquet", "dir/x-ledger-1-index"):
        storage.put(name, b"something")
    assert len(discover(storage).ledgers) == 1


def test_data_without_an_index_is_an_unfinished_upload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = store(ENTRIES)
    put(storage, objects(8)[0])
    with caplog.at_level(logging.INFO):
        assert [found.ledger.id for found in discover(storage).ledgers] == [7]
    assert "ledger-8: expected an index of these data" in caplog.text


def test_one_of_several_uploads_is_taken_always_the_same() -> None:
    storage = MemoryStorage()
    uploads = [objects(seed=seed) for seed in range(4)]
    for data, index in uploads:
        put(storage, data)
        put(storage, index)
    (found,) = discover(storage).ledgers
    assert found.ledger.object.uri.endswith(min(data.key for data, _ in uploads))


def test_a_broken_upload_beside_a_whole_one_does_no_harm() -> None:
    storage = MemoryStorage()
    uploads = [objects(seed=seed) for seed in range(3)]
    uploads.sort(key=lambda upload: upload[0].key)
    (cut, its_index), (missing, broken), (data, index) = uploads
    put(storage, cut, cut.data[:-1])
    put(storage, its_index)
    put(storage, missing)
    put(storage, broken, b"no index")
    put(storage, data)
    put(storage, index)
    (found,) = discover(storage).ledgers
    assert found.ledger.object.uri.endswith(data.key)


DATA, INDEX = objects()


@pytest.mark.parametrize(
    ("data", "index", "metadata", "message"),
    [
        pytest.param(
            DATA.data[:-1],
            INDEX.data,
            INDEX.metadata,
            "bytes, as its index says",
            id="cut",
        ),
        pytest.param(
            DATA.data + b"x",
            INDEX.data,
            INDEX.metadata,
            "bytes, as its index says",
            id="longer",
        ),
        pytest.param(
            None, INDEX.data, INDEX.metadata, "found no such object", id="no data"
        ),
        pytest.param(
            DATA.data, b"?" * 99, INDEX.metadata, "expected magic", id="no index"
        ),
        pytest.param(
            DATA.data, INDEX.data[:-1], {}, "blocks and metadata", id="whose is unknown"
        ),
        pytest.param(
            DATA.data,
            INDEX.data,
            {**INDEX.metadata, "s3managedledgeroffloaderformatversion": "2"},
            "expected format version 1, found '2'",
            id="format version",
        ),
        pytest.param(
            DATA.data,
            INDEX.data,
            {"S3ManagedLedgerOffloaderFormatVersion": "0"},
            "found '0'",
            id="format version in other letters",
        ),
    ],
)
def test_a_broken_ledger(
    data: bytes | None, index: bytes, metadata: Mapping[str, str], message: str
) -> None:
    storage = store(ENTRIES, ledger=8)
    if data is not None:
        put(storage, DATA, data)
    storage.put(INDEX.key, index, metadata)
    with pytest.raises(SourceError, match=message):
        discover(storage)
    snapshot = discover(storage, options=LENIENT)
    assert [found.ledger.id for found in snapshot.ledgers] == [8]
    (loss,) = snapshot.losses
    assert (loss.ledger, loss.first) == (7, 0)
    assert message.removeprefix("expected ").split(",")[0] in str(loss)


METADATA = ledger_metadata(TOPIC, ENTRIES)
METADATA_OF_4 = ledger_metadata(TOPIC, ENTRIES[:4])


def index_of(
    blocks: list[tuple[int, int]],
    data_bytes: int = len(DATA.data),
    metadata: bytes = METADATA,
) -> bytes:
    return index_object(data_bytes, blocks, metadata)


@pytest.mark.parametrize(
    ("index", "lost", "message"),
    [
        pytest.param(
            index_of([(0, 0), (2, 250), (4, 100)]),
            "entries 7:2-4",
            "found entries 2 to 3 in bytes 250 to 99",
            id="an offset",
        ),
        pytest.param(
            index_of([(0, 0), (2, 250), (4, 500)], len(DATA.data) - 99),
            "entries 7:4-4",
            "found entries 4 to 4 in bytes 500 to",
            id="the size of the data",
        ),
        pytest.param(
            index_of([(0, 0), (2, 250), (4, 500)], metadata=METADATA_OF_4),
            "all entries from 7:4 on",
            "found entries 4 to 3 in bytes 500 to",
            id="the last entry",
        ),
    ],
)
def test_the_blocks_before_a_broken_one_are_read(
    index: bytes, lost: str, message: str
) -> None:
    storage = store(ENTRIES, ledger=8)
    put(storage, DATA)
    put(storage, INDEX, index)
    rows, losses = read_topic(PulsarConnector(), storage, TOPIC, LENIENT)
    (loss,) = [*discover(storage, options=LENIENT).losses, *losses]
    assert loss.entries == lost
    assert message in str(loss)
    assert [row["__entryId"] for row in rows if row["__ledgerId"] == 7] == [
        *range(loss.first)
    ]
    with pytest.raises(SourceError, match=message):
        discover(storage)


@pytest.mark.parametrize("stored_bytes", [0, 250, len(DATA.data) - 1])
def test_a_broken_index_of_other_data(stored_bytes: int) -> None:
    """Blocks do not say which ledger they are of; they could be another ledger's."""
    storage = store(ENTRIES, ledger=8)
    put(storage, DATA, DATA.data[:stored_bytes])
    put(storage, INDEX, index_of([(0, 0), (2, 250), (4, 100)]))
    snapshot = discover(storage, options=LENIENT)
    assert [loss.entries for loss in snapshot.losses] == ["entries 7:0-4"]
    assert [found.ledger.id for found in snapshot.ledgers] == [8]


def test_a_value_that_did_not_fit_into_a_block() -> None:
    """Pulsar's offloader then writes a block of padding, and does not count it."""
    block_bytes = 5 << 20
    sizes = [500_000] * 10 + [block_bytes] + [500_000] * 13
    entries = [Entry((Message(bytes(size)),)).encode() for size in sizes]
    data, _ = ledger_objects(TOPIC, 7, entries[:10], max_block_bytes=block_bytes)
    blocks = [
        struct.pack(">Iqqq100x", 0xFBDBABCB, 128, block_bytes, 0) + data.data[128:],
        struct.pack(">Iqqq100x", 0xFBDBABCB, 128, block_bytes, 10),
    ]
    stored = b"".join(block.ljust(block_bytes, b"\xfe") for block in blocks)
    of_all = ledger_metadata(TOPIC, entries)
    storage = MemoryStorage()
    put(storage, data, stored)
    storage.put(
        f"{data.key}-index",
        index_of([(0, 0), (10, block_bytes)], block_bytes, of_all),
    )
    with pytest.raises(SourceError, match="blocks in ascending order"):
        discover(storage)
    rows, losses = read_topic(PulsarConnector(), storage, TOPIC, LENIENT)
    assert [row["__entryId"] for row in rows] == [*range(10)]
    assert not losses
    (loss,) = discover(storage, options=LENIENT).losses
    assert loss.entries == "entries 7:10-23"


def test_of_two_broken_indexes_the_one_with_more_good_blocks_is_read() -> None:
    storage = MemoryStorage()
    for seed, places in enumerate(([250, 100], [100, 500], [250, 100])):
        data, index = objects(seed=seed)
        put(storage, data)
        put(storage, index, index_of([(0, 0), (2, places[0]), (4, places[1])]))
    (loss,) = discover(storage, options=LENIENT).losses
    assert loss.entries == "entries 7:2-4"
    rows, _ = read_topic(PulsarConnector(), storage, TOPIC, LENIENT)
    assert [row["__entryId"] for row in rows] == [0, 1]


def test_no_entries_are_read_of_a_broken_ledger_whose_topic_is_unknown() -> None:
    storage = store(ENTRIES, ledger=8)
    unnamed = ledger_metadata(TOPIC, ENTRIES, "something else")
    index = index_of([(0, 0), (2, 250), (4, 100)], metadata=unnamed)
    storage.put(DATA.key, DATA.data)
    storage.put(INDEX.key, index)
    snapshot = discover(storage, options=LENIENT)
    assert [found.ledger.id for found in snapshot.ledgers] == [8]
    assert [loss.entries for loss in snapshot.losses] == ["entries 7:0-4"]


class ChangingStorage(MemoryStorage):
    """Lists at first what was there before an object went, or came."""

    before: tuple[ObjectId, ...] = ()

    def list(self, cuts: Sequence[str] = ()) -> Iterator[ObjectId]:
        listed = self.before or tuple(super().list())
        self.before = ()
        yield from listed


def test_a_ledger_that_is_deleted_meanwhile_is_no_fault() -> None:
    storage = ChangingStorage()
    store(ENTRIES, storage=storage)
    deleted = ledger_objects(OTHER, 8, [*ENTRIES, b"made unique"])
    for stored in deleted:
        put(storage, stored)
    storage.before = tuple(MemoryStorage.list(storage))
    for stored in deleted:
        storage.remove(stored.key)
    assert len(discover(storage).ledgers) == 1


def test_a_ledger_that_is_completed_meanwhile_is_found() -> None:
    storage = ChangingStorage()
    data, index = objects()
    put(storage, index)
    storage.before = tuple(MemoryStorage.list(storage))
    put(storage, data)
    assert len(discover(storage).ledgers) == 1


def test_a_broken_ledger_of_another_topic_does_no_harm() -> None:
    storage = store(ENTRIES)
    data, index = objects(8, OTHER)
    put(storage, index, b"broken, but its metadata says whose it is")
    put(storage, data)
    assert len(discover(storage).ledgers) == 1
    with pytest.raises(SourceError):
        discover(storage, OTHER)


def test_lost_entries_are_counted_where_the_index_is_sound() -> None:
    storage = store(ENTRIES, ledger=8)
    put(storage, INDEX)
    (loss,) = discover(storage, options=LENIENT).losses
    assert (loss.first, loss.last) == (0, 4)


@pytest.mark.parametrize("name_key", ["pulsar/managed-ledger", "psr/managed-ledger"])
def test_the_topic_is_in_the_index(name_key: str) -> None:
    """As in a local directory, where objects have no user metadata."""
    metadata = ledger_metadata(TOPIC, ENTRIES, name_key)
    storage = MemoryStorage()
    storage.put(DATA.key, DATA.data)
    size = len(DATA.data)
    storage.put(INDEX.key, index_object(size, [(0, 0)], metadata))
    assert len(discover(storage).ledgers) == 1


def test_the_topic_may_be_in_the_user_metadata() -> None:
    metadata = ledger_metadata(TOPIC, ENTRIES, "something else")
    storage = MemoryStorage()
    storage.put(DATA.key, DATA.data)
    index = index_object(len(DATA.data), [(0, 0)], metadata)
    storage.put(INDEX.key, index, {"ManagedLedgerName": "shop/eu/persistent/orders"})
    assert len(discover(storage).ledgers) == 1


def test_names_are_url_decoded() -> None:
    topic = "persistent://shop/eu/a b & ü+"
    assert len(discover(store(ENTRIES, topic=topic), topic).ledgers) == 1


def test_an_unknown_topic() -> None:
    storage = MemoryStorage()
    for ledger in range(30):
        topic = f"persistent://shop/eu/topic-{ledger}"
        store(ENTRIES, topic=topic, ledger=ledger, storage=storage)
    with pytest.raises(
        ConfigError, match=r"found topics .*topic-\d+.* and 20 more"
    ) as error:
        discover(storage, "persistent://shop/eu/topic-99")
    assert str(error.value).count("persistent://shop/eu/topic-") == 11


def test_an_empty_bucket() -> None:
    with pytest.raises(ConfigError, match="found no topics"):
        discover(MemoryStorage())


def test_an_index_and_its_user_metadata_that_name_two_topics() -> None:
    """One of them was damaged: the ledger must not be missed in silence."""
    data, index = objects()
    storage = MemoryStorage()
    put(storage, data)
    metadata = {**index.metadata, "managedledgername": "shop/eu/persistent/returns"}
    storage.put(index.key, index.data, metadata)
    with pytest.raises(
        SourceError, match=f"a ledger of {OTHER}, .* a ledger of {TOPIC}"
    ):
        discover(storage, OTHER)


def test_an_index_that_says_too_early_where_a_ledger_ends() -> None:
    """Readers that follow the index would never find the entries after it."""
    data, index = ledger_objects(TOPIC, 7, ENTRIES)
    short = index_object(len(data.data), [(0, 0)], ledger_metadata(TOPIC, ENTRIES[:3]))
    storage = MemoryStorage()
    put(storage, data)
    put(storage, index, short)
    rows, losses = read_topic(PulsarConnector(), storage, TOPIC)
    assert [row["__entryId"] for row in rows] == [0, 1, 2]
    assert [(loss.first, loss.last) for loss in losses] == [(3, 4)]
    assert "expected entry 2 to be the last" in str(losses[0])
