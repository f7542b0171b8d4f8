"""The connector keeps the contract of all connectors, on what brokers offloaded."""

from __future__ import annotations

import json

import pytest

from sparkcache.testing import check_connector
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import Entry, Message

from .golden import GOLDEN, PRIVATE_KEY, bucket
from .streaming import manifest
from .test_forms import stored_as
from .test_golden import TOPICS, folders, require_as_read_by_pulsar
from .topics import TOPIC

CONNECTOR = PulsarConnector()


@pytest.mark.parametrize(
    ("namespace", "name", "options"),
    [
        pytest.param(folder, name, options, id=f"{folder}/{name}")
        for folder, name, options in (
            ("later", "chunked-zstd", {}),
            ("later", "encrypted", {"privateKey": str(PRIVATE_KEY)}),
            ("later", "transactions", {}),
            ("newest", "chunked-across", {}),
            ("newest", "txn-mixed", {}),
        )
    ],
)
def test_topics_of_object_stores(
    namespace: str, name: str, options: dict[str, str]
) -> None:
    topic = f"persistent://public/{namespace}/{name}"
    storage = bucket(f"-{namespace}")
    rows, losses = check_connector(CONNECTOR, storage, topic, options)
    require_as_read_by_pulsar(rows, losses, f"expected-{namespace}/{name}")


@pytest.mark.parametrize("name", TOPICS)
def test_topics_of_the_classic_format(name: str) -> None:
    first_line = (GOLDEN / "expected" / f"{name}.jsonl").read_text().splitlines()[0]
    topic = json.loads(first_line)["topic"]
    rows, losses = check_connector(CONNECTOR, bucket(), topic)
    require_as_read_by_pulsar(rows, losses, f"expected/{name}")


@pytest.mark.parametrize("name", ["block-7", "gzip-record", "none"])
def test_topics_of_the_file_system(name: str) -> None:
    topic = f"persistent://public/filesystem/{name}"
    rows, losses = check_connector(CONNECTOR, folders(), topic)
    require_as_read_by_pulsar(rows, losses, f"expected-filesystem/{name}")


def test_a_topic_of_the_streaming_format() -> None:
    listed = GOLDEN / "internal-streaming" / "streaming.info.json"
    options = {"manifest": listed.read_text()}
    topic = "persistent://public/streaming/streaming"
    rows, losses = check_connector(CONNECTOR, bucket("-streaming"), topic, options)
    require_as_read_by_pulsar(rows, losses, "expected-streaming/streaming")


@pytest.mark.parametrize("form", ["classic", "streaming", "records", "record", "block"])
def test_values_with_a_schema(form: str) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    options = {"valueSchema": schema, "mode": "PERMISSIVE", **manifest(7)}
    storage = stored_as(form, Entry((Message(b"\x54"), Message(b""))).encode())
    rows, losses = check_connector(CONNECTOR, storage, TOPIC, options)
    assert [row["value"] for row in rows] == [{"n": 42}, None]
    assert not losses
