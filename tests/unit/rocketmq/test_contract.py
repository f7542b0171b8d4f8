"""The connector keeps the contract of all connectors, on what brokers have tiered."""

from __future__ import annotations

import pytest

from sparkcache.testing import check_connector
from sparkcache_rocketmq import RocketMQConnector

from .test_golden import EXPECTED, messages, objects, queue, require_as_read, stored

CONNECTOR = RocketMQConnector()


@pytest.mark.parametrize("name", EXPECTED)
def test_queues(name: str) -> None:
    rows, losses = check_connector(CONNECTOR, stored(objects()), str(queue(name)))
    require_as_read(rows, messages(name))
    assert not losses


def test_all_queues_of_a_topic_with_some_tags() -> None:
    topic = queue(EXPECTED[0]).topic
    rows, _ = check_connector(CONNECTOR, stored(objects()), topic, {"tags": "TagA"})
    assert {row["__topic"] for row in rows} <= {topic}
    assert {row["__tags"] for row in rows} <= {"TagA"}
