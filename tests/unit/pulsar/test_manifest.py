"""What a broker reports of a topic's ledgers, and what follows for which are read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from sparkcache.connector import Selection
from sparkcache.errors import ConfigError, SourceError
from sparkcache.model import Position
from sparkcache.testing import MemoryStorage, discover
from sparkcache_pulsar import PulsarConnector, read_cursors
from sparkcache_pulsar.manifest import Listed, read_manifest
from sparkcache_pulsar.testing import Entry, Message, ledger_objects

from .streaming import manifest
from .topics import TOPIC, store

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkcache.model import ObjectId

CONNECTOR = PulsarConnector()
ENTRIES = [Entry((Message(b"value"),)).encode()] * 5
OTHER = "persistent://shop/eu/returns"


def ledger_ids(storage: MemoryStorage, options: dict[str, str]) -> list[int]:
    snapshot = discover(CONNECTOR, storage, TOPIC, options)
    return [found.ledger.id for found in snapshot.ledgers]


def test_without_the_option_there_is_none() -> None:
    assert read_manifest(MemoryStorage(), {}) is None


INFO = {
    "version": 11,
    "ledgers": [
        {
            "ledgerId": 48,
            "entries": 3,
            "isOffloaded": True,
            "offloadedContextUuid": "0e59e9ef-4d7b-46a8-a590-9f69dac1d474",
        },
        {"ledgerId": 52, "timestamp": 1_795_228_533_375, "isOffloaded": False},
    ],
}
STATS = {
    "ledgers": [
        {"ledgerId": 48, "entries": 3, "offloaded": True, "metadata": None},
        {"ledgerId": 52, "entries": 0, "offloaded": False},
    ]
}


@pytest.mark.parametrize(
    ("reported", "uuid"),
    [(INFO, "0e59e9ef-4d7b-46a8-a590-9f69dac1d474"), (STATS, None)],
)
@pytest.mark.parametrize("as_object", [False, True])
def test_both_commands_are_understood(
    reported: object, uuid: str | None, as_object: bool
) -> None:
    storage = MemoryStorage()
    given = f"  {json.dumps(reported)}\n"
    if as_object:
        storage.put("lists/orders.json", given.encode())
        given = "lists/orders.json"
    assert read_manifest(storage, {"manifest": given}) == {
        48: Listed(3, True, uuid),
        52: Listed(0, False),
    }


@pytest.mark.parametrize(
    "wrong",
    [
        "{",
        "{}",
        '{"ledgers": 7}',
        '{"ledgers": [7]}',
        '{"ledgers": [{}]}',
        '{"ledgers": [{"ledgerId": "7"}]}',
        '{"ledgers": [{"ledgerId": -7}]}',
        '{"ledgers": [{"ledgerId": true}]}',
        '{"ledgers": [{"ledgerId": 9223372036854775808}]}',
        '{"ledgers": [{"ledgerId": 7, "entries": false}]}',
        '{"ledgers": [{"ledgerId": 7, "entries": -1}]}',
        '{"ledgers": [{"ledgerId": 7, "entries": 1.5}]}',
        '{"a":' * 100_000,
    ],
)
def test_invalid_manifests(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"option manifest=.*info-internal") as error:
        read_manifest(MemoryStorage(), {"manifest": wrong})
    assert len(str(error.value)) < 300


def test_a_manifest_that_does_not_exist() -> None:
    with pytest.raises(SourceError, match=r"memory://bucket/orders\.json"):
        read_manifest(MemoryStorage(), {"manifest": "orders.json"})


def test_ledgers_that_are_not_listed_are_not_read() -> None:
    """So the same manifest gives the same rows, whatever is offloaded meanwhile."""
    storage = MemoryStorage()
    for ledger in (5, 6, 7):
        store(ENTRIES, ledger=ledger, storage=storage)
    assert ledger_ids(storage, {}) == [5, 6, 7]
    assert ledger_ids(storage, manifest(7, 5, 9)) == [5, 7]


def test_a_listed_ledger_that_should_be_there() -> None:
    storage = store(ENTRIES, ledger=5)
    options = manifest(5, 6, isOffloaded=True, entries=5)
    with pytest.raises(
        SourceError, match="bucket: expected entries 0 to 4 of ledger 6"
    ):
        ledger_ids(storage, options)
    options["failOnDataLoss"] = "false"
    (loss,) = discover(CONNECTOR, storage, TOPIC, options).losses
    assert (loss.ledger, loss.first, loss.last) == (6, 0, 4)


def test_a_manifest_of_another_topic() -> None:
    storage = store(ENTRIES, ledger=5)
    store(ENTRIES, ledger=6, topic=OTHER, storage=storage)
    with pytest.raises(ConfigError, match=f"ledger 6, which is of {OTHER}, not of"):
        ledger_ids(storage, manifest(5, 6))


def several(storage: MemoryStorage) -> list[str]:
    """Offload a ledger three times; return the uuids."""
    keys = []
    for seed in range(3):
        store(ENTRIES, ledger=5, storage=storage, seed=seed)
        keys.append(ledger_objects(TOPIC, 5, ENTRIES, seed=seed)[0].key)
    return [key.split("-ledger-")[0] for key in keys]


def chosen(storage: MemoryStorage, options: dict[str, str]) -> str:
    (found,) = discover(CONNECTOR, storage, TOPIC, options).ledgers
    return found.ledger.object.uri.removeprefix("memory://bucket/").split("-ledger")[0]


def naming(uuid: str) -> dict[str, str]:
    return manifest(5, isOffloaded=True, offloadedContextUuid=uuid)


def test_an_attempt_that_is_not_finished_names_no_upload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage()
    first = min(several(storage))
    for uuid in several(storage):
        assert chosen(storage, manifest(5, offloadedContextUuid=uuid)) == first
    assert not caplog.records


def test_the_upload_that_the_manifest_names_is_taken() -> None:
    storage = MemoryStorage()
    for uuid in several(storage):
        assert chosen(storage, naming(uuid)) == uuid


def listed(storage: MemoryStorage, count: int) -> dict[str, str]:
    """Offload ledgers; return the manifest that names their uploads."""
    ledgers = []
    for ledger in range(count):
        entries = [*ENTRIES, b"made unique" * ledger]
        store(entries, ledger=ledger, storage=storage)
        key = ledger_objects(TOPIC, ledger, entries)[0].key
        ledgers.append(
            {
                "ledgerId": ledger,
                "entries": len(entries),
                "isOffloaded": True,
                "offloadedContextUuid": key.partition("-ledger-")[0],
            }
        )
    return {"manifest": json.dumps({"ledgers": ledgers})}


def test_a_manifest_that_names_uploads_needs_no_listing() -> None:
    storage = MemoryStorage()
    options = listed(storage, 5)
    store(ENTRIES, ledger=9, topic=OTHER, storage=storage)
    assert ledger_ids(storage, options) == list(range(5))
    assert storage.requests["list"] == 0
    assert ledger_ids(storage, {}) == list(range(5))
    assert storage.requests["list"] == 1


class Unlisted(MemoryStorage):
    """Tells nothing of names, as a bucket of which they are a small part."""

    def listed(self, uris: Collection[str]) -> dict[str, ObjectId]:
        return {}


def test_what_no_listing_tells_is_asked_for_one_by_one() -> None:
    storage = Unlisted()
    options = listed(storage, 5)
    assert ledger_ids(storage, options) == list(range(5))
    assert storage.requests["list"] == 0


def test_the_bucket_is_listed_if_a_named_upload_is_not_there() -> None:
    storage = MemoryStorage()
    options = listed(storage, 5)
    data, index = ledger_objects(TOPIC, 3, [*ENTRIES, b"made unique" * 3])
    storage.remove(index.key)
    with pytest.raises(SourceError, match="an index of these data"):
        ledger_ids(storage, options)
    assert storage.requests["list"] > 0
    storage.put(index.key, index.data, index.metadata)
    storage.put(data.key, data.data[:-1])
    with pytest.raises(SourceError, match="as its index says"):
        ledger_ids(storage, options)


def test_a_pattern_is_matched_with_all_topics_of_the_bucket() -> None:
    storage = MemoryStorage()
    options = listed(storage, 2)
    store(ENTRIES, ledger=9, topic=OTHER, storage=storage)
    catalog = CONNECTOR.catalog(storage, options)
    with pytest.raises(ConfigError, match="a manifest lists the ledgers of one topic"):
        catalog.select(Selection(pattern=re.compile("persistent://shop/eu/.*")))


def test_another_upload_is_taken_if_the_named_one_is_broken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are equal, since a ledger that is offloaded is closed."""
    storage = MemoryStorage()
    named, *others = several(storage)
    storage.remove(f"{named}-ledger-5-index")
    options = naming(named)
    assert chosen(storage, options) == min(others)
    assert f"the manifest names upload {named}, which cannot be read" in caplog.text


