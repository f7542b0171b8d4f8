"""Counts of topics, of which there may be very many."""

from __future__ import annotations

from dataclasses import fields

from sparkcache.metrics import METRICS, TopicMetrics, by_group, by_topic
from sparkcache.node.topic_counts import TopicCounts


def test_what_topics_count_are_metrics_of_the_node() -> None:
    names = {spec.name for spec in fields(TopicMetrics)}
    assert names - METRICS.keys() == {"topic", "group", "evictions"}


def test_topics_beyond_the_most_are_counted_together() -> None:
    counts = TopicCounts(max_topics=2)
    for number in range(5):
        counts.set_group(f"topic-{number}", "shop/eu")
        counts.insert(f"topic-{number}", 10 + number)
    counts.evict("topic-3", 13)
    first, second, others = counts.records()
    assert (first.topic, first.kept_bytes) == ("topic-0", 10)
    assert (second.topic, second.group) == ("topic-1", "shop/eu")
    assert (others.topic, others.group) == ("", "")
    assert (others.inserts, others.evictions, others.runs) == (3, 1, 2)
    assert (others.loaded_bytes, others.kept_bytes) == (12 + 13 + 14, 12 + 14)
    totals = counts.totals()
    assert (totals["inserts"], totals["loaded_bytes"]) == (5, 10 + 11 + 12 + 13 + 14)


def test_there_are_no_others_as_long_as_there_is_room() -> None:
    counts = TopicCounts(max_topics=1)
    counts.for_topic("topic").hits += 1
    assert counts.records() == (TopicMetrics(topic="topic", hits=1),)


def test_records_of_several_nodes_are_added_topic_by_topic() -> None:
    here = TopicMetrics(topic="a", group="g", hits=1), TopicMetrics(topic="b", hits=2)
    there = TopicMetrics(topic="b", hits=40), TopicMetrics(topic="", hits=300)
    assert by_topic([*here, *there]) == [
        TopicMetrics(topic="", hits=300),
        TopicMetrics(topic="a", group="g", hits=1),
        TopicMetrics(topic="b", hits=42),
    ]


def test_topics_of_a_group_are_added() -> None:
    records = [
        TopicMetrics(topic="a", group="shop/eu", hits=1, kept_bytes=5),
        TopicMetrics(topic="b", group="shop/eu", hits=2, kept_bytes=6),
        TopicMetrics(topic="a", group="bank/us", hits=4),
    ]
    assert by_group(records) == [
        TopicMetrics(topic="a", group="bank/us", hits=4),
        TopicMetrics(topic="", group="shop/eu", hits=3, kept_bytes=11),
    ]
