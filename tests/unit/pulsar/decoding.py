"""Entries of a message or a batch, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkcache.model import Loss
from sparkcache.testing import read_topic
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import Entry, Message

from .topics import TOPIC, Row, expected_rows, store

CONNECTOR = PulsarConnector()


def read(*entries: Entry | bytes) -> tuple[list[Row], list[Loss]]:
    return read_topic(CONNECTOR, store(entries), TOPIC)


def rows(*entries: Entry) -> list[Row]:
    """Read entries of which none may be lost, and compare with what was written."""
    found, losses = read(*entries)
    assert not losses
    assert found == expected_rows(entries)
    return found


def single(message: Message, **changes: Any) -> Entry:
    return replace(Entry((message,), batched=False), **changes)


def batch(*messages: Message, **changes: Any) -> Entry:
    return replace(Entry(messages), **changes)


def odd(value: bytes, extra_metadata: bytes) -> bytes:
    """An entry whose checksum is right and whose metadata says too much."""
    return single(Message(value), extra_metadata=extra_metadata).encode()
