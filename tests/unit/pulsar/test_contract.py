"""The connector keeps the contract of all connectors, on what brokers offloaded."""

from __future__ import annotations

import pytest

from sparkcache.testing import check_connector
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import Entry, Message

from .golden import (
    DEPENDENT,
    FILE_SYSTEM,
    PRIVATE_KEY,
    PULSAR_4_0,
    PULSAR_4_2,
    STREAMING,
    GoldenSet,
)
from .streaming import manifest
from .test_forms import stored_as
from .test_golden import TOPICS, require_as_read_by_pulsar
from .topics import TOPIC

CONNECTOR = PulsarConnector()


@pytest.mark.parametrize(
    ("golden", "name", "options"),
    [
        pytest.param(golden, name, options, id=f"{golden}/{name}")
        for golden, name, options in (
            (DEPENDENT, "chunked-zstd", {}),
            (DEPENDENT, "encrypted", {"privateKey": str(PRIVATE_KEY)}),
            (DEPENDENT, "transactions", {}),
            (PULSAR_4_2, "chunked-across", {}),
            (PULSAR_4_2, "txn-mixed", {}),
        )
    ],
)
def test_topics_of_object_stores(
    golden: GoldenSet, name: str, options: dict[str, str]
) -> None:
    topic, storage = golden.topic(name), golden.storage
    rows, losses = check_connector(CONNECTOR, storage, topic, options)
    require_as_read_by_pulsar(rows, losses, golden.messages(name))


@pytest.mark.parametrize("name", TOPICS)
def test_topics_of_the_classic_format(name: str) -> None:
    expected = PULSAR_4_0.messages(name)
    topic = expected[0]["topic"]
    rows, losses = check_connector(CONNECTOR, PULSAR_4_0.storage, topic)
    require_as_read_by_pulsar(rows, losses, expected)


@pytest.mark.parametrize("name", ["block-7", "gzip-record", "none"])
def test_topics_of_the_file_system(name: str) -> None:
    topic, storage = FILE_SYSTEM.topic(name), FILE_SYSTEM.storage
    rows, losses = check_connector(CONNECTOR, storage, topic)
    require_as_read_by_pulsar(rows, losses, FILE_SYSTEM.messages(name))


def test_a_topic_of_the_streaming_format() -> None:
    options = {"manifest": STREAMING.manifest("streaming", "info")}
    topic, storage = STREAMING.topic("streaming"), STREAMING.storage
    rows, losses = check_connector(CONNECTOR, storage, topic, options)
    require_as_read_by_pulsar(rows, losses, STREAMING.messages("streaming"))


@pytest.mark.parametrize("form", ["classic", "streaming", "records", "record", "block"])
def test_values_with_a_schema(form: str) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    options = {"valueSchema": schema, "mode": "PERMISSIVE", **manifest(7)}
    storage = stored_as(form, Entry((Message(b"\x54"), Message(b""))).encode())
    rows, losses = check_connector(CONNECTOR, storage, TOPIC, options)
    assert [row["value"] for row in rows] == [{"n": 42}, None]
    assert not losses
