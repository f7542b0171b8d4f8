"""Stand-ins for what lies outside, for tests of this package and of connectors."""

from sparkcache.testing.memory_storage import MemoryStorage

__all__ = ["MemoryStorage"]
