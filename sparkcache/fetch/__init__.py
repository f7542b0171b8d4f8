"""From stored bytes to decoded runs, in loaders and in tasks without a node."""

from sparkcache.fetch.load import Load, begin, fetch
from sparkcache.fetch.scan import RunSlice, Scan

__all__ = ["Load", "RunSlice", "Scan", "begin", "fetch"]