def test_without_a_manifest_any_that_is_whole_is_taken() -> None:
    storage = MemoryStorage()
    first, second, third = sorted(several(storage))
    assert chosen(storage, {}) == first
    storage.remove(f"{first}-ledger-5-index")
    assert chosen(storage, {}) == second
    data = storage.get(f"memory://bucket/{second}-ledger-5").data
    storage.put(f"{second}-ledger-5", data[:-1])
    assert chosen(storage, {}) == third
    storage.remove(f"{third}-ledger-5")
    with pytest.raises(SourceError, match="as its index says"):
        chosen(storage, {})


def test_a_ledger_that_was_not_offloaded_before_one_that_was() -> None:
    """The last ones may still be on their way; one in between is a gap."""
    storage = store(ENTRIES, ledger=5)
    store(ENTRIES, ledger=7, storage=storage)
    listed = [
        {"ledgerId": 5, "entries": 5, "isOffloaded": True},
        {"ledgerId": 6, "entries": 3, "isOffloaded": False},
        {"ledgerId": 7, "entries": 5, "isOffloaded": True},
        {"ledgerId": 8, "entries": 4, "isOffloaded": False},
    ]
    options = {"manifest": json.dumps({"ledgers": listed})}
    with pytest.raises(SourceError, match="expected entries 0 to 2 of ledger 6"):
        ledger_ids(storage, options)
    options["failOnDataLoss"] = "false"
    (loss,) = discover(CONNECTOR, storage, TOPIC, options).losses
    assert (loss.ledger, loss.first, loss.last) == (6, 0, 2)
    assert ledger_ids(storage, options) == [5, 7]


