"""For tests of this package and of connectors: test doubles, and the contract."""

from sparkcache.testing.contract import check_connector
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
    "check_connector",
    "decoded_runs",
    "discover",
    "read_topic",
    "resolved_rows",
]
