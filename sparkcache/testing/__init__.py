"""Test doubles for storages and servers, for tests of this package and connectors."""

from sparkcache.testing.memory_storage import MemoryStorage
from sparkcache.testing.reading import (
    as_dicts,
    decoded_runs,
    discover,
    read_topic,
    resolved_rows,
)

__all__ = [
    "MemoryStorage",
    "as_dicts",
    "decoded_runs",
    "discover",
    "read_topic",
    "resolved_rows",
]