@pytest.mark.parametrize(
    "cursors",
    [
        pytest.param(
            {
                "billing": {"markDelete": {"ledgerId": 7, "entryId": 41}},
                "new": {"markDelete": {"ledgerId": 5, "entryId": -1}},
            },
            id="info-internal",
        ),
        pytest.param(
            {
                "billing": {"markDeletePosition": "7:41", "readPosition": "7:60"},
                "new": {"markDeletePosition": "5:-1", "readPosition": "5:0"},
            },
            id="stats-internal",
        ),
    ],
)
def test_where_subscriptions_stand(cursors: dict[str, object]) -> None:
    found = read_cursors(json.dumps({"ledgers": [], "cursors": cursors}))
    assert found == {"billing": Position(7, 42), "new": Position(5, 0)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"cursors": {"a": {}}}',
        '{"cursors": 7}',
        *(
            f'{{"cursors": {{"a": {{"markDeletePosition": {at}}}}}}}'
            for at in ('"7"', '"7:-2"', '"x:y"', "7")
        ),
    ],
)
def test_invalid_cursors(text: str) -> None:
    with pytest.raises(ConfigError, match="give the JSON"):
        read_cursors(text)


def test_the_manifest_says_how_many_entries_are_lost_with_an_index() -> None:
    storage = store(ENTRIES, ledger=5)
    index = ledger_objects(TOPIC, 5, ENTRIES)[1]
    storage.put(index.key, b"", index.metadata)
    options = manifest(5, isOffloaded=True, entries=len(ENTRIES))
    options["failOnDataLoss"] = "false"
    (loss,) = discover(CONNECTOR, storage, TOPIC, options).losses
    assert (loss.ledger, loss.first, loss.last) == (5, 0, len(ENTRIES) - 1)


@pytest.mark.parametrize(
    ("entries", "lost"), [(0, "all entries of ledger 6"), (41, "entries 6:0-40")]
)
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_lost_ledger_says_how_many_entries_it_has_if_that_is_known(
    entries: int, lost: str, is_stored: bool
) -> None:
    storage = store(ENTRIES, ledger=5)
    if is_stored:
        index = ledger_objects(TOPIC, 6, ENTRIES)[1]
        storage.put(index.key, b"", index.metadata)
    listed = [
        {"ledgerId": 5, "entries": 5, "isOffloaded": True},
        {"ledgerId": 6, "entries": entries, "isOffloaded": True},
    ]
    options = {"manifest": json.dumps({"ledgers": listed}), "failOnDataLoss": "false"}
    (loss,) = discover(CONNECTOR, storage, TOPIC, options).losses
    assert str(loss).startswith(f"{lost} lost: ")


def test_an_unreadable_ledger_that_no_manifest_lists_is_lost_as_a_whole() -> None:
    storage = store(ENTRIES, ledger=5)
    index = ledger_objects(TOPIC, 5, ENTRIES)[1]
    storage.put(index.key, b"", index.metadata)
    (loss,) = discover(CONNECTOR, storage, TOPIC, {"failOnDataLoss": "false"}).losses
    assert str(loss).startswith("all entries of ledger 5 lost: ")
