"""Names of topics, in all the ways in which they are written, and keys of objects."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache.errors import ConfigError
from sparkcache.model import qualified_topic, topic_and_root
from sparkcache_pulsar import names
from sparkcache_pulsar.names import FileKey, Key, SegmentKey

UUID = "0c4d9a1e-7a52-4e6c-9a1f-000000000001"


@pytest.mark.parametrize(
    ("given_name", "full"),
    [
        pytest.param("persistent://t/n/x", "persistent://t/n/x", id="full name"),
        pytest.param("t/n/x", "persistent://t/n/x", id="without the domain"),
        pytest.param("x", "persistent://public/default/x", id="the name alone"),
        pytest.param("t/n/persistent/x", "persistent://t/n/x", id="managed ledger"),
        pytest.param(
            "t/n/persistent/a%2Fb+c", "persistent://t/n/a/b c", id="is URL-decoded"
        ),
        pytest.param("a+b", "persistent://public/default/a+b", id="others are not"),
    ],
)
def test_full_name(given_name: str, full: str) -> None:
    assert names.full_name(given_name) == full


@pytest.mark.parametrize(
    "wrong",
    ["", "/", "a/b", "persistent://x", "a//b", "non-persistent://t/n/x", "a/b/c/d/e"],
)
def test_invalid_names(wrong: str) -> None:
    with pytest.raises(ConfigError, match="give 'persistent://tenant"):
        names.full_name(wrong)


@pytest.mark.parametrize(
    ("topic", "partition"),
    [
        ("persistent://t/n/x", None),
        ("persistent://t/n/x-partition-0", 0),
        ("persistent://t/n/x-partition-12", 12),
        ("persistent://t/n/x-partition-", None),
        ("persistent://t/n/x-partition-01", None),
        ("persistent://t/n/x-partition-1-more", None),
    ],
)
def test_partition(topic: str, partition: int | None) -> None:
    assert names.partition(topic) == partition


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param(f"{UUID}-ledger-5", Key(5, UUID, False), id="data"),
        pytest.param(f"{UUID}-ledger-5-index", Key(5, UUID, True), id="index"),
        pytest.param(f"{UUID}", None, id="streaming data"),
        pytest.param(f"{UUID}-index", None, id="streaming index"),
        pytest.param(f"{UUID}-ledger-", None, id="no ledger"),
        pytest.param(f"{UUID}-ledger-{2**63}", None, id="no int64"),
        pytest.param(f"dir/{UUID}-ledger-5", None, id="in a folder"),
        pytest.param("_SUCCESS", None, id="something else"),
    ],
)
def test_keys(text: str, key: Key | None) -> None:
    assert Key.parse(text) == key
    assert key is None or str(key) == text


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param(UUID, SegmentKey(UUID, False), id="data"),
        pytest.param(f"{UUID}-index", SegmentKey(UUID, True), id="index"),
        pytest.param(f"{UUID}-ledger-5", None, id="classic"),
        pytest.param(f"{UUID}-index-index", None, id="something after it"),
        pytest.param(UUID.upper(), None, id="in capitals, as Pulsar never writes it"),
        pytest.param(f"dir/{UUID}", None, id="in a folder"),
        pytest.param("_SUCCESS", None, id="something else"),
    ],
)
def test_keys_of_segments(text: str, key: SegmentKey | None) -> None:
    assert SegmentKey.parse(text) == key
    assert key is None or str(key) == text


TOPIC = "persistent://t/n/a b/c"


@pytest.mark.parametrize(
    ("text", "key", "topic"),
    [
        pytest.param(
            f"t/n/persistent/a+b%2Fc/5-{UUID}/data",
            FileKey("t/n/persistent/a+b%2Fc", 5, UUID, False),
            TOPIC,
            id="data",
        ),
        pytest.param(
            f"x/y/t/n/persistent/a+b%2Fc/5-{UUID}/index",
            FileKey("x/y/t/n/persistent/a+b%2Fc", 5, UUID, True),
            TOPIC,
            id="index, below other folders",
        ),
        pytest.param(
            f"5-{UUID}/data", FileKey("", 5, UUID, False), None, id="no topic"
        ),
        pytest.param(
            f"a/b/5-{UUID}/data", FileKey("a/b", 5, UUID, False), None, id="no name"
        ),
        pytest.param(f"a/5-{UUID}/.data.crc", None, None, id="a checksum"),
        pytest.param(f"a/5-{UUID}/data/more", None, None, id="something below it"),
        pytest.param(f"a/5-{UUID}", None, None, id="the folder"),
        pytest.param(f"a/{2**63}-{UUID}/data", None, None, id="no int64"),
        pytest.param(f"a/{UUID}-ledger-5/data", None, None, id="the other way round"),
    ],
)
def test_names_of_files(text: str, key: FileKey | None, topic: str | None) -> None:
    assert FileKey.parse(text) == key
    if key is not None:
        assert str(key) == text
        assert key.topic() == topic


@given(st.text(min_size=1), st.text())
def test_a_qualified_topic_gives_its_name_back(name: str, root: str) -> None:
    topic = f"persistent://t/n/{name}"
    found, _ = topic_and_root(qualified_topic(topic, root))
    assert found == topic
    assert names.namespace(found) == "t/n"
