"""Names of topics with their roots, of which no two have the same; and losses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcache.demand import Consumer
from sparkcache.model import (
    UNKNOWN_END,
    Loss,
    is_named,
    qualified_topic,
    topic_and_root,
)

texts = st.text(st.sampled_from("#%23/ab"), max_size=6)


@given(texts, texts)
def test_a_name_and_its_root_come_back(topic: str, root: str) -> None:
    assert topic_and_root(qualified_topic(topic, root)) == (topic, root)


@given(texts, texts, texts, texts)
def test_other_topics_have_other_names(
    topic: str, root: str, other: str, other_root: str
) -> None:
    is_same = (topic, root) == (other, other_root)
    both = qualified_topic(topic, root), qualified_topic(other, other_root)
    assert (both[0] == both[1]) == is_same


@pytest.mark.parametrize("root", ["s3://bucket", "file:///a#b/c", "file:///100%"])
def test_a_table_whose_name_has_a_sign_is_not_the_other(root: str) -> None:
    """A stream of the table `b` says nothing of how far `a#b` was read."""
    consumer = Consumer(qualified_topic("a#b", root))
    assert consumer.reads_topic("a#b")
    assert not consumer.reads_topic("b")
    assert is_named(qualified_topic("b", root), "b")


def test_a_sign_in_a_root_is_not_taken_for_that_before_the_name() -> None:
    topics = {qualified_topic("c", "file:///a#b"), qualified_topic("b#c", "file:///a")}
    assert len(topics) == 2
    usual = qualified_topic("persistent://t/n/orders", "s3://bucket")
    assert usual == "s3://bucket#persistent://t/n/orders"


@pytest.mark.parametrize(
    ("ledger", "first", "last", "entries"),
    [
        (7, 0, 4, "entries 7:0-4"),
        (7, 0, UNKNOWN_END, "all entries of ledger 7"),
        (7, 3, UNKNOWN_END, "all entries from 7:3 on"),
        (-1, 0, UNKNOWN_END, "all entries of an unknown ledger"),
    ],
)
def test_the_entries_of_a_loss(
    ledger: int, first: int, last: int, entries: str
) -> None:
    assert str(Loss("u", 9, ledger, first, last, "a", "b")) == (
        f"{entries} lost: u at byte 9: expected a, found b"
    )
