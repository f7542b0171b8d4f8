"""Data without an index: uploads in progress, and ledgers that are lost."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from sparkcache import testing
from sparkcache.errors import ConfigError, NoSuchTopicError, SourceError
from sparkcache.testing import MemoryStorage, read_topic
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import Entry, Message, ledger_metadata, ledger_objects

from .mapfile_cases import DATA, ENTRIES
from .mapfiles import folder, store_files
from .streaming import manifest, numbered, store_segment
from .topics import TOPIC, store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkcache.connector import Snapshot, StoredObject

FIVE = [Entry((Message(b"value"),)).encode()] * 5
OTHER = "persistent://shop/eu/returns"
LENIENT = {"failOnDataLoss": "false"}
CONNECTOR = PulsarConnector()


def discover(
    storage: MemoryStorage, topic: str = TOPIC, options: Mapping[str, str] | None = None
) -> Snapshot:
    return testing.discover(CONNECTOR, storage, topic, options or {})


def put_data(
    storage: MemoryStorage,
    ledger: int,
    *,
    age_s: float = 0.0,
    topic: str = TOPIC,
    seed: int = 0,
) -> str:
    """Store the data of a ledger without its index; return the URI."""
    data, _ = ledger_objects(topic, ledger, FIVE, seed=seed)
    modified_ms = round((time.time() - age_s) * 1e3)
    unique = data.data + repr((age_s, seed)).encode()
    metadata = data.metadata if topic else {}
    return storage.put(data.key, unique, metadata, modified_ms=modified_ms).uri


HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("age_s", "options", "is_lost"),
    [
        (0, {}, False),
        (HOUR_S - 60, {}, False),
        (HOUR_S + 60, {}, True),
        (HOUR_S + 60, {"maxUploadTime": "2h"}, False),
        (60, {"maxUploadTime": "30s"}, True),
        (60, {"maxUploadTime": "0s"}, True),
    ],
)
def test_data_that_are_older_than_an_upload_may_take_are_lost(
    age_s: float, options: dict[str, str], is_lost: bool
) -> None:
    storage = store(FIVE, ledger=7)
    uri = put_data(storage, 8, age_s=age_s)
    snapshot = discover(storage, options={**LENIENT, **options})
    assert [found.ledger.id for found in snapshot.ledgers] == [7]
    found = [(loss.entries, loss.uri) for loss in snapshot.losses]
    assert found == [("all entries of ledger 8", uri)] * is_lost
    if is_lost:
        with pytest.raises(
            SourceError, match="expected an index of these data, found no such object"
        ):
            discover(storage, options=options)
    else:
        assert not discover(storage, options=options).losses


@pytest.mark.parametrize(
    ("indexed", "topic", "lost"),
    [
        pytest.param(9, TOPIC, ["all entries of ledger 8"], id="a later ledger"),
        pytest.param(7, TOPIC, [], id="an earlier ledger"),
        pytest.param(9, OTHER, [], id="a later ledger of another topic"),
    ],
)
def test_data_before_a_ledger_with_an_index_are_lost(
    indexed: int, topic: str, lost: list[str]
) -> None:
    storage = store(FIVE, ledger=1)
    store(FIVE, ledger=indexed, topic=topic, storage=storage)
    put_data(storage, 8)
    snapshot = discover(storage, options=LENIENT)
    assert [loss.entries for loss in snapshot.losses] == lost


def test_lost_data_of_another_topic_do_no_harm() -> None:
    storage = store(FIVE, ledger=7)
    put_data(storage, 6, age_s=2 * HOUR_S, topic=OTHER)
    assert not discover(storage).losses
    with pytest.raises(SourceError, match="an index of these data"):
        discover(storage, OTHER)


def test_data_that_do_not_name_their_topic_could_be_of_any() -> None:
    storage = store(FIVE, ledger=7)
    data, _ = ledger_objects(TOPIC, 6, FIVE)
    storage.put(data.key, data.data)
    assert not discover(storage).losses
    storage.put(data.key, data.data + b"1", modified_ms=0)
    (loss,) = discover(storage, options=LENIENT).losses
    assert loss.entries == "all entries of ledger 6"


def test_another_upload_of_the_ledger_has_an_index() -> None:
    storage = store(FIVE, ledger=7)
    put_data(storage, 7, age_s=2 * HOUR_S, seed=1)
    assert not discover(storage).losses
    # It is broken: that is the loss to tell, and the only one.
    data, _ = ledger_objects(TOPIC, 7, FIVE)
    storage.remove(data.key)
    (loss,) = discover(storage, options=LENIENT).losses
    assert (loss.entries, loss.found) == ("entries 7:0-4", "no such object")


def test_a_topic_of_nothing_else_exists_once_it_is_lost() -> None:
    storage = MemoryStorage()
    put_data(storage, 7)
    with pytest.raises(NoSuchTopicError):
        discover(storage)
    put_data(storage, 7, age_s=2 * HOUR_S)
    with pytest.raises(SourceError, match="an index of these data"):
        discover(storage)
    snapshot = discover(storage, options=LENIENT)
    assert not snapshot.ledgers
    assert len(snapshot.losses) == 1


@pytest.mark.parametrize("age_s", [0, 2 * HOUR_S])
@pytest.mark.parametrize(
    ("listed", "lost"),
    [
        ({"isOffloaded": True, "entries": 5}, ["entries 8:0-4"]),
        ({"isOffloaded": True}, ["all entries of ledger 8"]),
        ({"isOffloaded": False, "entries": 5}, []),
        (None, []),
    ],
)
def test_a_manifest_says_which_ledgers_should_be_there(
    age_s: float, listed: dict[str, object] | None, lost: list[str]
) -> None:
    storage = store(FIVE, ledger=7)
    uri = put_data(storage, 8, age_s=age_s)
    ledgers = json.loads(manifest(7)["manifest"])["ledgers"]
    ledgers += [{"ledgerId": 8, **listed}] if listed else []
    options = {**LENIENT, "manifest": json.dumps({"ledgers": ledgers})}
    snapshot = discover(storage, options=options)
    found = [(loss.entries, loss.uri) for loss in snapshot.losses]
    assert found == [(entries, uri) for entries in lost]


@pytest.mark.parametrize(
    ("modified_ms", "lost"), [(None, []), (0, ["all entries of an unknown ledger"])]
)
def test_segments(modified_ms: int | None, lost: list[str]) -> None:
    """Their data do not say which ledgers they have."""
    storage = store(FIVE, ledger=4)
    key = store_segment(storage, [numbered(5, 0, 2)], {5: 2})
    data = storage.get(f"{storage.root}/{key}").data
    storage.remove(f"{key}-index")
    storage.put(key, data + b"%d" % bool(lost), modified_ms=modified_ms)
    losses = discover(storage, options=LENIENT).losses
    assert [loss.entries for loss in losses] == lost
    assert not discover(storage, options=manifest(4)).losses
    manifest_ = manifest(4, 5, isOffloaded=True, entries=2)
    losses = discover(storage, options={**LENIENT, **manifest_}).losses
    assert [loss.entries for loss in losses] == ["entries 4:0-1", "entries 5:0-1"][1:]


@pytest.mark.parametrize("data", [DATA, DATA[:500], b""])
@pytest.mark.parametrize("index", [None, b""])
def test_files(data: bytes, index: bytes | None) -> None:
    """Both files exist from the start; so does the index, but nothing is in it."""
    storage = store(ENTRIES, ledger=6)
    store_files(storage, (data, index or b""))
    if index is None:
        storage.remove(f"{folder()}/index")
    assert not discover(storage).losses
    storage.put(f"{folder()}/data", data + b"x", modified_ms=0)
    (loss,) = discover(storage, options=LENIENT).losses
    assert loss.entries == "all entries of ledger 7"
    found = "no such object" if index is None else "no offsets in it"
    assert loss.found.startswith(found)


def test_data_without_an_index_are_looked_at_once() -> None:
    storage = store(FIVE, ledger=7)
    put_data(storage, 8, seed=77)
    for _ in range(3):
        discover(storage)
    assert storage.requests["get"] <= 2


class ForgettingStorage(MemoryStorage):
    """Has deleted an object when it is to be read, and lists it no more."""

    doomed = ""

    def get_end(self, uri: str, size_bytes: int) -> StoredObject:
        if uri == self.doomed:
            self.remove(uri.removeprefix(f"{self.root}/"))
            self.doomed = ""
        return super().get_end(uri, size_bytes)


def test_data_that_are_deleted_meanwhile_are_not_lost() -> None:
    storage = ForgettingStorage()
    store(FIVE, ledger=7, storage=storage)
    storage.doomed = put_data(storage, 8, seed=78)
    assert not discover(storage).losses


def test_an_index_that_names_no_topic_could_be_of_any() -> None:
    storage = store(FIVE, ledger=8)
    metadata = ledger_metadata(TOPIC, FIVE, "something else")
    data, index = ledger_objects(TOPIC, 7, FIVE)
    storage.put(data.key, data.data)
    named = ledger_metadata(TOPIC, FIVE)
    nameless = index.data.replace(named, metadata).replace(
        len(named).to_bytes(4, "big"), len(metadata).to_bytes(4, "big")
    )
    storage.put(index.key, nameless)
    with pytest.raises(SourceError, match=r"expected the name of a topic .* manifest"):
        discover(storage)
    (loss,) = discover(storage, options=LENIENT).losses
    assert loss.entries == "entries 7:0-4"
    rows, _ = read_topic(CONNECTOR, storage, TOPIC, manifest(7))
    assert len(rows) == 5


def test_a_name_that_is_no_text_is_damaged() -> None:
    storage = store(FIVE, ledger=8)
    data, index = ledger_objects(TOPIC, 7, FIVE)
    storage.put(data.key, data.data)
    storage.put(index.key, index.data.replace(b"orders", b"order\xff"))
    with pytest.raises(SourceError, match="a name in UTF-8"):
        discover(storage)


def test_an_invalid_time() -> None:
    with pytest.raises(ConfigError, match="maxUploadTime='soon': must be a duration"):
        CONNECTOR.decoding({"maxUploadTime": "soon"})
