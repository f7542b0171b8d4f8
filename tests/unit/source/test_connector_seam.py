"""Rules that every connector keeps, and the kind of stream of its topics."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest

from sparkcache.connector import ENTRY_POINT_GROUP, TableConnector, find
from sparkcache.source.datasource import SparkCacheSource
from sparkcache.source.streaming.stream_reader import StreamReader

if TYPE_CHECKING:
    from pathlib import Path

INSTALLED = sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP))


@pytest.mark.parametrize("name", INSTALLED)
def test_what_a_connector_says_of_itself_agrees(name: str) -> None:
    connector = find(name)
    assert connector.name == name
    assert connector.stream_option_names <= connector.option_names


def test_topics_are_logs_but_for_tables_whose_ledgers_are_read_whole() -> None:
    tables = [name for name in INSTALLED if isinstance(find(name), TableConnector)]
    assert tables == ["delta"]
    assert find("delta").entry_columns() == ("", "")


@pytest.mark.parametrize("name", ["pulsar", "rocketmq"])
def test_a_stream_of_a_log_asks_its_ledgers_whatever_its_options(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = find(name)
    monkeypatch.setattr(type(connector), "stream_option_names", connector.option_names)
    source = SparkCacheSource({"path": str(tmp_path), "topic": "t", "connector": name})
    assert type(source.streamReader(source.schema())) is StreamReader
