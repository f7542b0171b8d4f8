"""From stored bytes to decoded runs: what loaders do, and tasks without a node."""

from sparkcache.fetch.load import Load, begin, fetch
from sparkcache.fetch.stretch import Scan, Stretch

__all__ = ["Load", "Scan", "Stretch", "begin", "fetch"]
