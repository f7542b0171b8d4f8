"""Entries that depend on others, and the rows that they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkcache.testing import MemoryStorage, decoded_runs, discover, resolved_rows
from sparkcache_pulsar import PulsarConnector
from sparkcache_pulsar.testing import Entry, Message

from .topics import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.model import Loss

    from .topics import Row

CONNECTOR = PulsarConnector()
UNCOMMITTED = {"isolation": "read_uncommitted"}


def read(
    storage: MemoryStorage,
    options: dict[str, str] | None = None,
    *,
    run_bytes: int = 1,
    parts: int = 1,
) -> tuple[list[Row], list[Loss]]:
    options = options or {}
    missing = discover(CONNECTOR, storage, TOPIC, options).losses
    runs = list(decoded_runs(CONNECTOR, storage, TOPIC, options, run_bytes=run_bytes))
    decoding = CONNECTOR.decoding(options)
    return resolved_rows(CONNECTOR, runs, decoding, parts=parts, missing=missing)


def single(value: bytes, **fields: Any) -> Entry:
    return Entry((Message(value),), batched=False, **fields)


def values(rows: Sequence[Row]) -> list[Any]:
    return [row["value"] for row in rows]


def marker(txn: tuple[int, int], kind: int) -> Entry:
    return single(b"", txn=txn, marker=kind)


ONE, TWO, THIRD = (1, 1), (1, 2), (1, 3)
