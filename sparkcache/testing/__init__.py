"""Stand-ins for what lies outside, for tests of this package and of connectors."""

from sparkcache.testing.memory_storage import MemoryStorage
from sparkcache.testing.reading import decoded_runs, discover, read_topic, resolved_rows

__all__ = ["MemoryStorage", "decoded_runs", "discover", "read_topic", "resolved_rows"]
